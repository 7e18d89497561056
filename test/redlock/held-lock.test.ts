import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { LockLostError, LockUnavailableError } from '../../lib/core/errors.js';
import type { HeldLock } from '../../lib/redlock/held-lock.js';
import { LOCK_STATE_CHANNEL, type LockStateEvent } from '../../lib/core/lock-events.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import { redlockOver } from '../support/core.js';
import { type ScriptedNode, scriptedNodes } from '../support/scripted-node.js';

// A ttl of 1000 ms has a validity of 988 ms, a renewal every 333 ms, and a time limit of 50 ms for each node.
const TTL = 1_000;

let nodes: ScriptedNode[];

beforeEach(() => {
  jest.useFakeTimers();
  nodes = scriptedNodes(3);
});
afterEach(() => {
  jest.useRealTimers();
});

function acquire(renew = true): Promise<HeldLock> {
  return redlockOver(nodes).acquire(['k'], { ttl: TTL, retry: NO_RETRY, renew, signals: [] });
}

function extensions(): number[] {
  return nodes.map((node) => node.count('extend'));
}

describe('validity', () => {
  test('the validity of a lock is the ttl minus the clock drift, counted from the first request (S4)', async () => {
    for (const node of nodes) node.fate = { acquire: 40 };
    const acquiring = acquire();
    await jest.advanceTimersByTimeAsync(40);
    const lock = await acquiring;
    expect(lock.remaining()).toBeCloseTo(988 - 40, 3);
    await lock.release();
  });

  test('a lock that is not renewed is lost at the end of its validity, and `signal`, `isHeld` and `assertHeld` report the loss (S10)', async () => {
    const lock = await acquire(false);
    const { signal } = lock;
    await jest.advanceTimersByTimeAsync(987);
    expect([lock.isHeld(), signal.aborted]).toEqual([true, false]);
    await jest.advanceTimersByTimeAsync(2);
    expect([lock.isHeld(), signal.aborted, lock.remaining()]).toEqual([false, true, 0]);
    expect(signal.reason).toBeInstanceOf(LockLostError);
    expect(() => lock.assertHeld()).toThrow(signal.reason as Error);
    expect((signal.reason as Error).message).toBe(
      'The lock on "k" is lost: its validity ran out before a quorum renewed it (ttl 1000 ms). Stop the work that it protects.',
    );
  });

  test('a lock is lost at the end of its validity, even while a blocked thread delays the timer (S10)', async () => {
    const lock = await acquire();
    const { signal } = lock;
    jest.setSystemTime(Date.now() + 2_000);
    expect(lock.isHeld()).toBe(false);
    expect(() => lock.assertHeld()).toThrow(LockLostError);
    expect(signal.aborted).toBe(true);
  });

  test('a signal that is first read after the end of the validity is already aborted', async () => {
    const lock = await acquire(false);
    await jest.advanceTimersByTimeAsync(TTL);
    expect(lock.signal.reason).toBeInstanceOf(LockLostError);
  });
});

describe('the watchdog', () => {
  test('the watchdog extends a lock on all nodes every third of the ttl', async () => {
    const lock = await acquire();
    await jest.advanceTimersByTimeAsync(332);
    expect(extensions()).toEqual([0, 0, 0]);
    await jest.advanceTimersByTimeAsync(10 * TTL);
    for (const count of extensions()) expect(count).toBeGreaterThanOrEqual(29);
    for (const count of extensions()) expect(count).toBeLessThanOrEqual(32);
    expect(lock.isHeld()).toBe(true);
    await lock.release();
  });

  test('the watchdog does not renew a lock with `renew: false`', async () => {
    await acquire(false);
    await jest.advanceTimersByTimeAsync(2 * TTL);
    expect(extensions()).toEqual([0, 0, 0]);
  });

  test('the watchdog stops when the lock is released or lost, and leaves no timer (S9)', async () => {
    const released = await acquire();
    await released.release();
    expect(jest.getTimerCount()).toBe(0);
    const lost = await acquire();
    lost.lose('for a test');
    expect(jest.getTimerCount()).toBe(0);
  });

  test('the watchdog keeps the lock while a minority of nodes is down', async () => {
    const lock = await acquire();
    nodes[2]!.fate = { extend: new Error('down') };
    await jest.advanceTimersByTimeAsync(5 * TTL);
    expect(lock.isHeld()).toBe(true);
    await lock.release();
  });

  test('the watchdog counts the new validity from the time when it sent the extension (S9)', async () => {
    const lock = await acquire();
    for (const node of nodes) node.fate = { extend: 30 };
    await jest.advanceTimersByTimeAsync(334 + 30);
    expect(lock.remaining()).toBeGreaterThan(988 - 35);
    expect(lock.remaining()).toBeLessThanOrEqual(988 - 30);
    await lock.release();
  });

  test('the watchdog retries soon, with one request at a time, when no quorum confirms a renewal', async () => {
    const lock = await acquire();
    for (const node of nodes) node.fate = { extend: 'hang' };
    await jest.advanceTimersByTimeAsync(900);
    // The first request is sent at 333 ms. A later request follows after the time limit of 50 ms and a pause of 100 ms.
    expect(extensions()).toEqual([4, 4, 4]);
    for (const node of nodes) node.fate = {};
    await jest.advanceTimersByTimeAsync(TTL);
    expect(lock.isHeld()).toBe(true);
    await lock.release();
  });

  test('the watchdog reports the loss at the end of validity when a majority of nodes hangs (S10)', async () => {
    const lock = await acquire();
    const { signal } = lock;
    for (const node of nodes.slice(1)) node.fate = { extend: 'hang' };
    await jest.advanceTimersByTimeAsync(986);
    expect(signal.aborted).toBe(false);
    await jest.advanceTimersByTimeAsync(4);
    expect(signal.aborted).toBe(true);
  });

  test('the watchdog reports the loss at the next renewal when a majority of nodes no longer has the lock', async () => {
    const lock = await acquire();
    const { signal } = lock;
    for (const node of nodes.slice(1)) await node.memory.close();
    await jest.advanceTimersByTimeAsync(335);
    expect(signal.aborted).toBe(true);
    expect((signal.reason as Error).message).toContain('fewer than a quorum of nodes still store it');
  });

  test('the watchdog accepts a confirmation that comes after the time limit, and counts the validity from the confirmed request (S9)', async () => {
    // Every answer misses the time limit of 50 ms.
    for (const node of nodes) node.fate = { extend: 80 };
    const lock = await acquire();
    await jest.advanceTimersByTimeAsync(333 + 60);
    expect([lock.state, lock.remaining()]).toEqual(['unconfirmed', expect.closeTo(988 - 393, 0)]);
    await jest.advanceTimersByTimeAsync(30);
    expect([lock.state, lock.remaining()]).toEqual(['held', expect.closeTo(988 - 90, 0)]);
    // The next renewal is due a third of the ttl after the request that was confirmed late.
    await jest.advanceTimersByTimeAsync(200);
    expect(extensions()).toEqual([1, 1, 1]);
    await jest.advanceTimersByTimeAsync(3 * TTL);
    expect(lock.isHeld()).toBe(true);
    await lock.release();
  });

  test('the watchdog ignores a late confirmation by too few nodes, or for a released lock', async () => {
    const [a, b, c] = nodes as [ScriptedNode, ScriptedNode, ScriptedNode];
    a.fate = { extend: 80 };
    for (const node of [b, c]) node.fate = { extend: 'hang' };
    const lock = await acquire();
    await jest.advanceTimersByTimeAsync(333 + 90);
    expect([lock.state, lock.remaining()]).toEqual(['unconfirmed', expect.closeTo(988 - 423, 0)]);
    b.fate = { extend: 80 };
    await jest.advanceTimersByTimeAsync(120);
    await lock.release();
    await jest.advanceTimersByTimeAsync(TTL);
    expect([lock.state, jest.getTimerCount()]).toEqual(['released', 0]);
  });

  test('the watchdog does not revive a lost lock when a confirmation comes after the end of validity (S9)', async () => {
    const lock = await acquire();
    const node = nodes[0]!;
    for (const each of nodes) {
      const extend = each.extend.bind(each);
      each.extend = (leases, ttl, tell) =>
        extend(leases, ttl, (index, reply) => {
          // The thread is blocked for longer than the rest of the validity while the reply is under way.
          if (each === node) jest.setSystemTime(Date.now() + 700);
          tell(index, reply);
        });
    }
    await jest.advanceTimersByTimeAsync(335);
    expect(lock.isHeld()).toBe(false);
  });
});

describe('the state', () => {
  const events: LockStateEvent[] = [];
  const listener = (message: unknown): void => {
    events.push(message as LockStateEvent);
  };
  beforeEach(() => {
    events.length = 0;
    subscribe(LOCK_STATE_CHANNEL, listener);
  });
  afterEach(() => {
    unsubscribe(LOCK_STATE_CHANNEL, listener);
  });

  test('a lock is unconfirmed after a failed renewal, and held again after a successful renewal', async () => {
    const lock = await acquire();
    const { id, fencingToken } = lock;
    for (const node of nodes) node.fate = { extend: new Error('cut') };
    await jest.advanceTimersByTimeAsync(340);
    expect([lock.state, lock.isHeld(), lock.signal.aborted]).toEqual(['unconfirmed', true, false]);
    for (const node of nodes) node.fate = {};
    await jest.advanceTimersByTimeAsync(110);
    expect(lock.state).toBe('held');
    await lock.release();
    expect(events.map(({ state }) => state)).toEqual(['unconfirmed', 'held', 'released']);
    expect(events[0]).toMatchObject({ keys: ['k'], id, fencingToken, owner: 'me' });
    expect(events[0]!.error?.message).toContain('a: cut');
    expect(events[0]!.remaining).toBeGreaterThan(600);
  });

  test('a lock goes from unconfirmed to lost at the end of the validity (S10)', async () => {
    const lock = await acquire();
    for (const node of nodes) node.fate = { extend: 'hang' };
    await jest.advanceTimersByTimeAsync(990);
    expect(lock.state).toBe('lost');
    expect(events.map(({ state }) => state)).toEqual(['unconfirmed', 'lost']);
    expect(events[1]).toMatchObject({ remaining: 0, error: { code: 'LOCK_LOST' } });
  });
});

describe('extend', () => {
  test('`extend` gives the lock at least the new ttl, and later renewals use that ttl', async () => {
    const lock = await acquire();
    await lock.extend(6_000);
    expect(lock.remaining()).toBeCloseTo(6_000 - 62, 0);
    await jest.advanceTimersByTimeAsync(1_990);
    expect(extensions()).toEqual([1, 1, 1]);
    await jest.advanceTimersByTimeAsync(20);
    expect(extensions()).toEqual([2, 2, 2]);
    expect(lock.remaining()).toBeGreaterThan(5_900);
    await lock.release();
  });

  test('`extend` never shortens the validity of a lock', async () => {
    const lock = await acquire(false);
    await lock.extend(100);
    expect(lock.remaining()).toBeCloseTo(988, 0);
    await jest.advanceTimersByTimeAsync(900);
    expect(nodes[0]!.count('extend')).toBe(1);
    const intruder = redlockOver(nodes, { owner: 'x' });
    await expect(
      intruder.acquire(['k'], { ttl: TTL, retry: NO_RETRY, renew: false, signals: [] }),
    ).rejects.toMatchObject({ code: 'LOCK_HELD' });
  });

  test('`extend` rejects without a quorum, names the errors of the nodes, and leaves the lock held', async () => {
    const lock = await acquire(false);
    nodes[0]!.fate = { extend: new Error('reset') };
    nodes[1]!.fate = { extend: new Error('reset') };
    const error = await lock.extend().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect((error as Error).message).toContain('a: reset');
    expect(lock.isHeld()).toBe(true);
  });

  test('`extend` rejects with LockLostError, and asks no node, when the lock is lost or released', async () => {
    const lost = await acquire(false);
    await jest.advanceTimersByTimeAsync(TTL);
    await expect(lost.extend()).rejects.toThrow('its validity ran out');
    const released = await acquire(false);
    await released.release();
    await expect(released.extend()).rejects.toThrow('it was released');
    expect(extensions()).toEqual([0, 0, 0]);
  });

  test('`extend` rejects with LockLostError when a majority of nodes no longer has the lock', async () => {
    const lock = await acquire(false);
    for (const node of nodes) await node.memory.close();
    await expect(lock.extend()).rejects.toBeInstanceOf(LockLostError);
    expect(lock.signal.aborted).toBe(true);
  });

  test('`extend` waits until an earlier extension of the lock has ended (S9)', async () => {
    const lock = await acquire(false);
    for (const node of nodes) node.fate = { extend: 20 };
    const both = Promise.all([lock.extend(), lock.extend()]);
    await jest.advanceTimersByTimeAsync(19);
    expect(extensions()).toEqual([1, 1, 1]);
    await jest.advanceTimersByTimeAsync(21);
    await both;
    expect(extensions()).toEqual([2, 2, 2]);
  });

  test('`extend` rejects a ttl that is longer than the restart guard (S12)', async () => {
    const lock = await redlockOver(nodes, { guard: TTL }).acquire(['k'], {
      ttl: TTL,
      retry: NO_RETRY,
      renew: false,
      signals: [],
    });
    await expect(lock.extend(TTL + 1)).rejects.toThrow('at most the `restartGuard` of 1000 ms');
    expect(extensions()).toEqual([0, 0, 0]);
    await lock.extend(TTL);
  });

  test.each([[5], [1.5], ['1s']])('`extend` refuses the invalid ttl %p', async (ttl) => {
    const lock = await acquire(false);
    await expect(lock.extend(ttl as number)).rejects.toThrow(
      'Expected `ttl` to be a whole number of milliseconds',
    );
  });
});

describe('maxHold', () => {
  function hold(maxHold: number, renew = true): Promise<HeldLock> {
    return redlockOver(nodes).acquire(['k'], { ttl: TTL, retry: NO_RETRY, renew, maxHold, signals: [] });
  }

  test('maxHold stops renewals, and the lock is lost at the end of its ttl, with an error that names maxHold', async () => {
    const lock = await hold(1_500);
    const { signal } = lock;
    await jest.advanceTimersByTimeAsync(1_500);
    const renewals = extensions();
    expect(renewals).toEqual([4, 4, 4]);
    expect([lock.state, signal.aborted]).toEqual(['held', false]);
    await jest.advanceTimersByTimeAsync(Math.floor(lock.remaining()) - 1);
    expect(signal.aborted).toBe(false);
    await jest.advanceTimersByTimeAsync(3);
    expect([lock.state, signal.aborted]).toEqual(['lost', true]);
    expect(lock.loss?.message).toContain('its maxHold of 1500 ms had passed');
    expect(extensions()).toEqual(renewals);
    expect(jest.getTimerCount()).toBe(0);
  });

  test('maxHold prevents further renewals, even when a late confirmation comes after maxHold', async () => {
    // Renewals are sent at 333, 483, 633 and 783 ms. The first one is confirmed at 933 ms, after maxHold.
    for (const node of nodes) node.fate = { extend: 600 };
    const lock = await hold(900);
    await jest.advanceTimersByTimeAsync(934);
    expect([lock.state, lock.remaining()]).toEqual(['held', expect.closeTo(988 - 601, 0)]);
    expect(extensions()).toEqual([4, 4, 4]);
    await jest.advanceTimersByTimeAsync(3 * TTL);
    expect([lock.state, extensions()]).toEqual(['lost', [4, 4, 4]]);
  });

  test('maxHold counts from the time when the request for the lock was sent', async () => {
    for (const node of nodes) node.fate = { acquire: 40 };
    const acquiring = hold(334 + 20);
    await jest.advanceTimersByTimeAsync(40);
    const lock = await acquiring;
    await jest.advanceTimersByTimeAsync(2 * TTL);
    expect(extensions()).toEqual([1, 1, 1]);
    expect(lock.state).toBe('lost');
  });

  test('a manual extension fails after maxHold, and the lock keeps its remaining time', async () => {
    const lock = await hold(500, false);
    await lock.extend();
    await jest.advanceTimersByTimeAsync(500);
    await expect(lock.extend()).rejects.toMatchObject({
      code: 'MAX_HOLD_REACHED',
      message: expect.stringContaining(
        'The lock on "k" is not extended: its `maxHold` of 500 ms has passed, and the lock ends in 488 ms.',
      ),
    });
    expect([lock.isHeld(), extensions()]).toEqual([true, [1, 1, 1]]);
    await jest.advanceTimersByTimeAsync(490);
    expect(lock.state).toBe('lost');
  });

  test('when missing answers cause the loss of a lock, the error does not name maxHold', async () => {
    const lock = await hold(900);
    for (const node of nodes) node.fate = { extend: 'hang' };
    await jest.advanceTimersByTimeAsync(TTL);
    expect(lock.loss?.message).toContain('before a quorum renewed it');
  });

  test('maxHold does not affect a lock that is released before maxHold has passed', async () => {
    const lock = await hold(400);
    await jest.advanceTimersByTimeAsync(600);
    await lock.release();
    expect(lock.loss).toBeUndefined();
    expect(jest.getTimerCount()).toBe(0);
  });
});

describe('release', () => {
  test('`release` frees the lock on all nodes, and a second call does nothing (S7)', async () => {
    const lock = await acquire();
    await Promise.all([lock.release(), lock.release()]);
    await lock.release();
    expect(nodes.map((node) => node.count('release'))).toEqual([1, 1, 1]);
    await (await acquire()).release();
  });

  test('`release` ends the lock without aborting its signal', async () => {
    const lock = await acquire();
    const { signal } = lock;
    await lock.release();
    await jest.advanceTimersByTimeAsync(2 * TTL);
    expect(signal.aborted).toBe(false);
    expect(lock.isHeld()).toBe(false);
    expect(() => lock.assertHeld()).toThrow('it was released');
  });

  test('`release` resolves when a quorum of nodes has confirmed', async () => {
    const lock = await acquire();
    nodes[0]!.fate = { release: 'hang' };
    await expect(lock.release()).resolves.toBeUndefined();
  });

  test.each([
    ['hangs', 'hang' as const],
    ['fails', new Error('down')],
  ])('`release` resolves within the time limit of a node when every node %s', async (_what, fate) => {
    const lock = await acquire();
    for (const node of nodes) node.fate = { release: fate };
    const released = lock.release();
    await jest.advanceTimersByTimeAsync(51);
    await expect(released).resolves.toBeUndefined();
  });

  test('`release` of a lost lock asks all nodes, and keeps the LockLostError of the lock', async () => {
    const lock = await acquire(false);
    await jest.advanceTimersByTimeAsync(TTL);
    await lock.release();
    expect(nodes.map((node) => node.count('release'))).toEqual([1, 1, 1]);
    expect(lock.loss).toBeInstanceOf(LockLostError);
  });

  test('`release` runs at the end of a block with `await using`', async () => {
    {
      await using lock = await acquire();
      expect(lock.isHeld()).toBe(true);
    }
    expect(nodes.map((node) => node.count('release'))).toEqual([1, 1, 1]);
  });

  test('`release` ends the lease before it asks the nodes, so that no late renewal starts (S15)', async () => {
    const lock = await acquire();
    void lock.release();
    expect(nodes[0]!.leases[0]!.ended).toBe(true);
    await lock.release();
  });
});
