import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { HeldLock } from '../../lib/redlock/held-lock.js';
import { NODE_ERROR_CHANNEL, type NodeErrorEvent } from '../../lib/core/lock-events.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import type { Redlock } from '../../lib/redlock/redlock.js';
import { Watchdog } from '../../lib/redlock/watchdog.js';
import { releaseOn } from '../support/ask-store.js';
import { redlockOver } from '../support/core.js';
import { type ScriptedNode, scriptedNodes } from '../support/scripted-node.js';

// A ttl of 1000 ms has a validity of 988 ms, a renewal every 333 ms, and a time limit of 50 ms for each node.
const TTL = 1_000;

interface Request {
  readonly at: number;
  readonly ids: readonly string[];
  readonly ttl: number;
}

let nodes: ScriptedNode[];
let redlock: Redlock;
/** Extension requests to the first node. */
let requests: Request[];

beforeEach(() => {
  jest.useFakeTimers();
  nodes = scriptedNodes(3);
  redlock = redlockOver(nodes);
  requests = [];
  const [first] = nodes as [ScriptedNode];
  const extend = first.extend.bind(first);
  first.extend = (leases, ttl, tell) => {
    requests.push({ at: performance.now(), ids: leases.map(({ id }) => id), ttl });
    extend(leases, ttl, tell);
  };
});
afterEach(() => {
  jest.useRealTimers();
});

function acquire(key: string, ttl = TTL): Promise<HeldLock> {
  return redlock.acquire([key], { ttl, retry: NO_RETRY, renew: true, signals: [] });
}

function acquireMany(count: number): Promise<HeldLock[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => acquire(`k${index}`)));
}

function release(locks: readonly HeldLock[]): Promise<unknown> {
  return Promise.all(locks.map((lock) => lock.release()));
}

/** Replaces the node's answers for one lock. */
function answerFor(node: ScriptedNode, { id }: HeldLock, answer: () => Promise<boolean>): void {
  const extend = node.extend.bind(node);
  node.extend = (leases, ttl, tell) =>
    extend(leases, ttl, (index, reply) => {
      if (leases[index]?.id !== id) return tell(index, reply);
      answer().then(
        (extended) => tell(index, extended),
        (error: Error) => tell(index, error),
      );
    });
}

describe('the watchdog', () => {
  test('the watchdog sends each node one request to renew all locks that are due at the same time', async () => {
    const locks = await acquireMany(200);
    await jest.advanceTimersByTimeAsync(340);
    expect(nodes.map((node) => node.count('extend'))).toEqual([200, 200, 200]);
    expect(requests).toHaveLength(1);
    expect(requests[0]!.ids).toEqual(locks.map(({ id }) => id));
    await jest.advanceTimersByTimeAsync(10 * TTL);
    expect(requests.length).toBeLessThanOrEqual(32);
    expect(locks.every((lock) => lock.isHeld())).toBe(true);
    await release(locks);
  });

  test('the watchdog merges the renewals of locks that were acquired one after another, and renews no lock far too early', async () => {
    const locks: HeldLock[] = [];
    const asked = new Map<string, number[]>();
    for (let index = 0; index < 100; index++) {
      const lock = await acquire(`k${index}`);
      locks.push(lock);
      asked.set(lock.id, [performance.now()]);
      await jest.advanceTimersByTimeAsync(3);
    }
    await jest.advanceTimersByTimeAsync(5 * TTL);
    const last = requests.filter(({ at }) => at > performance.now() - TTL);
    // Batches are a thirtieth of the ttl apart, so ten of them fit into a third of the ttl.
    expect(last.length).toBeLessThanOrEqual(33);
    for (const { at, ids } of requests) for (const id of ids) asked.get(id)!.push(at);
    for (const times of asked.values()) {
      const pauses = times.slice(1).map((at, index) => at - times[index]!);
      expect(Math.min(...pauses)).toBeGreaterThan(TTL / 4);
      expect(Math.max(...pauses)).toBeLessThan(TTL / 3 + 5);
    }
    await release(locks);
  });

  test('the watchdog keeps a separate batch for each ttl', async () => {
    const locks = [await acquire('a', TTL), await acquire('b', 3 * TTL), await acquire('c', TTL)];
    const [a, b, c] = locks.map(({ id }) => id);
    await jest.advanceTimersByTimeAsync(700);
    expect(requests).toMatchObject([
      { ttl: TTL, ids: [a, c] },
      { ttl: TTL, ids: [a, c] },
    ]);
    await jest.advanceTimersByTimeAsync(320);
    expect(requests.slice(2)).toContainEqual(expect.objectContaining({ ttl: 3 * TTL, ids: [b] }));
    await release(locks);
  });

  test('the watchdog moves a lock that is extended with a shorter ttl to a new batch', async () => {
    const locks = await acquireMany(2);
    await locks[0]!.extend(300);
    await jest.advanceTimersByTimeAsync(110);
    expect(requests.slice(1)).toMatchObject([{ ttl: 300, ids: [locks[0]!.id] }]);
    await release(locks);
  });

  test('the watchdog makes at least three attempts before a lock with a ttl of 500 ms lapses', async () => {
    const lock = await acquire('k', 500);
    for (const node of nodes) node.fate = { extend: 'hang' };
    await jest.advanceTimersByTimeAsync(490);
    expect(requests.length).toBeGreaterThanOrEqual(3);
    expect(lock.state).not.toBe('held');
    await lock.release();
  });
});

describe('more locks than fit into one request', () => {
  // This ttl has a validity of 9,898 ms, a renewal every 3,333 ms, and a time limit of 500 ms for each node.
  const LONG_TTL = 10_000;
  const AT_ONCE = 250;

  /** The node answers one lock after the other, and needs a millisecond for each. */
  function slowDown(node: ScriptedNode): void {
    const extend = node.extend.bind(node);
    let idleAt = 0;
    node.extend = (leases, ttl, tell) =>
      extend(leases, ttl, (index, reply) => {
        idleAt = Math.max(idleAt, performance.now()) + 1;
        setTimeout(() => tell(index, reply), idleAt - performance.now());
      });
  }

  async function holdMany(count: number, ttl = LONG_TTL): Promise<HeldLock[]> {
    nodes.splice(1);
    redlock = redlockOver(nodes);
    return Promise.all(Array.from({ length: count }, (_, index) => acquire(`k${index}`, ttl)));
  }

  test('all locks stay held on a slow node, because each request has its own time limit', async () => {
    const locks = await holdMany(1_500);
    slowDown(nodes[0]!);
    await jest.advanceTimersByTimeAsync(3 * LONG_TTL);
    expect(locks.filter((lock) => !lock.isHeld())).toEqual([]);
    const [first, second] = requests as [Request, Request];
    expect(Math.max(...requests.map(({ ids }) => ids.length))).toBe(AT_ONCE);
    expect(second.at).toBeGreaterThanOrEqual(first.at + AT_ONCE);
    await release(locks);
  });

  test('a manual extension is sent between two requests of the watchdog', async () => {
    const locks = await holdMany(3 * AT_ONCE);
    slowDown(nodes[0]!);
    await jest.advanceTimersByTimeAsync(3_400);
    expect(requests).toHaveLength(1);
    const extending = locks[AT_ONCE]!.extend(60_000);
    await jest.advanceTimersByTimeAsync(AT_ONCE);
    await extending;
    expect(requests.map(({ ids }) => ids.length)).toEqual([AT_ONCE, 1, AT_ONCE]);
    await jest.advanceTimersByTimeAsync(LONG_TTL);
    await release(locks);
  });

  test('the watchdog renews all locks except those that are released or extended before their request is sent', async () => {
    const locks = await holdMany(3 * AT_ONCE);
    slowDown(nodes[0]!);
    await jest.advanceTimersByTimeAsync(3_400);
    const [released, extended] = [locks[AT_ONCE + 1]!, locks.at(-1)!];
    await Promise.all([released.release(), extended.extend(), jest.advanceTimersByTimeAsync(2_000)]);
    const ids = requests.flatMap((request) => request.ids);
    expect(ids).not.toContain(released.id);
    expect(ids.filter((id) => id === extended.id)).toHaveLength(1);
    expect(new Set(ids).size).toBe(locks.length - 1);
    await release(locks);
  });

  test('when no node answers, each lock reports its loss by the end of validity, even if no renewal was sent for it (S10)', async () => {
    // A request has 250 locks and takes 50 ms, its time limit. The validity ends before the last request is sent.
    const locks = await holdMany(4_000, TTL);
    nodes[0]!.fate = { extend: 'hang' };
    const signals = locks.map(({ signal }) => signal);
    await jest.advanceTimersByTimeAsync(980);
    expect(signals.some(({ aborted }) => aborted)).toBe(false);
    await jest.advanceTimersByTimeAsync(10);
    expect(signals.every(({ aborted }) => aborted)).toBe(true);
    expect(requests.flatMap(({ ids }) => ids).length).toBeLessThan(locks.length);
    // Now the time limit of the last request has ended.
    await jest.advanceTimersByTimeAsync(50);
    expect(jest.getTimerCount()).toBe(0);
  });

  test('each lock reports its loss in time after the wall clock jumped forward (S10)', async () => {
    const locks = await holdMany(2 * AT_ONCE, TTL);
    nodes[0]!.fate = { extend: 'hang' };
    const signals = locks.map(({ signal }) => signal);
    jest.setSystemTime(Date.now() + 620);
    // At the renewal the wall clock leaves 34 ms of the validity. The time limit of the first request is 50 ms.
    await jest.advanceTimersByTimeAsync(334 + 37);
    expect(signals.every(({ aborted }) => aborted)).toBe(true);
  });
});

describe('timers', () => {
  test('one timer serves all locks while no renewal fails, one looks at the clocks, and no timer is left after the last release', async () => {
    const locks = await acquireMany(50);
    expect(jest.getTimerCount()).toBe(2);
    await jest.advanceTimersByTimeAsync(2 * TTL);
    expect(jest.getTimerCount()).toBe(2);
    const last = locks.pop()!;
    await release(locks);
    expect(jest.getTimerCount()).toBe(2);
    await last.release();
    expect(jest.getTimerCount()).toBe(0);
  });

  test('one timer serves all locks with `renew: false`, and reports the end of each validity (S10)', async () => {
    const locks: HeldLock[] = [];
    for (let index = 0; index < 20; index++) {
      const terms = { ttl: TTL, retry: NO_RETRY, renew: false, signals: [] };
      locks.push(await redlock.acquire([`k${index}`], terms));
      await jest.advanceTimersByTimeAsync(1);
    }
    expect(jest.getTimerCount()).toBe(2);
    const signals = locks.map(({ signal }) => signal);
    await jest.advanceTimersByTimeAsync(988 - 20 - 1);
    for (const signal of signals) {
      expect(signal.aborted).toBe(false);
      await jest.advanceTimersByTimeAsync(1);
    }
    await jest.advanceTimersByTimeAsync(2);
    expect(signals.every(({ aborted }) => aborted)).toBe(true);
    expect(requests).toEqual([]);
    expect(jest.getTimerCount()).toBe(0);
  });

  test('the timer of the watchdog fires earlier when a new lock is due for renewal before all other locks', async () => {
    const slow = await acquire('slow', 60_000);
    const quick = await acquire('quick', TTL);
    await jest.advanceTimersByTimeAsync(340);
    expect(requests).toMatchObject([{ ttl: TTL }]);
    await release([slow, quick]);
  });

  test('besides the timers for renewals and clocks, each unconfirmed lock has its own timer for the end of validity until it is confirmed (S10)', async () => {
    const locks = await acquireMany(10);
    for (const node of nodes) node.fate = { extend: 'hang' };
    await jest.advanceTimersByTimeAsync(340 + 50);
    expect(locks.map(({ state }) => state)).toEqual(locks.map(() => 'unconfirmed'));
    expect(jest.getTimerCount()).toBe(12);
    for (const node of nodes) node.fate = {};
    await jest.advanceTimersByTimeAsync(110);
    expect(locks.map(({ state }) => state)).toEqual(locks.map(() => 'held'));
    expect(jest.getTimerCount()).toBe(2);
    await release(locks);
  });
});

describe('each lock of a batch', () => {
  test('in a batch of renewals, only a lock that a majority of nodes no longer stores is lost (S9)', async () => {
    const locks = await acquireMany(5);
    const gone = locks[3]!;
    for (const node of nodes.slice(1)) await releaseOn(node.memory, gone.lease);
    await jest.advanceTimersByTimeAsync(340);
    expect(locks.map(({ state }) => state)).toEqual(['held', 'held', 'held', 'lost', 'held']);
    expect(gone.loss?.message).toContain('fewer than a quorum of nodes still store it');
    await jest.advanceTimersByTimeAsync(2 * TTL);
    expect(requests.at(-1)!.ids).toHaveLength(4);
    await release(locks);
  });

  test('in a batch of renewals, a lock without answers does not delay the other locks, and reports its own loss in time (S9, S10)', async () => {
    const locks = await acquireMany(3);
    const [, stuck] = locks as [HeldLock, HeldLock];
    for (const node of nodes.slice(1)) answerFor(node, stuck, () => new Promise(() => {}));
    await jest.advanceTimersByTimeAsync(336);
    const remaining = locks.map((lock) => Math.round(lock.remaining() / 100) * 100);
    expect(remaining).toEqual([1_000, 700, 1_000]);
    await jest.advanceTimersByTimeAsync(50);
    expect(locks.map(({ state }) => state)).toEqual(['held', 'unconfirmed', 'held']);
    await jest.advanceTimersByTimeAsync(988 - 386 + 2);
    expect(locks.map(({ state }) => state)).toEqual(['held', 'lost', 'held']);
    await release(locks);
  });

  test('a lock of a batch is renewed without delay though one node never answers (S9)', async () => {
    const locks = await acquireMany(20);
    nodes[2]!.fate = { extend: 'hang' };
    await jest.advanceTimersByTimeAsync(336);
    for (const lock of locks) expect(lock.remaining()).toBeGreaterThan(980);
    await jest.advanceTimersByTimeAsync(5 * TTL);
    expect(locks.every((lock) => lock.isHeld())).toBe(true);
    await release(locks);
  });

  test('a lock of a batch reports the loss by the end of its own validity when no node answers (S10)', async () => {
    const locks = [await acquire('a')];
    await jest.advanceTimersByTimeAsync(20);
    locks.push(await acquire('b'));
    for (const node of nodes) node.fate = { extend: 'hang' };
    const aborted = locks.map(({ signal }) => signal);
    await jest.advanceTimersByTimeAsync(988 - 20 - 1);
    expect(aborted.map((signal) => signal.aborted)).toEqual([false, false]);
    await jest.advanceTimersByTimeAsync(3);
    expect(aborted.map((signal) => signal.aborted)).toEqual([true, false]);
    await jest.advanceTimersByTimeAsync(20);
    expect(aborted.map((signal) => signal.aborted)).toEqual([true, true]);
    expect(jest.getTimerCount()).toBe(0);
  });

  test('a lock is lost without a request when the thread was blocked until after its validity (S10)', async () => {
    const locks = await acquireMany(3);
    jest.setSystemTime(Date.now() + 2_000);
    await jest.advanceTimersByTimeAsync(340);
    expect(locks.map(({ state }) => state)).toEqual(['lost', 'lost', 'lost']);
    expect(requests).toEqual([]);
  });

  test('a lock reports the loss in time when the thread was blocked until shortly before the end of validity (S10)', async () => {
    const lock = await acquire('k');
    for (const node of nodes) node.fate = { extend: 'hang' };
    jest.setSystemTime(Date.now() + 640);
    // At the renewal the wall clock leaves 15 ms of the validity. The time limit of a node is 50 ms.
    await jest.advanceTimersByTimeAsync(334);
    expect(lock.signal.aborted).toBe(false);
    await jest.advanceTimersByTimeAsync(16);
    expect(lock.signal.aborted).toBe(true);
  });

  test('a lock that is released while its batch is being renewed stays released', async () => {
    const locks = await acquireMany(3);
    for (const node of nodes) node.fate = { extend: 30 };
    await jest.advanceTimersByTimeAsync(340);
    await locks[1]!.release();
    await jest.advanceTimersByTimeAsync(TTL);
    expect(locks.map(({ state }) => state)).toEqual(['held', 'released', 'held']);
    expect(nodes.map((node) => node.memory.size)).toEqual([2, 2, 2]);
    expect(requests.at(-1)!.ids).toEqual([locks[0]!.id, locks[2]!.id]);
    await release(locks);
  });

  test('the watchdog does not renew a lock that the abort listener of another lock in the same batch has released', async () => {
    const locks = await acquireMany(3);
    const [first, second, third] = locks as [HeldLock, HeldLock, HeldLock];
    const extended: Promise<unknown>[] = [];
    first.signal.addEventListener('abort', () => {
      extended.push(second.release(), third.extend());
    });
    // The watchdog finds that the validity of the first lock has ended.
    jest.spyOn(first, 'remaining').mockReturnValue(0);
    await jest.advanceTimersByTimeAsync(340);
    await Promise.all(extended);
    expect(locks.map(({ state }) => state)).toEqual(['lost', 'released', 'held']);
    expect(requests.map(({ ids }) => ids)).toEqual([[third.id]]);
    await third.release();
  });
});

describe('a manual extension and a renewal of the same lock (S9: one at a time)', () => {
  test('a manual extension waits until a running renewal of the lock has ended', async () => {
    const locks = await acquireMany(2);
    for (const node of nodes) node.fate = { extend: 20 };
    await jest.advanceTimersByTimeAsync(340);
    const extending = locks[0]!.extend(5_000);
    await jest.advanceTimersByTimeAsync(5);
    expect(requests).toHaveLength(1);
    await jest.advanceTimersByTimeAsync(40);
    await extending;
    expect(requests.slice(1)).toMatchObject([{ ttl: 5_000, ids: [locks[0]!.id] }]);
    await release(locks);
  });

  test('the watchdog leaves out a lock that is being extended manually', async () => {
    const locks = await acquireMany(2);
    for (const node of nodes) node.fate = { extend: 20 };
    await jest.advanceTimersByTimeAsync(325);
    const extending = locks[0]!.extend();
    await jest.advanceTimersByTimeAsync(15);
    expect(requests.map(({ ids }) => ids)).toEqual([[locks[0]!.id], [locks[1]!.id]]);
    await jest.advanceTimersByTimeAsync(15);
    await extending;
    await jest.advanceTimersByTimeAsync(TTL);
    expect(locks.every((lock) => lock.isHeld())).toBe(true);
    await release(locks);
  });

  test('concurrent extensions of a lock run in the order of their calls', async () => {
    const lock = await acquire('k');
    for (const node of nodes) node.fate = { extend: 10 };
    const all = Promise.all([1_500, 2_500, 3_500].map((ttl) => lock.extend(ttl)));
    await jest.advanceTimersByTimeAsync(35);
    await all;
    expect(requests.map(({ ttl }) => ttl)).toEqual([1_500, 2_500, 3_500]);
    await lock.release();
  });

  test('the watchdog renews a lock soon after a manual extension of the lock has failed', async () => {
    const lock = await acquire('k');
    for (const node of nodes) node.fate = { extend: new Error('cut') };
    await expect(lock.extend()).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    for (const node of nodes) node.fate = {};
    await jest.advanceTimersByTimeAsync(110);
    expect([lock.state, requests.length]).toEqual(['held', 2]);
    await lock.release();
  });
});

describe('a renewal that fails on a node', () => {
  let errors: NodeErrorEvent[];
  const keep = (event: unknown): void => void errors.push(event as NodeErrorEvent);

  beforeEach(() => {
    errors = [];
    subscribe(NODE_ERROR_CHANNEL, keep);
  });
  afterEach(() => {
    unsubscribe(NODE_ERROR_CHANNEL, keep);
  });

  test('the error of a node that fails a renewal is published once for each node and batch', async () => {
    const [, second, third] = nodes as [ScriptedNode, ScriptedNode, ScriptedNode];
    const locks = await acquireMany(200);
    second.fate.extend = new Error('READONLY');
    third.fate.extend = 'hang';
    await jest.advanceTimersByTimeAsync(400);
    expect(errors.map(({ node, error }) => `${node}: ${error.message}`)).toEqual([
      'b: READONLY',
      'c: no answer within 50 ms',
    ]);
    // The watchdog repeats unconfirmed renewals sooner than after a third of the ttl.
    second.fate.extend = third.fate.extend = 0;
    await jest.advanceTimersByTimeAsync(TTL);
    expect(errors).toHaveLength(2);
    await release(locks);
  });

  test('the error of a node that fails a renewal is published even if it comes after a quorum has decided', async () => {
    const [, , third] = nodes as [ScriptedNode, ScriptedNode, ScriptedNode];
    const lock = await acquire('k');
    answerFor(third, lock, () => new Promise((_, reject) => setTimeout(() => reject(new Error('late')), 40)));
    await jest.advanceTimersByTimeAsync(400);
    expect(errors).toEqual([{ node: 'c', error: new Error('late') }]);
    await lock.release();
  });

  test('the error of a node that fails a manual extension is published', async () => {
    const [first] = nodes as [ScriptedNode];
    const lock = await acquire('k');
    first.fate.extend = new Error('OOM');
    await lock.extend();
    expect(errors).toEqual([{ node: 'a', error: new Error('OOM') }]);
    await lock.release();
  });
});

test('a call that is due at once gets no timer below zero, of which newer versions of Node warn', () => {
  let later = 0;
  jest.spyOn(performance, 'now').mockImplementation(() => later++);
  const timers = jest.spyOn(globalThis, 'setTimeout');
  new Watchdog(undefined).plan({} as HeldLock, TTL, 0, true);
  expect(timers.mock.calls.map(([, delay]) => delay)).toEqual([0]);
  jest.restoreAllMocks();
});
