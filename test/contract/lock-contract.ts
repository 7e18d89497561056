import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import { LockHeldError, LockLostError } from '../../lib/core/errors.js';
import type { HeldLock } from '../../lib/redlock/held-lock.js';
import { EXCLUSIVE, type LockKind } from '../../lib/core/lock-mode.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import { readPass } from '../../lib/core/pass.js';
import type { AttachTerms } from '../../lib/redlock/attach.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import type { Tick } from '../../lib/core/tick.js';
import { redlockOver } from '../support/core.js';
import { until } from '../support/until.js';
import type { LockStore } from '../../lib/core/ports.js';

/** Nodes on which the contract is tested. */
export interface Backend {
  /** Connects one more simulated process to the nodes. */
  nodes(): Promise<readonly LockStore[]>;
  /** Number of locked keys on all nodes together. */
  countKeys(): Promise<number>;
  stop(): Promise<void>;
}

/** Settings that differ between kinds of node. */
export interface LockContractOptions {
  /**
   * The ttl in milliseconds of locks that a test lets expire: short enough to wait for, long enough for a busy machine
   * to acquire such a lock, and not shorter than the store allows.
   * @defaultValue 300
   */
  readonly lapse?: number;

  /**
   * Leaves out tests that take seconds and have the same result with every client library.
   * @defaultValue false
   */
  readonly quick?: boolean;
}

/** Milliseconds; so long that no lock expires by accident, even if the machine stands still for a moment. */
const TTL = 60_000;

const once: AcquireTerms = { ttl: TTL, retry: NO_RETRY, renew: true, signals: [] };
const waiting: AcquireTerms = {
  ...once,
  retry: { timeout: 50_000, attempts: Infinity, delay: 5, jitter: 5 },
};

/**
 * Tests the behaviour of locks, which is the same on every kind and number of nodes.
 *
 * @param kind - the kind of the locks: one permit must behave like an exclusive lock, except for ticks, which permits do not have
 */
export function lockContract(
  name: string,
  start: () => Promise<Backend>,
  kind: LockKind = EXCLUSIVE,
  { lapse = 300, quick = false }: LockContractOptions = {},
): void {
  describe(`the contract of ${kind === EXCLUSIVE ? 'a lock' : 'one permit'} on ${name}`, () => {
    let backend: Backend;
    let alice: Redlock;
    let bob: Redlock;
    let nextKey = 0;

    beforeAll(async () => {
      backend = await start();
      alice = await newProcess('alice');
      bob = await newProcess('bob');
    });
    afterAll(async () => {
      await Promise.all([alice.close(), bob.close()]);
      await backend.stop();
    });

    async function newProcess(owner: string): Promise<Redlock> {
      const nodes = await backend.nodes();
      // The timeout is long: a single attempt must succeed, even if the machine or a server stands still for a moment.
      const redlock = redlockOver(nodes, { owner, nodeTimeout: TTL / 5 });
      const acquire = redlock.acquire.bind(redlock);
      redlock.acquire = (keys, options) => acquire(keys, { ...options, kind });
      return redlock;
    }

    function freshKey(): string {
      return `key:${nextKey++}`;
    }

    /** Waits until no key is locked, because a release may end in the background. The keys would expire much later. */
    async function expectNoKeyLeft(): Promise<void> {
      await until(async () => (await backend.countKeys()) === 0, TTL / 2);
    }

    test('refuses a second caller, and the error names the holder and the remaining time', async () => {
      const key = freshKey();
      const lock = await alice.acquire([key], once);
      const refusal = await bob.acquire([key], once).catch((error: unknown) => error);
      expect(refusal).toBeInstanceOf(LockHeldError);
      expect(refusal).toMatchObject({ code: 'LOCK_HELD', keys: [key], owner: 'alice' });
      expect((refusal as LockHeldError).retryAfter).toBeGreaterThan(TTL / 6);
      expect((refusal as LockHeldError).retryAfter).toBeLessThanOrEqual(TTL);
      await lock.release();
      await (await bob.acquire([key], once)).release();
      await expectNoKeyLeft();
    });

    test('refuses a second caller in the same process', async () => {
      const key = freshKey();
      await using lock = await alice.acquire([key], once);
      await expect(alice.acquire([key], once)).rejects.toBeInstanceOf(LockHeldError);
      expect(lock.isHeld()).toBe(true);
    });

    test('a lock on one key does not prevent a lock on another key', async () => {
      await using a = await alice.acquire([freshKey()], once);
      await using b = await bob.acquire([freshKey()], once);
      expect([a.isHeld(), b.isHeld()]).toEqual([true, true]);
    });

    test('acquires either all of several keys or none of them', async () => {
      const [a, b, c] = [freshKey(), freshKey(), freshKey()];
      const both = await alice.acquire([a, b], once);
      await expect(bob.acquire([b, c], once)).rejects.toMatchObject({ keys: [b, c], owner: 'alice' });
      // The refused attempt acquired neither of its keys.
      await (await bob.acquire([c], once)).release();
      await expect(bob.acquire([a], once)).rejects.toBeInstanceOf(LockHeldError);
      await both.release();
      await (await bob.acquire([a, b, c], once)).release();
      await expectNoKeyLeft();
    });

    test('a lock ends after its ttl when nobody renews it', async () => {
      const key = freshKey();
      const lock = await alice.acquire([key], { ...waiting, ttl: lapse, renew: false });
      const { signal } = lock;
      await using next = await bob.acquire([key], waiting);
      // A timer aborts the signal. A busy machine may run that timer after the waiter's timer.
      await until(() => signal.aborted);
      expect(lock.isHeld()).toBe(false);
      expect(next.isHeld()).toBe(true);
    });

    test('the release of a lapsed lock does not affect the next holder (S7)', async () => {
      const key = freshKey();
      const lapsed = await alice.acquire([key], { ...waiting, ttl: lapse, renew: false });
      await using next = await bob.acquire([key], waiting);
      await lapsed.release();
      await lapsed.release();
      await expect(alice.acquire([key], once)).rejects.toMatchObject({ owner: 'bob' });
      expect(next.isHeld()).toBe(true);
    });

    test('the extension of a lapsed lock is refused, and does not affect the next holder (S9)', async () => {
      const key = freshKey();
      const lapsed = await alice.acquire([key], { ...waiting, ttl: lapse, renew: false });
      await using next = await bob.acquire([key], waiting);
      await expect(lapsed.extend(2 * TTL)).rejects.toBeInstanceOf(LockLostError);
      const refusal = (await alice.acquire([key], once).catch((error: unknown) => error)) as LockHeldError;
      expect(refusal.retryAfter).toBeLessThanOrEqual(TTL);
      expect(next.isHeld()).toBe(true);
    });

    if (!quick)
      test('the watchdog keeps a lock beyond its ttl', async () => {
        const key = freshKey();
        // Long enough for a machine that stands still for two seconds: a renewal may be late by two thirds of the ttl.
        const ttl = 5_000;
        const lock = await alice.acquire([key], { ...waiting, ttl });
        const acquired = performance.now();
        while (performance.now() - acquired < 1.2 * ttl) {
          await delay(300);
          await expect(bob.acquire([key], once)).rejects.toBeInstanceOf(LockHeldError);
          lock.assertHeld();
        }
        await lock.release();
      });

    test('`extend` gives a lock a longer ttl, and never a shorter one', async () => {
      const key = freshKey();
      await using lock = await alice.acquire([key], { ...once, renew: false });
      await lock.extend(4 * TTL);
      expect(lock.remaining()).toBeGreaterThan(2 * TTL);
      await lock.extend(TTL / 2);
      expect(lock.remaining()).toBeGreaterThan(2 * TTL);
      await expect(bob.acquire([key], once)).rejects.toMatchObject({ owner: 'alice' });
    });

    test('a detached lock goes on in one other process with its token, and nobody else gets it meanwhile', async () => {
      const keys = [freshKey(), freshKey()];
      const attaching: AttachTerms = { retry: NO_RETRY, renew: true, signals: [] };
      const lock = await alice.acquire(keys, once);
      const pass = readPass(await lock.detach());
      expect(lock.state).toBe('released');
      await expect(alice.acquire([keys[1]!], once)).rejects.toMatchObject({ owner: 'alice (detached)' });
      const attached = await bob.attach(pass, attaching);
      expect(attached.fencingToken).toBe(lock.fencingToken);
      await expect(alice.attach(pass, attaching)).rejects.toMatchObject({ code: 'LOCK_NOT_ATTACHED' });
      await attached.extend();
      await expect(alice.acquire([keys[0]!], once)).rejects.toMatchObject({ owner: 'bob' });
      await attached.release();
      await (await alice.acquire(keys, once)).release();
      await expectNoKeyLeft();
    });

    test('a waiter gets the lock after the release', async () => {
      const key = freshKey();
      const lock = await alice.acquire([key], once);
      const next = bob.acquire([key], waiting);
      await delay(50);
      await lock.release();
      await using mine = await next;
      expect(mine.isHeld()).toBe(true);
    });

    test('no key stays locked when a signal aborts the wait for a lock', async () => {
      const key = freshKey();
      const lock = await alice.acquire([key], once);
      const controller = new AbortController();
      const waited = bob.acquire([key], { ...waiting, signals: [controller.signal] });
      await delay(20);
      controller.abort(new Error('enough'));
      await expect(waited).rejects.toThrow('enough');
      await lock.release();
      await expectNoKeyLeft();
    });

    test('each of twenty contenders in four processes gets the lock, one at a time', async () => {
      const key = freshKey();
      const more = await Promise.all([newProcess('carol'), newProcess('dave')]);
      const processes = [alice, bob, ...more];
      let inside: HeldLock | undefined;
      let served = 0;
      const contend = async (redlock: Redlock): Promise<void> => {
        const lock = await redlock.acquire([key], waiting);
        expect(inside).toBeUndefined();
        inside = lock;
        await delay(Math.random() * 4);
        inside = undefined;
        served++;
        await lock.release();
      };
      await Promise.all(Array.from({ length: 20 }, (_, index) => contend(processes[index % 4]!)));
      expect(served).toBe(20);
      await Promise.all(more.map((redlock) => redlock.close()));
      await expectNoKeyLeft();
    });

    test('each lock has a larger fencing token than the lock before it, on one key and on several', async () => {
      const [a, b, c] = [freshKey(), freshKey(), freshKey()];
      const tokens: number[] = [];
      for (let round = 0; round < 10; round++) {
        for (const keys of [[a], [a, b], [b, c], [c], [a, b, c]]) {
          const lock = await (round % 2 ? alice : bob).acquire(keys, once);
          tokens.push(lock.fencingToken);
          await lock.release();
        }
      }
      // Each list has a key in common with the list before it, so each token must be larger than the token before it.
      expect(tokens).toEqual(tokens.toSorted((x, y) => x - y));
      expect(new Set(tokens).size).toBe(tokens.length);
      for (const token of tokens) expect(Number.isSafeInteger(token)).toBe(true);
    });

    test('a lock has a larger token than the lapsed lock before it, and keeps its token when extended', async () => {
      const key = freshKey();
      const lapsed = await alice.acquire([key], { ...waiting, ttl: lapse, renew: false });
      await using next = await bob.acquire([key], waiting);
      expect(next.fencingToken).toBeGreaterThan(lapsed.fencingToken);
      const token = next.fencingToken;
      await next.extend();
      expect(next.fencingToken).toBe(token);
    });

    describe('minHold', () => {
      /**
       * Milliseconds; long enough for a test to see that the key is still locked, even if the machine stands still for
       * a moment.
       */
      const HOLD = 4_000;

      if (!quick)
        test('`minHold` keeps the keys locked after the release, even beyond the ttl', async () => {
          const keys = [freshKey(), freshKey()];
          const started = performance.now();
          const lock = await alice.acquire(keys, { ...waiting, ttl: lapse, minHold: HOLD });
          const { signal } = lock;
          await lock.release();
          expect([lock.state, lock.isHeld(), signal.aborted]).toEqual(['released', false, false]);
          await using next = await bob.acquire(keys, waiting);
          expect(performance.now() - started).toBeGreaterThan(HOLD - 1);
          expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
        });

      if (!quick)
        test('`minHold` limits the `retryAfter` of a caller that is refused after the release', async () => {
          const key = freshKey();
          await (await alice.acquire([key], { ...once, minHold: HOLD })).release();
          const refusal = (await bob.acquire([key], once).catch((error: unknown) => error)) as LockHeldError;
          expect(refusal).toMatchObject({ code: 'LOCK_HELD', owner: 'alice' });
          expect(refusal.retryAfter).toBeLessThanOrEqual(HOLD);
          await (await bob.acquire([key], waiting)).release();
          await expectNoKeyLeft();
        });

      test('`minHold` counts from the acquire: a lock held for longer is free at once after the release', async () => {
        const key = freshKey();
        const lock = await alice.acquire([key], { ...once, minHold: 50 });
        await delay(60);
        await lock.release();
        await using next = await bob.acquire([key], once);
        expect(next.isHeld()).toBe(true);
      });

      test('`minHold` does not keep the key of a crashed holder locked beyond the ttl of the lock', async () => {
        const key = freshKey();
        await alice.acquire([key], { ...waiting, ttl: lapse, renew: false, minHold: TTL });
        await using next = await bob.acquire([key], waiting);
        expect(next.isHeld()).toBe(true);
      });

      test('the release of a lapsed lock with `minHold` does not affect the next holder', async () => {
        const key = freshKey();
        // After the release, a node that did not grant the lock to Bob may keep the key for the whole `minHold`. Later
        // tests wait until no key is left, so the `minHold` is shorter than that wait.
        const lapsed = await alice.acquire([key], { ...waiting, ttl: lapse, renew: false, minHold: TTL / 6 });
        await using next = await bob.acquire([key], waiting);
        await lapsed.release();
        const refusal = (await alice.acquire([key], once).catch((error: unknown) => error)) as LockHeldError;
        expect(refusal.owner).toBe('bob');
        expect(refusal.retryAfter).toBeLessThanOrEqual(TTL);
        expect(next.isHeld()).toBe(true);
      });

      test('`minHold` does not keep the keys of a refused attempt locked', async () => {
        const [a, b] = [freshKey(), freshKey()];
        const lock = await alice.acquire([b], once);
        await expect(bob.acquire([a, b], { ...once, minHold: TTL })).rejects.toBeInstanceOf(LockHeldError);
        await lock.release();
        await expectNoKeyLeft();
      });
    });

    const describeOfExclusive = kind === EXCLUSIVE ? describe : (): void => undefined;
    describeOfExclusive('a tick of a schedule', () => {
      const MINUTE = 60_000;
      const nine: Tick = { schedule: 'daily', at: Date.UTC(2026, 0, 1, 9), life: MINUTE, from: 'release' };
      const ten: Tick = { ...nine, at: Date.UTC(2026, 0, 1, 10) };
      const refusal = { code: 'LOCK_HELD', owner: 'alice', ranTick: nine.at };

      test('a tick that has run is refused, while other ticks and keys are granted', async () => {
        const key = freshKey();
        const lock = await alice.acquire([key], { ...once, tick: nine });
        await expect(bob.acquire([key], { ...once, tick: nine })).rejects.toMatchObject({
          owner: 'alice',
          ranTick: undefined,
        });
        await lock.release();
        for (const redlock of [alice, bob]) {
          await expect(redlock.acquire([key], { ...once, tick: nine })).rejects.toMatchObject(refusal);
        }
        // The key is free for a call without a tick, for a tick of another schedule, and for a later tick.
        await (await bob.acquire([key], once)).release();
        await (await bob.acquire([key], { ...once, tick: { ...nine, schedule: 'another' } })).release();
        await (await bob.acquire([freshKey()], { ...once, tick: nine })).release();
        await (await bob.acquire([key], { ...once, tick: ten })).release();
        await expectNoKeyLeft();
      });

      test('a tick is refused after a later tick has run', async () => {
        const key = freshKey();
        await (await alice.acquire([key], { ...once, tick: ten })).release();
        await expect(bob.acquire([key], { ...once, tick: nine })).rejects.toMatchObject(refusal);
      });

      test('callers that wait for a tick are refused as soon as the tick has run', async () => {
        const key = freshKey();
        const lock = await alice.acquire([key], { ...once, tick: nine });
        const started = performance.now();
        const waited = bob.acquire([key], {
          ...waiting,
          retry: { ...waiting.retry, timeout: MINUTE },
          tick: nine,
        });
        waited.catch(() => undefined);
        await delay(50);
        await lock.release();
        await expect(waited).rejects.toMatchObject(refusal);
        expect(performance.now() - started).toBeLessThan(MINUTE / 4);
      });

      test('a tick runs again when its holder crashed and the lock has lapsed', async () => {
        const key = freshKey();
        await alice.acquire([key], { ...waiting, ttl: lapse, renew: false, tick: nine });
        await using next = await bob.acquire([key], { ...waiting, tick: nine });
        expect(next.isHeld()).toBe(true);
      });

      test('a tick does not count as run when its lock was refused', async () => {
        const [a, b] = [freshKey(), freshKey()];
        const lock = await alice.acquire([b], once);
        await expect(bob.acquire([a, b], { ...once, tick: nine })).rejects.toMatchObject({
          ranTick: undefined,
        });
        await lock.release();
        await using next = await bob.acquire([a, b], { ...once, tick: nine });
        expect(next.isHeld()).toBe(true);
      });

      test('a tick counts as run even if its lock was lost during the run', async () => {
        const key = freshKey();
        const lapsed = await alice.acquire([key], { ...waiting, ttl: lapse, renew: false, tick: nine });
        await using next = await bob.acquire([key], waiting);
        await lapsed.release();
        expect(next.isHeld()).toBe(true);
        await next.release();
        await expect(bob.acquire([key], { ...once, tick: nine })).rejects.toMatchObject(refusal);
      });

      test('a tick is forgotten after its lifetime, which starts at the release or the acquisition, as the option `from` says', async () => {
        const [a, b] = [freshKey(), freshKey()];
        const short: Tick = { ...nine, at: 0, life: lapse };
        const counted: Tick = { ...short, from: 'acquisition' };
        const locks = [
          await alice.acquire([a], { ...once, tick: short }),
          await alice.acquire([b], { ...once, tick: counted }),
        ];
        await delay(lapse + 1);
        const releasing = performance.now();
        await Promise.all(locks.map((lock) => lock.release()));
        await (await bob.acquire([b], { ...once, tick: counted })).release();
        await until(() =>
          bob.acquire([a], { ...once, tick: short }).then(
            (lock) => lock.release().then(() => true),
            () => false,
          ),
        );
        expect(performance.now() - releasing).toBeGreaterThan(lapse - 1);
      });
    });

    test('accepts keys with any characters', async () => {
      for (const key of [
        'a b',
        'a{b}c',
        '{tag}:x',
        'ключ 🔑',
        '"quoted"',
        'line\nbreak',
        'x'.repeat(2_000),
      ]) {
        const lock = await alice.acquire([key], once);
        await expect(bob.acquire([key], once)).rejects.toBeInstanceOf(LockHeldError);
        await lock.release();
      }
      await expectNoKeyLeft();
    });
  });
}
