import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { Lease } from '../../../lib/core/lease.js';
import { LockUnavailableError } from '../../../lib/core/errors.js';
import { LockInspector, type ListOptions } from '../../../lib/redlock/inspect/lock-inspector.js';
import type { LockInfo } from '../../../lib/core/lock-info.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { AcquireTerms, Redlock } from '../../../lib/redlock/redlock.js';
import { redlockOver } from '../../support/core.js';
import { type ScriptedNode, scriptedNodes } from '../../support/scripted-node.js';
import { until } from '../../support/until.js';

const once: AcquireTerms = { ttl: 60_000, retry: NO_RETRY, renew: false, signals: [] };
const away = new Error('connection refused');

let nodes: [ScriptedNode, ScriptedNode, ScriptedNode];
let redlock: Redlock;
let inspection: LockInspector;

beforeEach(() => {
  nodes = scriptedNodes(3) as typeof nodes;
  redlock = redlockOver(nodes);
  inspection = new LockInspector(nodes, { nodeTimeout: 100 }, redlock.held);
});
afterEach(() => redlock.close());

/** Leaves a record only on this node, as an attempt does that reaches no other node. */
async function leftOn(node: ScriptedNode, key: string): Promise<Lease> {
  const alone = redlockOver([node], { owner: 'lone' });
  const lock = await alone.acquire([key], once);
  return node.leases.find(({ id }) => id === lock.id)!;
}

async function listed(options?: ListOptions): Promise<LockInfo[]> {
  const infos: LockInfo[] = [];
  for await (const info of inspection.list(options)) infos.push(info);
  return infos;
}

describe('inspect', () => {
  test('`inspect` waits for every node, but no longer than the time limit of a node', async () => {
    const lock = await redlock.acquire(['k'], once);
    nodes[0].fate.read = 30;
    nodes[2].fate.read = 'hang';
    const info = await inspection.inspect('k');
    expect(info).toMatchObject({ held: true, id: lock.id });
    expect(info.votes).toEqual([
      expect.objectContaining({ node: 'a', vote: 'held' }),
      expect.objectContaining({ node: 'b', vote: 'held' }),
      { node: 'c', vote: 'error', error: new Error('no answer within 100 ms') },
    ]);
  });

  test('`inspect` rejects without a quorum of answers', async () => {
    nodes[0].fate.read = away;
    nodes[1].fate.read = 'hang';
    const error = await inspection.inspect('k').catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect(error).toMatchObject({
      keys: ['k'],
      message:
        'Could not inspect "k": 2 of 3 nodes must answer, and 2 did not; a: connection refused; b: no answer within 100 ms',
      votes: [{ vote: 'error', error: away }, { vote: 'error' }, { vote: 'free' }],
    });
  });

  test('`inspect` changes no record on the nodes', async () => {
    const lock = await redlock.acquire(['k'], once);
    await inspection.inspect('k');
    await inspection.inspect('other');
    expect(lock.isHeld()).toBe(true);
    expect(nodes.map(({ memory }) => memory.size)).toEqual([1, 1, 1]);
  });
});

describe('list', () => {
  test('`list` returns a lock as not held, and only once, if only a minority of nodes has its record', async () => {
    await redlock.acquire(['held'], once);
    await leftOn(nodes[1], 'left');
    const infos = await listed();
    expect(infos.map(({ key, held }) => [key, held])).toEqual([
      ['held', true],
      ['left', false],
    ]);
    expect(infos[1]?.votes.map(({ vote }) => vote)).toEqual(['free', 'held', 'free']);
  });

  test('`list` returns a lock that the first node does not have', async () => {
    nodes[0].fate.acquire = away;
    await redlock.acquire(['k'], once);
    expect((await listed()).map(({ key, held }) => [key, held])).toEqual([['k', true]]);
  });

  test('`list` returns a held lock even if a failed attempt leaves a record on a node that `list` has already scanned', async () => {
    nodes[0].fate.acquire = away;
    const lock = await redlock.acquire(['k'], once);
    nodes[0].fate.acquire = 0;
    // The attempt comes after the first node was listed.
    const { scan } = nodes[1];
    nodes[1].scan = async function* (prefix) {
      await leftOn(nodes[0], 'k');
      yield* scan.call(nodes[1], prefix);
    };
    expect(await listed()).toMatchObject([{ key: 'k', held: true, id: lock.id }]);
  });

  test.each([0, 1, 2])('`list` returns every lock while node %d of three is down', async (index) => {
    const keys = ['1', '2', '3'];
    for (const key of keys) await redlock.acquire([key], once);
    nodes[index]!.fate = { read: away, scan: away };
    expect((await listed()).map(({ key, held }) => [key, held])).toEqual(keys.map((key) => [key, true]));
  });

  test('`list` counts a store that throws synchronously as a node without an answer', async () => {
    const lock = await redlock.acquire(['k'], once);
    nodes[0].scan = () => {
      throw away;
    };
    expect(await listed()).toMatchObject([{ key: 'k', held: true, id: lock.id }]);
  });

  test('`list` returns every lock when a node goes down during the listing', async () => {
    for (let index = 0; index < 600; index++) await redlock.acquire([`k${index}`], once);
    const { scan } = nodes[0];
    nodes[0].scan = async function* (prefix) {
      for await (const page of scan.call(nodes[0], prefix)) {
        yield page;
        throw away;
      }
    };
    const keys = (await listed()).map(({ key }) => key);
    expect(new Set(keys).size).toBe(600);
  });

  test.each<[string, 'read' | 'scan', Error | 'hang']>([
    ['fail to list', 'scan', away],
    ['hang', 'scan', 'hang'],
    ['fail to read', 'read', away],
  ])('`list` rejects when most nodes %s', async (_name, request, fate) => {
    await redlock.acquire(['k'], once);
    for (const node of nodes.slice(1)) node.fate[request] = fate;
    const error = await listed().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect(error).toMatchObject({ keys: [], votes: [{ node: 'b' }, { node: 'c' }] });
    expect((error as Error).message).toMatch(
      /^Could not list all locks: 2 of 3 nodes must answer, and 2 did not; b: /,
    );
  });

  test('`list` asks no further node when it has reached `limit`', async () => {
    for (let index = 0; index < 3; index++) await redlock.acquire([`k${index}`], once);
    await expect(listed({ limit: 2 })).resolves.toHaveLength(2);
    expect(nodes[1].count('scan')).toBe(0);
  });

  test('`list` sends no further request when the loop over its results ends early', async () => {
    for (let index = 0; index < 600; index++) await redlock.acquire([`k${index}`], once);
    for await (const info of inspection.list()) {
      expect(info.held).toBe(true);
      break;
    }
    await new Promise((resolve) => setImmediate(resolve));
    // One page of a scan has only a part of the 600 records.
    expect(nodes.map((node) => [node.count('scan'), node.count('read')])).toEqual([
      [1, 1],
      [0, 1],
      [0, 1],
    ]);
  });

  test('`list` ends the scan of the store when the loop over its results ends early', async () => {
    let isEnded = false;
    const scan = nodes[0].scan.bind(nodes[0]);
    nodes[0].scan = async function* (prefix) {
      try {
        yield* scan(prefix);
      } finally {
        isEnded = true;
      }
    };
    await redlock.acquire(['k'], once);
    for await (const info of inspection.list()) {
      expect([info.key, isEnded]).toEqual(['k', false]);
      break;
    }
    await until(() => isEnded);
  });

  test.each<[unknown, string]>([
    [{ prefix: 7 }, 'Expected `prefix` to be a string, got 7'],
    [{ limit: 0 }, 'Expected `limit` to be a whole number, at least 1, got 0'],
    [{ limit: 1.5 }, 'Expected `limit` to be a whole number, at least 1, got 1.5'],
    [{ pattern: '*' }, 'Unknown option `pattern` in `list`. The options are `prefix`, `limit`'],
    [null, 'Expected the options of `list` to be an object, got null'],
  ])('`list` throws at once for the invalid options %j', (options, message) => {
    expect(() => inspection.list(options as ListOptions)).toThrow(message);
  });

  test('`list` treats undefined options as omitted', async () => {
    await redlock.acquire(['k'], once);
    await expect(listed({ prefix: undefined!, limit: undefined! })).resolves.toHaveLength(1);
  });
});

describe('a lock with several holders', () => {
  const shared: AcquireTerms = { ...once, kind: { mode: 'shared' } };
  const permits: AcquireTerms = { ...once, kind: { mode: 'permits', permits: 3 } };

  test('`inspect` returns all holders of a lock with permits, and the vote of each node', async () => {
    const locks = [await redlock.acquire(['k'], permits), await redlock.acquire(['k'], permits)];
    const info = await inspection.inspect('k');
    expect(info).toMatchObject({ held: true, mode: 'permits', permits: 3 });
    const slotOf = new Map(locks.map(({ id, slot }) => [id, slot]));
    expect(new Map(info.holders.map(({ id, slot }) => [id, slot]))).toEqual(slotOf);
    for (const vote of info.votes) expect(vote).toMatchObject({ vote: 'held', holders: { length: 2 } });
  });

  test('`list` returns a shared lock with two holders once', async () => {
    for (let reader = 0; reader < 2; reader++) await redlock.acquire(['k'], shared);
    expect(await listed()).toMatchObject([{ key: 'k', mode: 'shared', holders: { length: 2 } }]);
  });

  test('`list` returns a holder of a shared lock even if the first node lacks that holder and a second holder acquires during the listing', async () => {
    nodes[0].fate.acquire = away;
    const lasting = await redlock.acquire(['k'], shared);
    nodes[0].fate.acquire = 0;
    // The other holder comes after the first node was listed.
    const { scan } = nodes[1];
    nodes[1].scan = async function* (prefix) {
      await redlock.acquire(['k'], shared);
      yield* scan.call(nodes[1], prefix);
    };
    const infos = await listed();
    expect(infos.map(({ key }) => key)).toEqual(['k']);
    expect(infos[0]?.holders.map(({ id }) => id)).toContain(lasting.id);
  });

  test('a lock with permits can be released by force for one holder or for all holders', async () => {
    const locks = [
      await redlock.acquire(['k'], permits),
      await redlock.acquire(['k'], permits),
      await redlock.acquire(['k'], permits),
    ];
    await expect(inspection.forceRelease('k', { id: locks[1]!.id })).resolves.toBe(true);
    expect(locks.map((lock) => lock.isHeld())).toEqual([true, false, true]);
    await expect(inspection.forceRelease('k', { id: 'nobody' })).resolves.toBe(false);
    await expect(inspection.forceRelease('k')).resolves.toBe(true);
    expect(locks.map((lock) => lock.isHeld())).toEqual([false, false, false]);
    expect((await inspection.inspect('k')).votes.map(({ vote }) => vote)).toEqual(['free', 'free', 'free']);
  });
});

describe('forceRelease', () => {
  test('forceRelease removes a lock from all nodes, also from a node that did not report the lock', async () => {
    await redlock.acquire(['k'], once);
    nodes[2].fate.read = away;
    await expect(inspection.forceRelease('k')).resolves.toBe(true);
    expect(nodes.map(({ memory }) => memory.size)).toEqual([0, 0, 0]);
  });

  test('forceRelease removes records of attempts that won no quorum', async () => {
    await leftOn(nodes[0], 'k');
    await leftOn(nodes[1], 'k');
    await expect(inspection.forceRelease('k')).resolves.toBe(true);
    await expect(inspection.forceRelease('k')).resolves.toBe(false);
    expect(nodes.map(({ memory }) => memory.size)).toEqual([0, 0, 0]);
  });

  test('forceRelease does not remove a holder that acquired the lock between inspection and deletion', async () => {
    const old = await redlock.acquire(['k'], once);
    const { forceRelease } = nodes[0];
    nodes[0].forceRelease = async (key, ids) => {
      await old.release();
      await redlock.acquire(['k'], once);
      return forceRelease.call(nodes[0], key, ids);
    };
    for (const node of nodes.slice(1)) node.fate.forceRelease = 20;
    await inspection.forceRelease('k');
    const info = await inspection.inspect('k');
    expect(info.held).toBe(true);
    expect(info.id).not.toBe(old.id);
    expect([...redlock.held].map((lock) => [lock.id, lock.isHeld()])).toEqual([[info.id, true]]);
  });

  test('forceRelease rejects without a quorum of answers, and a lock of the same process stays held', async () => {
    const lock = await redlock.acquire(['k'], once);
    for (const node of nodes.slice(1)) node.fate.forceRelease = away;
    const error = await inspection.forceRelease('k').catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect((error as Error).message).toBe(
      'Could not release "k": 2 of 3 nodes must answer, and 2 did not; b: connection refused; c: connection refused',
    );
    expect(lock.isHeld()).toBe(true);
  });
});
