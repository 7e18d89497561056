import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { EXCLUSIVE, type LockKind } from '../../lib/core/lock-mode.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import { LockLostError } from '../../lib/core/errors.js';
import { HeldLock } from '../../lib/redlock/held-lock.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import { redlockOver } from '../support/core.js';
import { type ScriptedNode, scriptedNodes } from '../support/scripted-node.js';

// Fake timers keep both clocks: `setSystemTime` moves only the wall clock, so it shows a suspend of the machine as the
// process sees it. A ttl of 10 s has a validity of 9,898 ms and a renewal every 3,333 ms.
const TTL = 10_000;

let nodes: ScriptedNode[];
let redlock: Redlock;
/** Milliseconds by which the clock of each node is ahead. */
let ahead: number[];

beforeEach(() => {
  jest.useFakeTimers();
  nodes = scriptedNodes(3);
  ahead = [0, 0, 0];
  for (const [index, node] of nodes.entries())
    node.time = () => performance.timeOrigin + performance.now() + ahead[index]!;
  redlock = redlockOver(nodes);
});
afterEach(() => {
  jest.useRealTimers();
});

const pass = (milliseconds: number): Promise<void> => jest.advanceTimersByTimeAsync(milliseconds);

function acquire(key: string, renew: boolean, ttl = TTL): Promise<HeldLock> {
  return redlock.acquire([key], { ttl, retry: NO_RETRY, renew, signals: [] });
}

function moveWallClock(milliseconds: number): void {
  jest.setSystemTime(Date.now() + milliseconds);
}

describe('after a suspend of the machine (S29)', () => {
  test.each([true, false])('the loss is told within half a second of waking (`renew: %p`)', async (renew) => {
    const { signal } = await acquire('k', renew);
    await pass(100);
    moveWallClock(12_000);
    await pass(250);
    expect(signal.aborted).toBe(true);
    expect(jest.getTimerCount()).toBe(0);
  });

  test('a lock that is still valid is renewed at once', async () => {
    const lock = await acquire('k', true);
    await pass(100);
    moveWallClock(9_000);
    await pass(260);
    expect(lock.remaining()).toBeGreaterThan(9_500);
    await lock.release();
  });

  test('a lock that is not renewed is told as lost at the end of the validity by the wall clock', async () => {
    const { signal } = await acquire('k', false);
    moveWallClock(9_000);
    await pass(880);
    expect(signal.aborted).toBe(false);
    await pass(20);
    expect(signal.aborted).toBe(true);
  });

  test('a lock whose renewal has no answer yet is told as lost in time', async () => {
    const { signal } = await acquire('k', true);
    for (const node of nodes) node.fate = { extend: 'hang' };
    await pass(3_400);
    moveWallClock(6_000);
    await pass(498);
    expect(signal.aborted).toBe(true);
  });

  test('a lock that waits for the renewal of others is told as lost in time', async () => {
    const locks = await Promise.all(Array.from({ length: 600 }, (_, index) => acquire(`k${index}`, true)));
    const signals = locks.map(({ signal }) => signal);
    for (const node of nodes) node.fate = { extend: 'hang' };
    await pass(3_400);
    moveWallClock(6_000);
    await pass(498);
    expect(signals.every(({ aborted }) => aborted)).toBe(true);
  });

  test('the suspended time counts although the wall clock is set back afterwards', async () => {
    const lock = await acquire('k', false);
    moveWallClock(6_000);
    await pass(250);
    moveWallClock(-6_000);
    await pass(250);
    expect(lock.remaining()).toBeLessThanOrEqual(9_898 - 6_000 - 500);
    await lock.release();
  });

  test('the listener of a lost lock may release other locks, and all losses are told', async () => {
    const locks = await Promise.all(['a', 'b', 'c', 'd'].map((key) => acquire(key, false)));
    const [first, ...others] = locks as [HeldLock, ...HeldLock[]];
    first.signal.addEventListener('abort', () => void locks[1]!.release());
    const signals = others.slice(1).map(({ signal }) => signal);
    moveWallClock(12_000);
    await pass(250);
    expect(signals.map(({ aborted }) => aborted)).toEqual([true, true]);
  });
});

describe('after the wall clock was set back (S11)', () => {
  test.each([true, false])('a later suspend is told (`renew: %p`)', async (renew) => {
    const lock = await acquire('k', renew);
    const { signal } = lock;
    moveWallClock(-3_600_000);
    await pass(4_000);
    expect(lock.isHeld()).toBe(true);
    moveWallClock(12_000);
    await pass(250);
    expect(signal.aborted).toBe(true);
  });

  test('a lock whose request was on its way protects against a later suspend', async () => {
    for (const node of nodes) node.fate = { acquire: 40 };
    const acquiring = acquire('k', false);
    await pass(10);
    moveWallClock(-3_600_000);
    await pass(30);
    const { signal } = await acquiring;
    moveWallClock(12_000);
    await pass(250);
    expect(signal.aborted).toBe(true);
  });

  test('the validity ends as if the clock had not been set back', async () => {
    const { signal } = await acquire('k', false);
    await pass(1_000);
    moveWallClock(-3_600_000);
    await pass(8_890);
    expect(signal.aborted).toBe(false);
    await pass(10);
    expect(signal.aborted).toBe(true);
  });
});

describe('after a pause of both clocks (S29)', () => {
  function pauseSeenBy(...seeing: number[]): void {
    for (const index of seeing) ahead[index]! += 12_000;
  }

  test('the loss is told when the clocks of a quorum have shown the pause', async () => {
    const { signal } = await acquire('k', false);
    await pass(300);
    pauseSeenBy(0);
    await pass(300);
    expect(signal.aborted).toBe(false);
    pauseSeenBy(2);
    await pass(250);
    expect(signal.aborted).toBe(true);
  });

  test('the clock of one node of three that is set forward costs no lock', async () => {
    const lock = await acquire('k', true);
    pauseSeenBy(1);
    await pass(120_000);
    expect(lock.isHeld()).toBe(true);
    pauseSeenBy(2);
    await pass(1_000);
    expect(lock.isHeld()).toBe(true);
    await lock.release();
  });

  test('a lock whose acquisition shows the pause is valid, and an earlier lock is lost', async () => {
    const before = await acquire('before', false);
    pauseSeenBy(0, 1, 2);
    const after = await acquire('after', false);
    expect([before.isHeld(), after.isHeld()]).toEqual([false, true]);
    await pass(1_000);
    expect(after.remaining()).toBeGreaterThan(8_800);
    await after.release();
  });

  test('a shorter pause shortens the validity, once', async () => {
    const lock = await acquire('k', false);
    for (const index of [0, 1]) ahead[index]! += 3_000;
    await pass(300);
    ahead[2]! += 3_000;
    await pass(700);
    expect(lock.remaining()).toBeGreaterThan(5_800);
    expect(lock.remaining()).toBeLessThanOrEqual(5_898);
    await lock.release();
  });

  test('a suspend that the wall clock has shown is not counted again when the nodes show it', async () => {
    const lock = await acquire('k', false);
    moveWallClock(4_000);
    await pass(250);
    for (const index of ahead.keys()) ahead[index]! += 4_000;
    await pass(250);
    expect(lock.remaining()).toBeGreaterThan(5_300);
    await lock.release();
  });

  test('a node without a time is not compared, and then compared from its next time', async () => {
    const lock = await acquire('k', false);
    const times = nodes.map((node) => node.time);
    for (const node of nodes) node.time = () => undefined as unknown as number;
    await pass(250);
    for (const [index, node] of nodes.entries()) node.time = times[index]!;
    pauseSeenBy(0, 1, 2);
    await pass(1_000);
    expect(lock.isHeld()).toBe(true);
    pauseSeenBy(0, 1, 2);
    await pass(250);
    expect(lock.isHeld()).toBe(false);
  });

  test('a server clock that was set back shows a pause again after a minute', async () => {
    const lock = await acquire('k', true);
    for (const index of ahead.keys()) ahead[index]! -= 3_600_000;
    await pass(61_000);
    expect(lock.isHeld()).toBe(true);
    pauseSeenBy(0, 1, 2);
    await pass(250);
    expect(lock.isHeld()).toBe(false);
  });
});

describe('an acquisition whose own answer shows the loss of the lock around it (S29)', () => {
  /** The fate of the nodes that leaves time for a pause while the answer is on its way. */
  const slow = { acquire: 10 };
  const KINDS: [string, LockKind][] = [
    ['an exclusive lock', EXCLUSIVE],
    ['a permit', { mode: 'permits', permits: 3 }],
  ];

  function nested(outer: HeldLock, terms: Partial<AcquireTerms> = {}): Promise<HeldLock> {
    const signals = [outer.signal];
    return redlock.acquire(['nested'], { ttl: 10 * TTL, retry: NO_RETRY, renew: true, signals, ...terms });
  }

  async function expectNoneLeft(): Promise<void> {
    expect(redlock.held.size).toBe(0);
    expect(await Promise.all(nodes.map(({ memory }) => memory.read(['nested'])))).toEqual(
      nodes.map(() => [undefined]),
    );
    expect(jest.getTimerCount()).toBe(0);
  }

  test.each(KINDS)('leaves no lock behind when the loss ends the call: %s', async (_, kind) => {
    const outer = await acquire('outer', false);
    for (const node of nodes) node.fate = slow;
    const failed = nested(outer, { kind }).catch((error: unknown) => error);
    await pass(5);
    moveWallClock(12_000);
    await pass(5);
    expect(await failed).toBeInstanceOf(LockLostError);
    await expectNoneLeft();
  });

  test('leaves no lock behind when the call has waited in the queue', async () => {
    const other = redlockOver(nodes);
    const holder = await other.acquire(['nested'], {
      ttl: 10 * TTL,
      retry: NO_RETRY,
      renew: false,
      signals: [],
    });
    const outer = await acquire('outer', false);
    const retry = { timeout: 60_000, attempts: Infinity, delay: 200, jitter: 0 };
    const failed = nested(outer, { retry }).catch((error: unknown) => error);
    await pass(100);
    for (const node of nodes) node.fate = slow;
    await holder.release();
    await pass(5);
    moveWallClock(12_000);
    await pass(30);
    expect(await failed).toBeInstanceOf(LockLostError);
    await expectNoneLeft();
  });
});

test('while the clocks agree, the watch costs the same for any number of locks, and it ends with the last lock', async () => {
  const checks = ['overslept', 'setBack', 'remaining'] as const;
  const spies = checks.map((name) => jest.spyOn(HeldLock.prototype, name));
  const locks = await Promise.all(Array.from({ length: 100 }, (_, index) => acquire(`k${index}`, true)));
  for (const spy of spies) spy.mockClear();
  await pass(2_000);
  for (const spy of spies) expect(spy).not.toHaveBeenCalled();
  await Promise.all(locks.map((lock) => lock.release()));
  expect(jest.getTimerCount()).toBe(0);
  for (const spy of spies) spy.mockRestore();
});
