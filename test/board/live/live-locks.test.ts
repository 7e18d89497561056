import { afterEach, describe, expect, test } from '@jest/globals';
import { infoOf, type LockInfo, type NodeHolder } from '../../../lib/core/lock-info.js';
import { History } from '../../../lib/board/live/history.js';
import { LiveLocks, type LockSource } from '../../../lib/board/live/live-locks.js';
import type { BoardMessage, Snapshot } from '../../../lib/board/live/messages.js';
import { until } from '../../support/until.js';

const NOBODY: ReadonlySet<string> = new Set();

function heldInfo(key: string): LockInfo {
  const mode = 'exclusive';
  const times = { since: new Date(0), remaining: 60_000 };
  const holder: NodeHolder = { id: key, owner: 'api:1', ...times, fencingToken: 1, mode };
  return infoOf(key, [{ node: 'n', vote: 'held', ...holder, holders: [holder] }], 1);
}

async function* locksNamed(keys: Iterable<string>): AsyncGenerator<LockInfo> {
  for (const key of keys) yield heldInfo(key);
}

/** Makes a source with one lock; `changes` replaces some of its methods. */
function sourceWith(changes: Partial<LockSource>): LockSource {
  return {
    list: () => locksNamed(['order:1']),
    checkNodes: async () => ({ available: true, quorum: 1, nodes: [] }),
    forceRelease: async () => false,
    waiting: async () => new Map(),
    campaigns: () => [],
    heldIds: () => NOBODY,
    ...changes,
  };
}

/** Collects the messages to a viewer until `stop` is called. */
function watch(source: LockSource): { readonly messages: BoardMessage[]; readonly stop: () => void } {
  const messages: BoardMessage[] = [];
  const locks = new LiveLocks(source, { allowForceRelease: false, declared: [] }, new History(), undefined);
  const stop = locks.watch((text) => messages.push(JSON.parse(text) as BoardMessage));
  return { messages, stop };
}

let stop: () => void = () => undefined;

afterEach(() => stop());

test('LiveLocks reads at most 20,001 locks, sends 20,000 of them, and reports that more exist', async () => {
  let read = 0;
  async function* list(): AsyncGenerator<LockInfo> {
    while (read < 30_000) yield heldInfo(`order:${read++}`);
  }
  const viewer = watch(sourceWith({ list }));
  ({ stop } = viewer);
  await until(() => viewer.messages.length > 0);
  stop();
  const { status, rows } = viewer.messages[0] as Snapshot;
  expect([read, status.hasMore, rows.length]).toEqual([20_001, true, 20_000]);
});

// An unhandled rejection makes a test fail, because Jest listens for it.
describe('errors inside LiveLocks cause no unhandled rejection', () => {
  test('LiveLocks sends locks without the state of the nodes while the check of the nodes rejects', async () => {
    let checks = 0;
    const checkNodes = async (): Promise<never> => {
      checks++;
      throw new Error('the check failed');
    };
    const viewer = watch(sourceWith({ checkNodes }));
    ({ stop } = viewer);
    await until(() => checks > 1);
    expect(viewer.messages[0]).toMatchObject({ type: 'snapshot', rows: [{ key: 'order:1' }] });
    expect(viewer.messages[0]).not.toHaveProperty('status.nodes');
  });

  test('LiveLocks polls again after a failed poll', async () => {
    let looks = 0;
    const campaigns = (): [] => {
      if (++looks === 1) throw new Error('the campaigns cannot be read');
      return [];
    };
    const viewer = watch(sourceWith({ campaigns }));
    ({ stop } = viewer);
    await until(() => viewer.messages.length > 0);
    expect(viewer.messages[0]).toMatchObject({ type: 'snapshot', rows: [{ key: 'order:1' }] });
  });
});
