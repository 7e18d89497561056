import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { LockLostError, LockUnavailableError } from '../../../lib/core/errors.js';
import { Lease } from '../../../lib/core/lease.js';
import { EXCLUSIVE, type LockKind, SHARED } from '../../../lib/core/lock-mode.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import { NODE_ERROR_CHANNEL } from '../../../lib/core/lock-events.js';
import { readPass } from '../../../lib/core/pass.js';
import type { HeldKey } from '../../../lib/core/ports.js';
import type { HeldLock } from '../../../lib/redlock/held-lock.js';
import type { Adopt } from '../../../lib/redlock/thread/messages.js';
import type { AcquireTerms } from '../../../lib/redlock/redlock.js';
import { BEAT_MS } from '../../../lib/redlock/thread/liveness.js';
import { LockSlots, SLOTS_PER_BLOCK, TEXT_BYTES } from '../../../lib/redlock/thread/lock-slots.js';
import { redlockOver } from '../../support/core.js';
import { type ScriptedNode, scriptedNodes } from '../../support/scripted-node.js';
import { TwoThreads } from './two-threads.js';

// A ttl of 1000 ms has a validity of 988 ms, a renewal every 333 ms, and a time limit of 50 ms for each node.
const TTL = 1_000;
const MAX_BLOCKED = 3_000;
const AWAY = new Error('away');

let nodes: [ScriptedNode, ScriptedNode, ScriptedNode];
let threads: TwoThreads;

beforeEach(() => {
  // A real `setImmediate` runs after all timers of a turn, as in the event loop.
  jest.useFakeTimers({ doNotFake: ['setImmediate'] });
  nodes = scriptedNodes(3) as typeof nodes;
  threads = new TwoThreads(nodes);
  const { offer } = LockSlots.prototype;
  // A lock that is handed over by shared memory counts as a message, too.
  jest.spyOn(LockSlots.prototype, 'offer').mockImplementation(function (this: LockSlots, slot, text) {
    const isOffered = offer.call(this, slot, text);
    if (isOffered) threads.sent.push(JSON.parse(text) as Adopt);
    return isOffered;
  });
});
afterEach(() => {
  jest.restoreAllMocks();
  threads.end();
  jest.useRealTimers();
});

async function acquire(options: Partial<AcquireTerms> = {}, key = 'k'): Promise<HeldLock> {
  const request = { ttl: TTL, retry: NO_RETRY, renew: 'thread' as const, maxBlocked: MAX_BLOCKED };
  const lock = await threads.redlock.acquire([key], { ...request, signals: [], ...options });
  const lapses = lock.lapses.bind(lock);
  lock.lapses = () => threads.asTimer(lapses);
  return lock;
}

function extensions(of: readonly ScriptedNode[]): number {
  return of.reduce((sum, node) => sum + node.count('extend'), 0);
}

async function holdersAt(node: ScriptedNode, key = 'k'): Promise<readonly string[]> {
  const [state] = (await node.memory.read([key])) as (HeldKey | undefined)[];
  return (state?.holders ?? []).map(({ id }) => id);
}

const KINDS: [string, LockKind][] = [
  ['an exclusive lock', EXCLUSIVE],
  ['a shared lock', SHARED],
  ['a permit', { mode: 'permits', permits: 3 }],
];

test.each(KINDS)(
  '%s is renewed by the thread alone from the hand-over on, and its release frees all nodes (S9)',
  async (_, kind) => {
    threads.ready();
    const lock = await acquire({ kind });
    await jest.advanceTimersByTimeAsync(5 * TTL);
    expect([lock.isHeld(), lock.state, lock.signal.aborted]).toEqual([true, 'held', false]);
    expect(extensions(nodes)).toBe(0);
    expect(extensions(threads.nodes)).toBeGreaterThanOrEqual(3 * 14);
    await lock.release();
    for (const node of nodes) expect(await holdersAt(node)).toEqual([]);
    await jest.advanceTimersByTimeAsync(10);
    const before = extensions(threads.nodes);
    await jest.advanceTimersByTimeAsync(5 * TTL);
    expect(extensions(threads.nodes)).toBe(before);
  },
);

test('a lock that is acquired before the thread is ready is renewed by its holder, and then handed over', async () => {
  const lock = await acquire();
  await jest.advanceTimersByTimeAsync(TTL);
  expect(extensions(nodes)).toBeGreaterThan(0);
  threads.ready();
  const before = extensions(nodes);
  await jest.advanceTimersByTimeAsync(3 * TTL);
  expect([lock.isHeld(), extensions(nodes)]).toEqual([true, before]);
  await lock.release();
});

test('a lock is handed over only when no extension of its holder is under way (S9)', async () => {
  const lock = await acquire();
  nodes.forEach((node) => (node.fate = { extend: 40 }));
  await jest.advanceTimersByTimeAsync(340);
  expect(extensions(nodes)).toBe(3);
  threads.ready();
  expect(threads.sent).toEqual([]);
  await jest.advanceTimersByTimeAsync(40);
  expect(threads.sent.map(({ kind }) => kind)).toEqual(['block', 'adopt']);
  await lock.release();
});

test('the thread makes one extension of a lock at a time: `extend` of the holder waits for its renewal (S9)', async () => {
  threads.ready();
  const lock = await acquire();
  for (const node of threads.nodes) node.fate = { extend: 30 };
  const [first] = threads.nodes as [ScriptedNode];
  const extend = first.extend.bind(first);
  let underWay = 0;
  let most = 0;
  first.extend = (leases, ttl, tell) => {
    underWay += leases.length;
    most = Math.max(most, underWay);
    extend(leases, ttl, (index, reply) => {
      underWay--;
      tell(index, reply);
    });
  };
  await jest.advanceTimersByTimeAsync(340);
  expect(underWay).toBe(1);
  const extended = Promise.all([lock.extend(4 * TTL), lock.extend(5 * TTL)]);
  await jest.advanceTimersByTimeAsync(200);
  await extended;
  expect(most).toBe(1);
  expect(lock.remaining()).toBeGreaterThan(4 * TTL);
  expect(lock.ttl).toBe(5 * TTL);
  await lock.release();
});

test('a loss that the thread notices is told with its reason', async () => {
  threads.ready();
  const lock = await acquire();
  const { signal } = lock;
  for (const node of nodes) await node.memory.forceRelease('k', [lock.id]);
  await jest.advanceTimersByTimeAsync(350);
  expect(signal.reason).toBeInstanceOf(LockLostError);
  expect((signal.reason as Error).message).toContain('fewer than a quorum of nodes still store it');
});

function awayFor(...sides: (readonly ScriptedNode[])[]): void {
  for (const node of sides.flat()) node.fate = { extend: AWAY };
}

test('a failed renewal of both threads makes the lock unconfirmed, and the next one held', async () => {
  threads.ready();
  const lock = await acquire();
  awayFor(nodes, threads.nodes);
  await jest.advanceTimersByTimeAsync(350);
  expect(lock.state).toBe('unconfirmed');
  const failing = lock.extend().catch((error: unknown) => error);
  await jest.advanceTimersByTimeAsync(10);
  const failure = (await failing) as LockUnavailableError;
  expect(failure).toBeInstanceOf(LockUnavailableError);
  expect(failure.votes[0]).toEqual({ node: 'a', vote: 'error', error: AWAY });
  for (const node of nodes) node.fate = {};
  await jest.advanceTimersByTimeAsync(110);
  expect([lock.state, lock.isHeld()]).toEqual(['held', true]);
  // The nodes were away for both.
  expect(threads.outdone).toBe(0);
  await lock.release();
});

test('a holder renews its lock itself while only the thread does not reach the nodes, and then hands it over again', async () => {
  threads.ready();
  const lock = await acquire();
  awayFor(threads.nodes);
  await jest.advanceTimersByTimeAsync(5 * TTL);
  expect([lock.isHeld(), lock.state, lock.signal.aborted]).toEqual([true, 'held', false]);
  expect(extensions(nodes)).toBeGreaterThanOrEqual(3 * 7);
  expect(threads.outdone).toBeGreaterThan(0);
  for (const node of threads.nodes) node.fate = {};
  await jest.advanceTimersByTimeAsync(TTL);
  const before = extensions(nodes);
  await jest.advanceTimersByTimeAsync(5 * TTL);
  expect([lock.isHeld(), extensions(nodes)]).toEqual([true, before]);
  await lock.release();
  for (const node of nodes) expect(await holdersAt(node)).toEqual([]);
});

test('an error of a node in the thread is published as one of its holder', () => {
  const errors: unknown[] = [];
  const keep = (event: unknown): void => void errors.push(event);
  subscribe(NODE_ERROR_CHANNEL, keep);
  threads.host.receive({ kind: 'node-error', node: 'a', message: 'away' });
  unsubscribe(NODE_ERROR_CHANNEL, keep);
  expect(errors).toEqual([{ node: 'a', error: AWAY }]);
});

test('a holder renews its locks itself while the thread hangs, which is told, and hands over none until the thread answers', async () => {
  threads.ready();
  const lock = await acquire();
  await jest.advanceTimersByTimeAsync(TTL);
  threads.hang();
  await jest.advanceTimersByTimeAsync(10 * TTL);
  expect([lock.isHeld(), lock.state, threads.hangs]).toEqual([true, 'held', 1]);
  const adopted = (): number => threads.sent.filter(({ kind }) => kind === 'adopt').length;
  const another = await acquire({}, 'another');
  expect(adopted()).toBe(1);
  threads.goOn();
  await jest.advanceTimersByTimeAsync(TTL);
  expect(adopted()).toBe(3);
  const before = extensions(nodes);
  await jest.advanceTimersByTimeAsync(5 * TTL);
  expect([lock.isHeld(), another.isHeld(), extensions(nodes)]).toEqual([true, true, before]);
  await Promise.all([lock.release(), another.release()]);
});

test('a thread whose answer waits to be read after a blocked event loop is not told as one that hangs', async () => {
  threads.ready();
  const lock = await acquire({ ttl: 30 * TTL });
  threads.hang();
  void lock.extend(40 * TTL);
  // The holder takes the lock back, because the call was not answered.
  await jest.advanceTimersByTimeAsync(4 * TTL);
  expect(threads.sent.map(({ kind }) => kind)).toContain('return');
  threads.goOn();
  threads.isBlocked = true;
  await jest.advanceTimersByTimeAsync(10);
  // The timers that are due run in one turn of the event loop, before the messages that have arrived.
  jest.advanceTimersByTime(10 * TTL);
  threads.unblock();
  await jest.advanceTimersByTimeAsync(10);
  expect(threads.hangs).toBe(0);
  await lock.release();
});

test('the lease of a lock that was taken back does not end for the thread when the next lock of its slot is released', async () => {
  threads.ready();
  nodes[2].fate = { acquire: AWAY };
  const lock = await acquire();
  const healed = threads.nodes[2]!;
  healed.fate = { acquire: 'hang' };
  await jest.advanceTimersByTimeAsync(400);
  const lease = healed.leases.at(-1)!;
  expect(lease.id).toBe(lock.id);
  awayFor(threads.nodes);
  await jest.advanceTimersByTimeAsync(TTL / 3);
  const released: number[] = [];
  for (const key of ['b', 'c', 'd']) {
    await (await acquire({}, key)).release();
    const adopted = threads.sent.findLast(({ kind }) => kind === 'adopt') as { readonly slot: number };
    released.push(adopted.slot);
    await jest.advanceTimersByTimeAsync(10);
  }
  const slot = (threads.sent.find(({ kind }) => kind === 'adopt') as { readonly slot: number }).slot;
  expect(released).toContain(slot);
  expect([lock.isHeld(), lease.ended]).toEqual([true, false]);
  await lock.release();
});

test('a node that the thread was asked to heal before the lock was taken back does not keep a lock that is released at once (S27)', async () => {
  threads.ready();
  nodes[2].fate = { acquire: AWAY };
  const lock = await acquire();
  const late = heldBack(threads.nodes[2]!);
  await jest.advanceTimersByTimeAsync(400);
  awayFor(threads.nodes);
  // The thread notices it with its next renewal, and the lock is taken back at once.
  await jest.advanceTimersByTimeAsync(300);
  expect(threads.sent.map(({ kind }) => kind)).toContain('return');
  await lock.release();
  late.forEach((request) => request());
  expect(await holdersAt(nodes[2])).toEqual([lock.id]);
  await jest.advanceTimersByTimeAsync(TTL / 2);
  expect(await holdersAt(nodes[2])).toEqual([]);
});

test('a thread that hung sends nothing for a lock that was taken back meanwhile', async () => {
  threads.ready();
  const lock = await acquire();
  await jest.advanceTimersByTimeAsync(10);
  // Only messages do not arrive: the timers of the thread run before its messages.
  threads.isHanging = true;
  const late = threads.nodes.map((node) => heldBack(node, 'extend'));
  await jest.advanceTimersByTimeAsync(TTL);
  expect(lock.isHeld()).toBe(true);
  const before = late.flat().length;
  expect(before).toBeGreaterThan(0);
  await jest.advanceTimersByTimeAsync(2 * TTL);
  expect(late.flat()).toHaveLength(before);
  await lock.release();
});

test('a thread that hung asks no node again to store a lock that was taken back meanwhile, and is released (S27)', async () => {
  jest.spyOn(Math, 'random').mockReturnValue(0.99);
  threads.ready();
  nodes[2].fate = { acquire: AWAY };
  const lock = await acquire({ ttl: 3 * TTL });
  nodes[2].fate = {};
  const other = await redlockOver([nodes[2]], { owner: 'other' }).acquire(['k'], {
    ...{ ttl: 60 * TTL, retry: NO_RETRY, renew: false, signals: [] },
  });
  const away = threads.nodes[2]!;
  await until(() => away.count('acquire') > 0);
  awayFor(threads.nodes);
  const extended = lock.extend();
  await until(() => threads.sent.some(({ kind }) => kind === 'return'));
  // Only messages do not arrive: the timers of the thread run before its messages.
  threads.isHanging = true;
  await extended;
  await lock.release();
  const before = away.count('acquire');
  await jest.advanceTimersByTimeAsync(500);
  await other.release();
  await jest.advanceTimersByTimeAsync(TTL);
  expect(before).toBeGreaterThan(0);
  expect(await holdersAt(nodes[2])).toEqual([]);
});

async function until(isSo: () => boolean): Promise<void> {
  for (let count = 0; !isSo(); count++) {
    if (count > 10 * TTL) throw new Error('it does not become so');
    await jest.advanceTimersByTimeAsync(1);
  }
}

test('a holder that was blocked takes no lock back for a failed renewal that the thread has made up for meanwhile', async () => {
  threads.ready();
  const lock = await acquire();
  await jest.advanceTimersByTimeAsync(1);
  threads.isBlocked = true;
  awayFor(threads.nodes);
  await jest.advanceTimersByTimeAsync(350);
  for (const node of threads.nodes) node.fate = {};
  await jest.advanceTimersByTimeAsync(TTL);
  expect(threads.sent.map(({ kind }) => kind)).toEqual(['block', 'adopt', 'unconfirmed', 'held']);
  threads.unblock();
  expect(lock.state).toBe('held');
  await jest.advanceTimersByTimeAsync(TTL);
  expect(threads.sent.map(({ kind }) => kind)).not.toContain('return');
  await lock.release();
});

test('a thread that could not renew a lock once, and then can, is not told as one that does not reach the nodes', async () => {
  threads.ready();
  const lock = await acquire();
  for (let count = 0; count < 2; count++) {
    awayFor(threads.nodes);
    await jest.advanceTimersByTimeAsync(350);
    for (const node of threads.nodes) node.fate = {};
    await jest.advanceTimersByTimeAsync(2 * TTL);
  }
  expect(threads.sent.filter(({ kind }) => kind === 'return')).toHaveLength(2);
  expect([lock.isHeld(), threads.outdone]).toEqual([true, 0]);
  await lock.release();
});

test('a thread that reads a call of `extend` only after the lock was taken back does not extend the lock (S9)', async () => {
  threads.ready();
  const lock = await acquire();
  await jest.advanceTimersByTimeAsync(TTL / 2);
  threads.hang();
  const extended = lock.extend(4 * TTL);
  await jest.advanceTimersByTimeAsync(TTL);
  await extended;
  const ttls: number[] = [];
  for (const node of threads.nodes) node.extend = (_, ttl) => void ttls.push(ttl);
  threads.goOn();
  await jest.advanceTimersByTimeAsync(10);
  expect(ttls).not.toContain(4 * TTL);
  expect(lock.remaining()).toBeGreaterThan(2 * TTL);
  await lock.release();
});

test('a call of `extend` that the thread does not answer is made by the holder, long before the lock is due', async () => {
  threads.ready();
  const lock = await acquire({ ttl: 30 * TTL });
  threads.hang();
  const extended = lock.extend(40 * TTL);
  // A renewal takes 1.5 s at most, and the extension 2 s.
  await jest.advanceTimersByTimeAsync(4 * TTL);
  await extended;
  expect(extensions(nodes)).toBe(3);
  expect(lock.remaining()).toBeGreaterThan(38 * TTL);
  await lock.release();
});

test('calls of `extend` side by side, each as slow as a node may be, are no reason to take the lock back', async () => {
  threads.ready();
  const lock = await acquire();
  for (const node of threads.nodes) node.fate = { extend: 45 };
  const extended = Promise.all(Array.from({ length: 10 }, () => lock.extend(TTL)));
  await jest.advanceTimersByTimeAsync(TTL / 2);
  await extended;
  expect(threads.sent.map(({ kind }) => kind)).not.toContain('return');
  expect(extensions(nodes)).toBe(0);
  await lock.release();
});

test('a call of `extend` whose answer waits to be read after a blocked event loop is no reason to take the lock back', async () => {
  threads.ready();
  const lock = await acquire({ ttl: 30 * TTL });
  threads.isBlocked = true;
  const extended = lock.extend(40 * TTL);
  await jest.advanceTimersByTimeAsync(100);
  // The timers that are due run in one turn of the event loop, before the messages that have arrived.
  jest.advanceTimersByTime(5 * TTL);
  threads.unblock();
  await jest.advanceTimersByTimeAsync(10);
  await extended;
  expect(threads.sent.map(({ kind }) => kind)).not.toContain('return');
  expect(extensions(nodes)).toBe(0);
  await lock.release();
});

test('a pause of both clocks that the thread does not know, because it adopts the lock later, shortens the validity (S29)', async () => {
  threads.ready();
  // Whole milliseconds of one clock only: the end that the thread computes then differs by a fraction, as in other threads.
  await jest.advanceTimersByTimeAsync(0.7);
  const lock = await acquire();
  awayFor(nodes, threads.nodes);
  const before = lock.remaining();
  lock.overslept(400);
  await jest.advanceTimersByTimeAsync(300);
  expect(threads.sent.map(({ kind }) => kind)).toContain('adopt');
  expect(lock.remaining()).toBeLessThanOrEqual(before - 700);
  await lock.release();
});

test('a thread that becomes ready while the module closes is not used', async () => {
  const before = jest.getTimerCount();
  const closed = threads.host.close();
  threads.ready();
  threads.host.receive({ kind: 'closed' });
  await closed;
  const lock = await acquire();
  expect(threads.sent.map(({ kind }) => kind)).toEqual(['close']);
  await lock.release();
  await jest.advanceTimersByTimeAsync(10);
  expect(jest.getTimerCount()).toBe(before);
});

/** Keeps the requests to a node back, until the test makes them. */
function heldBack(node: ScriptedNode, what: 'acquire' | 'extend' = 'acquire'): (() => void)[] {
  const late: (() => void)[] = [];
  const method = node[what].bind(node) as (...args: unknown[]) => void;
  node[what] = (...args: unknown[]) => void late.push(() => method(...args));
  return late;
}

test('a lock that a thread renews is not detached, and stays with its handle', async () => {
  threads.ready();
  const lock = await acquire();
  const refused = lock.detach();
  await expect(refused).rejects.toMatchObject({ code: 'LOCK_NOT_DETACHED' });
  await expect(refused).rejects.toThrow("a thread renews it (`renew: 'thread'`)");
  expect(nodes.map((node) => node.count('exchange'))).toEqual([0, 0, 0]);
  await jest.advanceTimersByTimeAsync(5 * TTL);
  expect(lock.isHeld()).toBe(true);
  await lock.release();
});

test('the thread stores an attached lock on a node to which the lease from before came back, from its next renewal on (S26)', async () => {
  threads.ready();
  const pass = (await acquire({ renew: true })).detach();
  await jest.advanceTimersByTimeAsync(10);
  const { memory } = nodes[2];
  const [id = ''] = await holdersAt(nodes[2]);
  // Another attacher has this node for a moment, and gives it back.
  const [detached, other] = [id, undefined].map(
    (name) => new Lease(['k'], 'other', TTL, undefined, EXCLUSIVE, undefined, name),
  ) as [Lease, Lease];
  const terms = { since: Date.now(), limit: 50, guard: 0 };
  await memory.exchange({ ...terms, lease: other, replaces: [id] });
  const attaching = threads.redlock.attach(readPass(await pass), {
    ...{ renew: 'thread', maxBlocked: MAX_BLOCKED, signals: [] },
    retry: { timeout: 5_000, attempts: Infinity, delay: 50, jitter: 50 },
  });
  await jest.advanceTimersByTimeAsync(10);
  const attached = await attaching;
  await memory.exchange({ ...terms, lease: detached, replaces: [other.id] });
  expect(await holdersAt(nodes[2])).toEqual([id]);
  await jest.advanceTimersByTimeAsync(TTL / 2);
  expect(threads.sent.map(({ kind }) => kind)).toContain('adopt');
  expect(await holdersAt(nodes[2])).toEqual([attached.id]);
  await attached.release();
});

test('the thread does not renew past `maxHold`, and the error says so', async () => {
  threads.ready();
  const lock = await acquire({ maxHold: 2 * TTL });
  await jest.advanceTimersByTimeAsync(2 * TTL);
  expect(lock.isHeld()).toBe(true);
  await expect(lock.extend()).rejects.toMatchObject({ code: 'MAX_HOLD_REACHED' });
  await jest.advanceTimersByTimeAsync(TTL);
  expect(() => lock.assertHeld()).toThrow('its maxHold of 2000 ms had passed');
});

test('a lock with `minHold` is kept after its release, although the thread renewed it', async () => {
  threads.ready();
  const lock = await acquire({ minHold: 4 * TTL });
  await jest.advanceTimersByTimeAsync(2 * TTL);
  await lock.release();
  await jest.advanceTimersByTimeAsync(TTL);
  await expect(acquireAsOther()).rejects.toThrow('is held');
  await jest.advanceTimersByTimeAsync(2 * TTL);
  await expect(acquireAsOther()).resolves.toBeDefined();
});

test('a lock on several keys is kept on all of them, and its release frees them and leaves its tick on the nodes', async () => {
  threads.ready();
  const keys = ['k', 'l'];
  const tick = { schedule: 'daily', at: 5_000, life: 20 * TTL, from: 'release' } as const;
  const terms = { ttl: TTL, retry: NO_RETRY, renew: 'thread', maxBlocked: MAX_BLOCKED, signals: [] } as const;
  const lock = await threads.redlock.acquire(keys, { ...terms, tick });
  await jest.advanceTimersByTimeAsync(5 * TTL);
  for (const key of keys) for (const node of nodes) expect(await holdersAt(node, key)).toEqual([lock.id]);
  await lock.release();
  for (const key of keys) for (const node of nodes) expect(await holdersAt(node, key)).toEqual([]);
  await expect(threads.redlock.acquire(keys, { ...terms, tick })).rejects.toMatchObject({ ranTick: 5_000 });
});

function acquireAsOther(): Promise<HeldLock> {
  return redlockOver(nodes, { owner: 'other' }).acquire(['k'], {
    ...{ ttl: TTL, retry: NO_RETRY, renew: false, signals: [] },
  });
}

test('a holder that is blocked for less than maxBlocked keeps its lock, and finds it held in its first statement', async () => {
  threads.ready();
  const lock = await acquire();
  await jest.advanceTimersByTimeAsync(1);
  threads.isBlocked = true;
  await jest.advanceTimersByTimeAsync(MAX_BLOCKED - 500);
  expect(lock.remaining()).toBeGreaterThan(TTL / 2);
  threads.unblock();
  await jest.advanceTimersByTimeAsync(5 * TTL);
  expect(lock.isHeld()).toBe(true);
  await lock.release();
});

test('the thread leaves out the renewals of a holder that is blocked for maxBlocked, and goes on when the holder runs again', async () => {
  threads.ready();
  const lock = await acquire({ ttl: 6 * TTL });
  threads.isBlocked = true;
  await jest.advanceTimersByTimeAsync(MAX_BLOCKED + 500);
  const before = extensions(threads.nodes);
  await jest.advanceTimersByTimeAsync(3 * TTL);
  expect(extensions(threads.nodes)).toBe(before);
  threads.unblock();
  await jest.advanceTimersByTimeAsync(6 * TTL);
  expect([lock.isHeld(), lock.signal.aborted]).toEqual([true, false]);
  expect(extensions(threads.nodes)).toBeGreaterThan(before);
  await lock.release();
});

test('the thread renews a lock again that it has left out, although it looks for signs of life between its looks for other locks, too', async () => {
  threads.ready();
  const lock = await acquire({ ttl: 6 * TTL });
  // Renewed every 200 ms, so between any two looks of the thread, which come every 250 ms.
  const other = await acquire({ ttl: 600, maxBlocked: 60 * TTL }, 'other');
  threads.isBlocked = true;
  await jest.advanceTimersByTimeAsync(MAX_BLOCKED + 1_500);
  const ends = lock.remaining();
  threads.unblock();
  await jest.advanceTimersByTimeAsync(3 * BEAT_MS);
  expect(lock.remaining()).toBeGreaterThan(ends);
  expect([lock.isHeld(), other.isHeld()]).toEqual([true, true]);
  expect(threads.sent.map(({ kind }) => kind)).not.toContain('return');
  await Promise.all([lock.release(), other.release()]);
});

test('a lock of a holder that is blocked for longer ends, and the error says why', async () => {
  threads.ready();
  const lock = await acquire();
  threads.isBlocked = true;
  await jest.advanceTimersByTimeAsync(MAX_BLOCKED + 2 * TTL);
  expect(lock.isHeld()).toBe(false);
  expect(() => lock.assertHeld()).toThrow(
    'the event loop was blocked for longer than its maxBlocked of 3000 ms',
  );
});

test('a lock of a holder that is blocked for ever is granted two thirds of a ttl after maxBlocked at the earliest, and a ttl after it at the latest', async () => {
  threads.ready();
  await acquire();
  threads.isBlocked = true;
  const since = performance.now();
  const granted = async (): Promise<boolean> => {
    await jest.advanceTimersByTimeAsync(10);
    return acquireAsOther().then(
      () => true,
      () => false,
    );
  };
  while (!(await granted()));
  const took = performance.now() - since;
  // The thread may have seen the last sign of life a moment before the block, or after its begin.
  expect(took).toBeGreaterThan(MAX_BLOCKED + (2 / 3) * TTL - BEAT_MS);
  expect(took).toBeLessThan(MAX_BLOCKED + TTL + BEAT_MS + 20);
});

test('a holder takes its locks back when the thread ends, and goes on with an extension under way', async () => {
  threads.ready();
  const lock = await acquire();
  await jest.advanceTimersByTimeAsync(TTL);
  for (const node of threads.nodes) node.fate = { extend: 'hang' };
  const extending = lock.extend(5 * TTL);
  await jest.advanceTimersByTimeAsync(5);
  threads.die();
  await jest.advanceTimersByTimeAsync(5);
  await extending;
  expect(lock.remaining()).toBeGreaterThan(4 * TTL);
  await jest.advanceTimersByTimeAsync(5 * TTL);
  expect([lock.isHeld(), lock.state]).toEqual([true, 'held']);
  expect(extensions(nodes)).toBeGreaterThan(0);
  await lock.release();
});

test('a slot is used again only after the thread has given it up', async () => {
  threads.ready();
  for (const pause of [0, 10, 0]) {
    const lock = await acquire();
    // The thread adopts it.
    await jest.advanceTimersByTimeAsync(2);
    await lock.release();
    await jest.advanceTimersByTimeAsync(pause);
  }
  const [first, second, third] = slotsUsed();
  expect(second).not.toBe(first);
  expect([first, second]).toContain(third);
});

function slotsUsed(): number[] {
  return threads.sent.flatMap((message) => (message.kind === 'adopt' ? [message.slot] : []));
}

test('a lock that is released before the thread looks costs no message, and its slot is used again at once', async () => {
  threads.ready();
  for (const key of ['a', 'b']) {
    const lock = await acquire({ ttl: 30 * TTL }, key);
    await jest.advanceTimersByTimeAsync(1);
    await lock.release();
  }
  expect(threads.sent.map(({ kind }) => kind)).toEqual(['block', 'adopt', 'adopt']);
  const [first, second] = slotsUsed();
  expect(second).toBe(first);
  await jest.advanceTimersByTimeAsync(30 * TTL);
  expect(extensions(threads.nodes)).toBe(0);
});

test('a call of `extend` that the thread reads after the release does not extend the next lock of the slot', async () => {
  threads.ready();
  const lock = await acquire({ ttl: 30 * TTL });
  const extended = lock.extend(60 * TTL).catch((error: unknown) => error);
  await lock.release();
  expect(await extended).toBeInstanceOf(LockLostError);
  await acquire({ ttl: 30 * TTL }, 'another');
  await jest.advanceTimersByTimeAsync(TTL);
  const [first, second] = slotsUsed();
  expect(second).toBe(first);
  expect(extensions(threads.nodes)).toBe(0);
});

test('the release of a lost lock, which the thread reads late, does not end the next lock of the slot', async () => {
  threads.ready();
  const lost = [await acquire({}, 'a'), await acquire({}, 'b')];
  await jest.advanceTimersByTimeAsync(2);
  threads.hang();
  for (const lock of lost) lock.lose('a test');
  for (const lock of lost) void lock.release();
  await jest.advanceTimersByTimeAsync(1);
  // The thread reads the two losses, and then the two releases, one in each millisecond.
  threads.goOn();
  await jest.advanceTimersByTimeAsync(1);
  const next = await acquire();
  const [first, , third] = slotsUsed();
  expect(third).toBe(first);
  await jest.advanceTimersByTimeAsync(5 * TTL);
  expect(next.isHeld()).toBe(true);
  // The thread renews it, and not its holder.
  expect(extensions(nodes)).toBe(0);
  const another = await acquire({}, 'another');
  expect(new Set(slotsUsed().slice(2)).size).toBe(2);
  await another.release();
  await next.release();
});

test('a lock whose holder blocks its event loop in the turn of the acquisition is kept', async () => {
  threads.ready();
  const lock = await acquire({ ttl: 3 * TTL, maxBlocked: 60 * TTL });
  threads.isBlocked = true;
  await jest.advanceTimersByTimeAsync(15 * TTL);
  expect(lock.isHeld()).toBe(true);
  expect(extensions(nodes)).toBe(0);
  threads.unblock();
  await lock.release();
});

test('a lock whose keys are too long for a slot is handed over by a message', async () => {
  threads.ready();
  const lock = await acquire({}, 'я'.repeat(TEXT_BYTES / 2));
  expect(LockSlots.prototype.offer).toHaveReturnedWith(false);
  await jest.advanceTimersByTimeAsync(5 * TTL);
  expect([lock.isHeld(), extensions(nodes)]).toEqual([true, 0]);
  await lock.release();
  await jest.advanceTimersByTimeAsync(10);
  expect(threads.sent.map(({ kind }) => kind)).toEqual(['block', 'adopt', 'end', 'dropped']);
});

test('more locks than a block of slots has are all renewed', async () => {
  threads.ready();
  const locks = await Promise.all(
    Array.from({ length: SLOTS_PER_BLOCK + 1 }, (_, index) => acquire({}, `key ${index}`)),
  );
  await jest.advanceTimersByTimeAsync(3 * TTL);
  expect(locks.every((lock) => lock.isHeld())).toBe(true);
  expect(extensions(nodes)).toBe(0);
  await Promise.all(locks.map((lock) => lock.release()));
});

const ENDS: [string, (lock: HeldLock) => Promise<void>][] = [
  ['a released lock', (lock) => lock.release()],
  [
    'a lock that is released after its loss',
    async (lock) => {
      lock.lose('a test');
      await jest.advanceTimersByTimeAsync(10);
      await lock.release();
    },
  ],
  [
    'a lock that is released after a loss that the thread noticed',
    async (lock) => {
      for (const node of nodes) await node.memory.forceRelease('k', [lock.id]);
      await jest.advanceTimersByTimeAsync(350);
      expect(lock.signal.reason).toBeInstanceOf(LockLostError);
      await lock.release();
    },
  ],
];

test.each(ENDS)('a node that the thread heals late does not keep %s (S15)', async (_, end) => {
  threads.ready();
  const [, , last] = nodes;
  last.fate = { acquire: AWAY };
  const lock = await acquire();
  // The requests to heal reach the server only before the next release on the connection of the thread.
  const away = threads.nodes[2]!;
  const late = heldBack(away);
  const release = away.release.bind(away);
  away.release = (requests, tell) => {
    late.splice(0).forEach((request) => request());
    release(requests, tell);
  };
  await jest.advanceTimersByTimeAsync(400);
  expect(late.length).toBeGreaterThan(0);
  await end(lock);
  await jest.advanceTimersByTimeAsync(10);
  expect(late).toHaveLength(0);
  for (const node of nodes) expect(await holdersAt(node)).toEqual([]);
});

test('a node that the thread healed before it ended does not keep a lock that is released at once (S27)', async () => {
  threads.ready();
  nodes[2].fate = { acquire: AWAY };
  const lock = await acquire();
  const late = heldBack(threads.nodes[2]!);
  await jest.advanceTimersByTimeAsync(400);
  threads.die();
  await lock.release();
  late.forEach((request) => request());
  expect(await holdersAt(nodes[2])).toEqual([lock.id]);
  await jest.advanceTimersByTimeAsync(TTL / 2);
  expect(await holdersAt(nodes[2])).toEqual([]);
});

test('the slot of a lost lock that nobody releases is used again when no node can store the lock any more', async () => {
  threads.ready();
  nodes[2].fate = { acquire: AWAY };
  const lock = await acquire();
  await jest.advanceTimersByTimeAsync(400);
  lock.lose('a test');
  await jest.advanceTimersByTimeAsync(TTL);
  const dropped = (): number => threads.sent.filter(({ kind }) => kind === 'dropped').length;
  expect(dropped()).toBe(0);
  await jest.advanceTimersByTimeAsync(2 * TTL);
  expect(dropped()).toBe(1);
  await lock.release();
  await jest.advanceTimersByTimeAsync(10);
  expect(dropped()).toBe(1);
});

test('a lock that is handed over unconfirmed is held after the first renewal of the thread', async () => {
  const lock = await acquire();
  for (const node of nodes) node.fate = { extend: AWAY };
  await jest.advanceTimersByTimeAsync(350);
  expect(lock.state).toBe('unconfirmed');
  threads.ready();
  await jest.advanceTimersByTimeAsync(120);
  expect(threads.sent.map(({ kind }) => kind)).toContain('adopt');
  expect(lock.state).toBe('held');
  await lock.release();
});

test('a loss ends a call of `extend` that the thread does not answer', async () => {
  threads.ready();
  const lock = await acquire();
  for (const node of threads.nodes) node.fate = { extend: 'hang' };
  const extending = lock.extend().catch((error: unknown) => error);
  await jest.advanceTimersByTimeAsync(5);
  lock.lose('a test');
  await jest.advanceTimersByTimeAsync(0);
  expect(await extending).toBe(lock.loss);
});

test('the end of the thread at a shutdown ends all calls of `extend`', async () => {
  threads.ready();
  const lock = await acquire();
  for (const node of threads.nodes) node.fate = { extend: 'hang' };
  const extending = lock.extend(5 * TTL);
  await jest.advanceTimersByTimeAsync(5);
  void threads.host.close();
  await jest.advanceTimersByTimeAsync(5);
  await expect(extending).resolves.toBeUndefined();
  await lock.release();
});

test('a block that is over does not explain a later loss', async () => {
  threads.ready();
  const lock = await acquire({ ttl: 20 * TTL });
  threads.isBlocked = true;
  await jest.advanceTimersByTimeAsync(12 * TTL);
  threads.unblock();
  // The call reaches the thread before the thread sees that its holder runs again.
  const extended = lock.extend();
  await jest.advanceTimersByTimeAsync(10);
  await extended;
  await jest.advanceTimersByTimeAsync(TTL);
  awayFor(nodes, threads.nodes);
  await jest.advanceTimersByTimeAsync(21 * TTL);
  expect(() => lock.assertHeld()).toThrow('its validity ran out before a quorum renewed it');
});
