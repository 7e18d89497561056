import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { GuardedNodeError, NotSentError } from '../../lib/core/errors.js';
import { NODE_ERROR_CHANNEL } from '../../lib/core/lock-events.js';
import { EXCLUSIVE, type LockKind, SHARED } from '../../lib/core/lock-mode.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import type { HeldKey } from '../../lib/core/ports.js';
import type { HeldLock } from '../../lib/redlock/held-lock.js';
import type { AcquireTerms } from '../../lib/redlock/redlock.js';
import { redlockOver } from '../support/core.js';
import { type ScriptedNode, scriptedNodes } from '../support/scripted-node.js';

// A ttl of 1000 ms has a validity of 988 ms, a renewal every 333 ms, and a time limit of 50 ms for each node.
const TTL = 1_000;
const ERROR = new Error('away');

let nodes: [ScriptedNode, ScriptedNode, ScriptedNode];

beforeEach(() => {
  jest.useFakeTimers();
  nodes = scriptedNodes(3) as [ScriptedNode, ScriptedNode, ScriptedNode];
});
afterEach(() => {
  jest.useRealTimers();
});

function acquire(options: Partial<AcquireTerms> = {}): Promise<HeldLock> {
  const request = { ttl: TTL, retry: NO_RETRY, renew: true, signals: [], ...options };
  return redlockOver(nodes).acquire(['k'], request);
}

/** Acquires the lock while the last node is away; then that node is back. */
async function acquireWithoutLast(options?: Partial<AcquireTerms>): Promise<HeldLock> {
  const [, , last] = nodes;
  last.fate = { acquire: ERROR };
  const lock = await acquire(options);
  expect(await holdersAt(last)).toEqual([]);
  last.fate = {};
  last.requests.length = 0;
  return lock;
}

async function holdersAt(node: ScriptedNode): Promise<HeldKey['holders']> {
  const [state] = (await node.memory.read(['k'])) as (HeldKey | undefined)[];
  return state?.holders ?? [];
}

const KINDS: [string, LockKind][] = [
  ['an exclusive lock', EXCLUSIVE],
  ['a shared lock', SHARED],
  ['a permit', { mode: 'permits', permits: 3 }],
];

test.each(KINDS)(
  '%s is stored on a node that missed its acquisition, with the same token, slot and start, and then survives the failure of another node',
  async (_, kind) => {
    const [first, second, last] = nodes;
    const lock = await acquireWithoutLast({ kind });
    await jest.advanceTimersByTimeAsync(340);
    const [[there], [here]] = [await holdersAt(first), await holdersAt(last)];
    expect(here).toEqual({ ...there, remaining: expect.any(Number) });
    expect(here?.fencingToken).toBe(lock.fencingToken);
    second.fate = { extend: ERROR };
    await jest.advanceTimersByTimeAsync(5 * TTL);
    expect([lock.isHeld(), lock.state]).toEqual([true, 'held']);
    expect(last.count('acquire')).toBe(1);
    await lock.release();
    expect(await holdersAt(last)).toEqual([]);
  },
);

test('a lock is stored again on a node that was away until the lease had expired there', async () => {
  const [, second, last] = nodes;
  const lock = await acquire();
  const extend = last.extend.bind(last);
  last.extend = (leases, _, tell) => leases.forEach((__, index) => tell(index, ERROR));
  await jest.advanceTimersByTimeAsync(2 * TTL);
  expect(await holdersAt(last)).toEqual([]);
  last.extend = extend;
  await jest.advanceTimersByTimeAsync(340);
  second.fate = { extend: ERROR };
  await jest.advanceTimersByTimeAsync(2 * TTL);
  expect(lock.state).toBe('held');
  await lock.release();
});

test('a slow node that answers after the quorum is healed, too', async () => {
  const [, , last] = nodes;
  const lock = await acquireWithoutLast();
  last.fate = { extend: 40 };
  await jest.advanceTimersByTimeAsync(340);
  expect(last.count('acquire')).toBe(0);
  await jest.advanceTimersByTimeAsync(40);
  expect(await holdersAt(last)).toHaveLength(1);
  await lock.release();
});

test('no node is asked to heal while all of them confirm the renewals, and none for a lock without renewal', async () => {
  const lock = await acquire();
  await jest.advanceTimersByTimeAsync(5 * TTL);
  expect(nodes.map((node) => node.count('acquire'))).toEqual([1, 1, 1]);
  await lock.release();
  const fixed = await acquireWithoutLast({ renew: false });
  await fixed.extend();
  await jest.advanceTimersByTimeAsync(TTL / 2);
  expect(nodes[2].requests).toEqual(['extend']);
  await fixed.release();
});

test('no node is asked to heal before a quorum has confirmed the renewal', async () => {
  const [, second, last] = nodes;
  const lock = await acquireWithoutLast();
  second.fate = { extend: ERROR };
  await jest.advanceTimersByTimeAsync(400);
  expect([lock.state, last.count('acquire')]).toEqual(['unconfirmed', 0]);
  second.fate = {};
  await jest.advanceTimersByTimeAsync(110);
  expect([lock.state, last.count('acquire')]).toEqual(['held', 1]);
  await lock.release();
});

test('a lock whose holder extends it more often than it is renewed is healed, too', async () => {
  const lock = await acquireWithoutLast();
  for (let extension = 0; extension < 4; extension++) {
    await lock.extend();
    await jest.advanceTimersByTimeAsync(100);
  }
  expect((await holdersAt(nodes[2])).map(({ id }) => id)).toEqual([lock.id]);
  await lock.release();
});

test('a node that refused because of a caller who soon gives up is asked again before the next renewal', async () => {
  const [, , last] = nodes;
  const lock = await acquireWithoutLast();
  await jest.advanceTimersByTimeAsync(320);
  const caller = await redlockOver([last]).acquire(['k'], {
    ttl: TTL,
    retry: NO_RETRY,
    renew: false,
    signals: [],
  });
  await jest.advanceTimersByTimeAsync(50);
  await caller.release();
  // The pauses are 40 and 80 ms long at most.
  await jest.advanceTimersByTimeAsync(125);
  expect([last.count('extend'), (await holdersAt(last)).map(({ id }) => id)]).toEqual([1, [lock.id]]);
  await lock.release();
});

test('no node is asked again after the lock is released or lost', async () => {
  const [, , last] = nodes;
  const other = await redlockOver([last]).acquire(['k'], {
    ttl: 10 * TTL,
    retry: NO_RETRY,
    renew: false,
    signals: [],
  });
  for (const end of [(lock: HeldLock) => lock.release(), (lock: HeldLock) => lock.lose('a test')]) {
    const lock = await acquire();
    await jest.advanceTimersByTimeAsync(340);
    await end(lock);
    last.requests.length = 0;
    await jest.advanceTimersByTimeAsync(TTL);
    expect(last.count('acquire')).toBe(0);
    await lock.release();
  }
  await other.release();
});

test('no node is asked again when its refusal is read after the lock was lost, or after the next healing began', async () => {
  const [, , last] = nodes;
  const other = await redlockOver([last]).acquire(['k'], {
    ttl: 10 * TTL,
    retry: NO_RETRY,
    renew: false,
    signals: [],
  });
  const lock = await acquire();
  last.fate = { acquire: 20 };
  last.requests.length = 0;
  await jest.advanceTimersByTimeAsync(340);
  lock.missedBy(0b100);
  // The refusals come after 20 ms, and a pause is at least 20 ms long, the next one at least 40 ms.
  await jest.advanceTimersByTimeAsync(75);
  expect(last.count('acquire')).toBe(3);
  lock.missedBy(0b100);
  lock.lose('a test');
  await jest.advanceTimersByTimeAsync(0);
  last.requests.length = 0;
  await jest.advanceTimersByTimeAsync(TTL);
  expect(last.count('acquire')).toBe(0);
  await Promise.all([lock.release(), other.release()]);
});

test('a node where another lease holds the lock is asked a few times for each renewal, and stores nothing', async () => {
  const [, , last] = nodes;
  const other = await redlockOver([last]).acquire(['k'], {
    ttl: 1.5 * TTL,
    retry: NO_RETRY,
    renew: false,
    signals: [],
  });
  const lock = await acquire();
  last.requests.length = 0;
  await jest.advanceTimersByTimeAsync(1_340);
  expect(last.count('extend')).toBe(4);
  // After the first request of each renewal the pauses are 40, 80, 160 ms and so on, or half of that.
  const asked = last.count('acquire') / 4;
  expect(asked).toBeGreaterThan(1);
  expect(asked).toBeLessThanOrEqual(5);
  expect((await holdersAt(last)).map(({ id }) => id)).toEqual([other.id]);
  await jest.advanceTimersByTimeAsync(TTL);
  expect((await holdersAt(last)).map(({ id }) => id)).toEqual([lock.id]);
  await lock.release();
});

test('a node that a restart guard keeps from voting is asked again when the guard ends', async () => {
  const [, , last] = nodes;
  const lock = await acquireWithoutLast({ ttl: 3 * TTL });
  const ends = performance.now() + 1_100;
  const right = last.acquire.bind(last);
  last.acquire = (requests, ordered, tell) => {
    const left = ends - performance.now();
    if (left <= 0) return right(requests, ordered, tell);
    requests.forEach((_, index) => tell(index, new GuardedNodeError(left)));
  };
  await jest.advanceTimersByTimeAsync(1_090);
  expect([last.count('extend'), await holdersAt(last)]).toEqual([1, []]);
  // The watchdog renews a lock with a ttl of 3 s up to 200 ms early, and the next renewal is due after 2 s.
  await jest.advanceTimersByTimeAsync(220);
  expect([last.count('extend'), (await holdersAt(last)).length]).toEqual([2, 1]);
  await lock.release();
});

test('no node stores a lock that is released or lost while it is asked to heal', async () => {
  const [first, second, last] = nodes;
  const released = await acquireWithoutLast();
  released.missedBy(0b100);
  await released.release();
  const lost = await acquireWithoutLast();
  lost.lose('a test');
  lost.missedBy(0b100);
  await jest.advanceTimersByTimeAsync(10);
  expect([last.count('acquire'), await holdersAt(last)]).toEqual([0, []]);
  await lost.release();
  for (const node of [first, second]) expect(await holdersAt(node)).toEqual([]);
});

test('a node that was healed keeps the lock for `minHold` and remembers its tick', async () => {
  const [, , last] = nodes;
  const tick = { schedule: 's', at: 1_000, life: 60_000, from: 'acquisition' } as const;
  const lock = await acquireWithoutLast({ minHold: 2 * TTL, tick });
  await jest.advanceTimersByTimeAsync(340);
  await lock.release();
  const [kept] = await holdersAt(last);
  expect([kept?.id, Math.round((kept?.remaining ?? 0) / 100)]).toEqual([lock.id, 17]);
  await jest.advanceTimersByTimeAsync(2 * TTL);
  await expect(
    redlockOver([last]).acquire(['k'], { ttl: TTL, retry: NO_RETRY, renew: true, signals: [], tick }),
  ).rejects.toMatchObject({
    ranTick: 1_000,
  });
});

test('a node that fails to store the lock is published, and no node whose request was not sent because the lock had ended', async () => {
  const told: unknown[] = [];
  const tell = (event: unknown): void => void told.push(event);
  const lock = await acquireWithoutLast();
  const [, , last] = nodes;
  subscribe(NODE_ERROR_CHANNEL, tell);
  for (const error of [ERROR, new NotSentError()]) {
    last.fate = { acquire: error };
    lock.missedBy(0b100);
    await jest.advanceTimersByTimeAsync(10);
  }
  unsubscribe(NODE_ERROR_CHANNEL, tell);
  expect(last.count('acquire')).toBe(2);
  expect(told).toEqual([{ node: last.name, error: ERROR }]);
  await lock.release();
});
