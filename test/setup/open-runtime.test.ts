import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Logger } from '@nestjs/common';
import { ClosedStoreError } from '../../lib/core/errors.js';
import type { LockRuntime } from '../../lib/service/lock-runtime.js';
import { makeRuntime, openRuntime } from '../../lib/setup/open-runtime.js';
import type { StoreContext } from '../../lib/stores/redis/store-context.js';
import { LogLines } from '../support/log-lines.js';
import { type ScriptedNode, scriptedNodes } from '../support/scripted-node.js';

const lines = new LogLines();
const log = new Logger('RedlockModule');

beforeEach(() => {
  jest.useFakeTimers();
  lines.lines.length = 0;
  Logger.overrideLogger(lines);
});

afterEach(() => {
  jest.useRealTimers();
  Logger.overrideLogger(true);
});

/** Three nodes. The last `connecting` nodes are not connected yet. Each function in `connect` connects one of them. */
function nodesOfWhich(connecting: number): { nodes: ScriptedNode[]; connect: (() => void)[] } {
  const nodes = scriptedNodes(3);
  const connect: (() => void)[] = [];
  for (const node of nodes.slice(3 - connecting)) {
    node.connect = () => new Promise((resolve) => connect.push(resolve));
  }
  return { nodes, connect };
}

/** Resolves to the duration of a start-up over these nodes, in milliseconds. */
async function startTime(nodes: readonly ScriptedNode[], waitForQuorum?: number): Promise<number> {
  const begun = Date.now();
  const urls = nodes.map(({ name }) => `redis://${name}`);
  const options = { nodes: urls, restartGuard: false as const, waitForQuorum };
  const started: { runtime?: LockRuntime } = {};
  void openRuntime(options, { nodesOf: () => nodes, log }).then((runtime) => (started.runtime = runtime));
  while (!started.runtime) await jest.advanceTimersByTimeAsync(10);
  const took = Date.now() - begun;
  await started.runtime.close();
  return took;
}

test('start-up does not wait when all nodes are connected', async () => {
  await expect(startTime(nodesOfWhich(0).nodes)).resolves.toBeLessThan(20);
});

test('start-up waits only briefly for the third node when a quorum is connected', async () => {
  const took = await startTime(nodesOfWhich(1).nodes);
  expect(took).toBeGreaterThanOrEqual(200);
  expect(took).toBeLessThan(250);
  expect(lines.of('error')).toEqual([]);
});

test('start-up waits five seconds for a quorum, and then logs that nothing can be locked', async () => {
  const took = await startTime(nodesOfWhich(2).nodes);
  expect(took).toBeGreaterThanOrEqual(5_000);
  expect(took).toBeLessThan(5_050);
  expect(lines.of('error')).toEqual([expect.stringMatching(/^1 of 3 Redis nodes are connected and 2 are/)]);
});

test('start-up stops waiting when a quorum connects', async () => {
  const { nodes, connect } = nodesOfWhich(2);
  setTimeout(() => connect.forEach((each) => each()), 3_000);
  const took = await startTime(nodes);
  expect(took).toBeGreaterThanOrEqual(3_000);
  expect(took).toBeLessThan(3_050);
  expect(lines.of('error')).toEqual([]);
});

test('a node that was closed while it connected is not logged', async () => {
  const { nodes } = nodesOfWhich(0);
  nodes[2]!.connect = () => Promise.reject(new ClosedStoreError());
  await startTime(nodes);
  expect(lines.lines).toEqual([]);
});

test('a shutdown during the wait for a quorum logs nothing', async () => {
  const nodes = scriptedNodes(3);
  for (const node of nodes) {
    node.connect = () =>
      new Promise((_resolve, reject) => {
        node.close = async () => reject(new ClosedStoreError());
      });
  }
  const urls = nodes.map(({ name }) => `redis://${name}`);
  const options = { nodes: urls, restartGuard: false as const, waitForQuorum: 60_000 };
  const runtime = makeRuntime(options, { nodesOf: () => nodes, log });
  const opening = runtime.open();
  await jest.advanceTimersByTimeAsync(100);
  await runtime.drain();
  await runtime.close();
  await opening;
  expect(lines.lines).toEqual([]);
});

describe('with a logger that throws', () => {
  let runtime: LockRuntime;
  let context: StoreContext;

  beforeEach(async () => {
    jest.useRealTimers();
    const broken = (): never => {
      throw new Error('the disk of the log is full');
    };
    const onEvent = (): Promise<never> => Promise.reject(new Error('broken'));
    runtime = await openRuntime(
      { nodes: 'redis://a', restartGuard: false, onEvent },
      {
        log: { debug: broken, log: broken, warn: broken, error: broken },
        nodesOf: (_, given) => {
          context = given;
          return scriptedNodes(1);
        },
      },
    );
  });
  afterEach(async () => {
    await runtime.close();
  });

  test('a lost lock aborts its signal even if the logger throws and `onEvent` rejects', async () => {
    const lock = await runtime.acquire({ keys: ['k'], options: runtime.resolve({}), origin: { label: 'k' } });
    const { signal } = lock;
    expect(() => lock.lose('it is a test')).not.toThrow();
    expect(signal.aborted).toBe(true);
    // An unhandled rejection would make the test fail: Jest listens for it.
    await new Promise((resolve) => setImmediate(resolve));
  });

  test('a store gets no error when it reports connections or a warning and the logger throws', () => {
    expect(() => {
      context.nodeReady?.('a');
      context.nodeLost?.('a');
      context.nodeReady?.('a');
      context.warnOnce('weak persistence');
    }).not.toThrow();
  });
});

describe('start-up with `waitForQuorum`', () => {
  test('start-up with `waitForQuorum` does not wait if a quorum votes already', async () => {
    await expect(startTime(nodesOfWhich(0).nodes, 30_000)).resolves.toBeLessThan(20);
    expect(lines.of('log')).toEqual([]);
  });

  test('start-up with `waitForQuorum` waits until a quorum votes, and no longer', async () => {
    const { nodes, connect } = nodesOfWhich(2);
    for (const node of nodes.slice(1)) node.fate = { check: new Error('not connected') };
    setTimeout(() => {
      connect.forEach((each) => each());
      for (const node of nodes) node.fate = {};
    }, 12_000);
    const took = await startTime(nodes, 30_000);
    expect(took).toBeGreaterThanOrEqual(12_000);
    expect(took).toBeLessThan(12_600);
  });

  test('the limit `waitForQuorum` includes the time to connect', async () => {
    const { nodes } = nodesOfWhich(2);
    for (const node of nodes.slice(1)) node.fate = { check: new Error('not connected') };
    const took = await startTime(nodes, 7_000);
    expect(took).toBeGreaterThanOrEqual(7_000);
    expect(took).toBeLessThan(7_100);
    expect(lines.of('error')).toContainEqual(
      expect.stringMatching(
        /^After 7000 ms .*, 1 of 3 Redis nodes vote and 2 are needed: .*b: not connected/,
      ),
    );
  });
});
