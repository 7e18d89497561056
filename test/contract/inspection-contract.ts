import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { LockLostError } from '../../lib/core/errors.js';
import { LockInspector, type ListOptions } from '../../lib/redlock/inspect/lock-inspector.js';
import type { LockInfo } from '../../lib/core/lock-info.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import { redlockOver } from '../support/core.js';
import { until } from '../support/until.js';
import type { Backend } from './lock-contract.js';

/** Milliseconds; so long that no lock expires by accident, even if the machine stands still for a moment. */
const TTL = 60_000;

/** Milliseconds; far below the ttl: otherwise a test of a release would also pass if the lock only expired. */
const RELEASED_WITHIN = TTL / 2;

const once: AcquireTerms = { ttl: TTL, retry: NO_RETRY, renew: true, signals: [] };

/** Retries for a lock with a short ttl. A node then has little time to answer, so a single attempt may fail. */
const OFTEN = { timeout: TTL, attempts: Infinity, delay: 5, jitter: 5 };

export interface InspectionContractOptions {
  /** Number of nodes that give no answer. */
  readonly down?: number;
  /** `true` if the stores support all modes of locks. */
  readonly allModes?: boolean;

  /**
   * `false` if no messages arrive: callers then poll, and join no queue.
   * @defaultValue true
   */
  readonly queues?: boolean;
}

/** Tests inspection and forced release, which must work in the same way on every kind and number of nodes. */
export function inspectionContract(
  name: string,
  start: () => Promise<Backend>,
  { down = 0, allModes = false, queues = true }: InspectionContractOptions = {},
): void {
  describe(`the contract of inspection on ${name}`, () => {
    let backend: Backend;
    let alice: Redlock;
    let alices: LockInspector;
    let bobs: LockInspector;
    let bob: Redlock;

    beforeAll(async () => {
      backend = await start();
      [alice, alices] = await newProcess('alice');
      [bob, bobs] = await newProcess('bob');
    });
    afterAll(async () => {
      await Promise.all([alice.close(), bob.close()]);
      await backend.stop();
    });

    // A release resolves when a quorum has confirmed it. A record on another node would be listed in the next test.
    afterEach(() => until(async () => (await backend.countKeys()) === 0, RELEASED_WITHIN));

    async function newProcess(owner: string): Promise<[Redlock, LockInspector]> {
      const nodes = await backend.nodes();
      const redlock = redlockOver(nodes, { owner, nodeTimeout: TTL / 5 });
      return [redlock, new LockInspector(nodes, { nodeTimeout: TTL / 5 }, redlock.held)];
    }

    async function listed(options?: ListOptions): Promise<LockInfo[]> {
      const infos: LockInfo[] = [];
      for await (const info of bobs.list(options)) infos.push(info);
      return infos.toSorted((a, b) => (a.key < b.key ? -1 : 1));
    }

    test('`inspect` shows other processes the holder, start, remaining time and token of a lock', async () => {
      const before = Date.now();
      await using lock = await alice.acquire(['held'], once);
      const info = await bobs.inspect('held');
      expect(info).toMatchObject({
        key: 'held',
        held: true,
        id: lock.id,
        owner: 'alice',
        fencingToken: lock.fencingToken,
      });
      expect(info.since!.getTime()).toBeGreaterThanOrEqual(before);
      expect(info.since!.getTime()).toBeLessThanOrEqual(Date.now());
      expect(info.remaining).toBeGreaterThan(TTL / 6);
      expect(info.remaining).toBeLessThanOrEqual(TTL);
    });

    test('`inspect` shows the vote of each node, with the name of the node and the record that the node stores', async () => {
      await using lock = await alice.acquire(['votes'], once);
      await until(async () => (await backend.countKeys()) === (await upNodes()));
      const { votes } = await bobs.inspect('votes');
      const [held, error] = ['held', 'error'].map((kind) => votes.filter(({ vote }) => vote === kind));
      expect(error).toHaveLength(down);
      for (const vote of error!) expect(vote).toHaveProperty('error', expect.any(Error));
      expect(held).toHaveLength(votes.length - down);
      for (const vote of held!) {
        expect(vote).toMatchObject({ node: expect.any(String), id: lock.id, owner: 'alice' });
        expect(vote).toHaveProperty('since', expect.any(Date));
        expect(vote).toHaveProperty('fencingToken', expect.any(Number));
      }
    });

    (queues ? test : test.skip)(
      '`waiting` returns the waiters of all processes in order, and omits keys without waiters',
      async () => {
        const lock = await alice.acquire(['queue'], once);
        const wait: AcquireTerms = {
          ...once,
          retry: { timeout: TTL, attempts: Infinity, delay: 200, jitter: 0 },
        };
        const keys = ['nobody', 'queue'];
        const waiting = async () => [...(await alices.waiting(keys))];
        const owners = async () => (await waiting()).flatMap(([, queue]) => queue.map(({ owner }) => owner));
        const first = bob.acquire(['queue'], wait);
        await until(async () => (await owners()).length === 1);
        const second = alice.acquire(['queue'], wait);
        await until(async () => (await owners()).length === 2);
        const at = expect.any(Number);
        const [one, another] = [bob, alice].map(({ process }) => ({ process, mode: 'exclusive', since: at }));
        await expect(waiting()).resolves.toEqual([
          [
            'queue',
            [
              { ...one, owner: 'bob', number: at },
              { ...another, owner: 'alice', number: at },
            ],
          ],
        ]);
        await lock.release();
        // The order may differ: on a busy machine, the first waiter may miss its turn, and the second waiter then
        // acquires first.
        await Promise.all([first, second].map(async (next) => (await next).release()));
        await until(async () => (await owners()).length === 0, RELEASED_WITHIN);
      },
    );

    test('`inspect` shows that a key is free before its first lock and after a release', async () => {
      const nobody = { held: false, id: undefined, owner: undefined, since: undefined };
      const free = { ...nobody, remaining: 0, fencingToken: undefined };
      await expect(bobs.inspect('never locked')).resolves.toMatchObject({ key: 'never locked', ...free });
      await (await alice.acquire(['was locked'], once)).release();
      await until(async () => (await backend.countKeys()) === 0, RELEASED_WITHIN);
      const info = await bobs.inspect('was locked');
      expect(info).toMatchObject({ key: 'was locked', ...free });
      expect(info.votes.filter(({ vote }) => vote === 'free')).toHaveLength(info.votes.length - down);
    });

    test('`inspect` shows the same id and token for each key of one lock', async () => {
      await using lock = await alice.acquire(['{many}:1', '{many}:2'], once);
      for (const key of lock.keys) {
        const { id, fencingToken } = await bobs.inspect(key);
        expect({ id, fencingToken }).toEqual({ id: lock.id, fencingToken: lock.fencingToken });
      }
    });

    test('`inspect` and `list` find keys with any characters', async () => {
      const keys = ['a b', 'a{b}c', '{tag}:x', 'ключ 🔑', '"quoted"', 'line\nbreak', 'x:l', 'a*?[b]\\^-c'];
      const held = await Promise.all(keys.map((key) => alice.acquire([key], once)));
      for (const key of keys) {
        await expect(bobs.inspect(key)).resolves.toMatchObject({ key, held: true });
        expect((await listed({ prefix: key })).map((info) => info.key)).toEqual([key]);
      }
      expect((await listed()).map(({ key }) => key)).toEqual(keys.toSorted());
      await Promise.all(held.map((lock) => lock.release()));
    });

    test('`list` yields all locks, only locks with a prefix, or at most as many as the limit', async () => {
      const keys = Array.from({ length: 30 }, (_, index) => `${index % 2 ? 'odd' : 'even'}:${index}`);
      const held = await Promise.all(keys.map((key) => alice.acquire([key], once)));
      const infos = await listed();
      expect(infos.map(({ key }) => key)).toEqual(keys.toSorted());
      for (const info of infos) {
        const lock = held.find((each) => each.keys[0] === info.key)!;
        expect(info).toMatchObject({
          held: true,
          owner: 'alice',
          id: lock.id,
          fencingToken: lock.fencingToken,
        });
      }
      await expect(listed({ prefix: 'odd:' })).resolves.toHaveLength(15);
      await expect(listed({ prefix: 'o*' })).resolves.toEqual([]);
      await expect(listed({ limit: 7 })).resolves.toHaveLength(7);
      await Promise.all(held.map((lock) => lock.release()));
      await until(async () => (await listed()).length === 0, RELEASED_WITHIN);
    });

    test('lets the caller end the loop over the listed locks early', async () => {
      const keys = ['leave:a', 'leave:b'];
      const held = await Promise.all(keys.map((key) => alice.acquire([key], once)));
      const seen: string[] = [];
      for await (const { key } of bobs.list({ prefix: 'leave:' })) {
        seen.push(key);
        break;
      }
      expect(seen).toHaveLength(1);
      await Promise.all(held.map((lock) => lock.release()));
    });

    test('`list` yields every lock that stays held while other locks are acquired and released', async () => {
      const lasting = await Promise.all(
        Array.from({ length: 40 }, (_, index) => alice.acquire([`lasting:${index}`], once)),
      );
      const enough = new AbortController();
      const churn = Promise.all(
        Array.from({ length: 5 }, async (_, index) => {
          while (!enough.signal.aborted)
            await (await bob.acquire([`churn:${index}:${Math.random()}`], once)).release();
        }),
      );
      for (let round = 0; round < 5; round++) {
        const keys = new Set((await listed()).map(({ key }) => key));
        expect(lasting.map((lock) => lock.keys[0]).filter((key) => !keys.has(key!))).toEqual([]);
      }
      enough.abort();
      await churn;
      await Promise.all(lasting.map((lock) => lock.release()));
    });

    test('`forceRelease` ends a lock, and the next holder has a larger token', async () => {
      const lock = await alice.acquire(['forced'], { ...once, renew: false });
      await expect(bobs.forceRelease('forced')).resolves.toBe(true);
      await expect(bobs.inspect('forced')).resolves.toMatchObject({ held: false });
      await using next = await bob.acquire(['forced'], once);
      expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
      // The release of the old holder does not affect the next lock.
      await lock.release();
      await expect(bobs.inspect('forced')).resolves.toMatchObject({ held: true, id: next.id });
    });

    test('`forceRelease` returns `false` for a free key', async () => {
      await expect(bobs.forceRelease('free')).resolves.toBe(false);
    });

    test('a holder in another process notices a forced release at its next renewal', async () => {
      const lock = await alice.acquire(['told'], { ...once, ttl: TTL / 10, retry: OFTEN });
      const { signal } = lock;
      await expect(bobs.forceRelease('told')).resolves.toBe(true);
      await until(() => signal.aborted);
      expect(signal.reason).toBeInstanceOf(LockLostError);
      expect((signal.reason as Error).message).toContain('fewer than a quorum of nodes still store it');
    });

    test('a holder in the same process learns of a forced release at once, and its other locks stay held', async () => {
      const lock = await alice.acquire(['mine'], { ...once, renew: false });
      await using other = await alice.acquire(['mine too'], once);
      const { signal } = lock;
      await expect(alices.forceRelease('mine')).resolves.toBe(true);
      expect(signal.aborted).toBe(true);
      expect((signal.reason as Error).message).toContain('released by force');
      expect(lock.isHeld()).toBe(false);
      expect(other.isHeld()).toBe(true);
    });

    test('ends a lock of several keys when one key is released by force', async () => {
      const lock = await alice.acquire(['{pair}:1', '{pair}:2'], once);
      await expect(alices.forceRelease('{pair}:1')).resolves.toBe(true);
      expect(lock.isHeld()).toBe(false);
      await lock.release();
      await until(async () => !(await bobs.inspect('{pair}:2')).held, RELEASED_WITHIN);
    });

    test('`inspect` shows that an expired lock is not held', async () => {
      await alice.acquire(['lapsed'], { ...once, ttl: TTL / 30, renew: false, retry: OFTEN });
      await until(async () => !(await bobs.inspect('lapsed')).held);
      await expect(bobs.inspect('lapsed')).resolves.toMatchObject({ held: false });
    });

    if (allModes) {
      const permits: AcquireTerms = { ...once, kind: { mode: 'permits', permits: 4 } };
      const shared: AcquireTerms = { ...once, kind: { mode: 'shared' } };

      test('`inspect` shows all holders of permits, each with its slot and token, and `list` counts them', async () => {
        const held = [
          await alice.acquire(['permits'], permits),
          await bob.acquire(['permits'], permits),
          await alice.acquire(['permits'], permits),
        ];
        const info = await bobs.inspect('permits');
        expect(info).toMatchObject({ held: true, mode: 'permits', permits: 4 });
        const seen = info.holders.map(({ id, owner, slot, fencingToken }) => ({
          id,
          owner,
          slot,
          fencingToken,
        }));
        expect(seen).toHaveLength(3);
        for (const [index, { id, slot, fencingToken }] of held.entries())
          expect(seen).toContainEqual({ id, owner: index === 1 ? 'bob' : 'alice', slot, fencingToken });
        expect(new Set(seen.map(({ slot }) => slot)).size).toBe(3);
        // The top-level fields describe the holder whose permit expires first.
        expect(info.id).toBe(info.holders[0]?.id);
        // The key may be listed twice while the library asks one node to change a slot.
        const all = new Map((await listed()).map((each) => [each.key, each]));
        expect([...all].map(([key, { holders }]) => [key, holders.length])).toEqual([['permits', 3]]);
        await Promise.all(held.map((lock) => lock.release()));
      });

      test('`inspect` shows all readers, and its `owner` is the reader whose lock expires last', async () => {
        await using short = await alice.acquire(['readers'], { ...shared, ttl: TTL / 2 });
        await using long = await bob.acquire(['readers'], shared);
        const info = await bobs.inspect('readers');
        expect(info).toMatchObject({ mode: 'shared', permits: undefined, owner: 'bob', id: long.id });
        expect(info.holders.map(({ id }) => id)).toEqual([short.id, long.id]);
        expect(info.holders.every((holder) => !('slot' in holder))).toBe(true);
      });

      test.each([
        ['permits', permits],
        ['readers', shared],
      ])('`forceRelease` ends one or all of several %s', async (_name, options) => {
        const held = [
          await alice.acquire(['several'], options),
          await alice.acquire(['several'], options),
          await alice.acquire(['several'], options),
        ];
        await expect(alices.forceRelease('several', { id: held[1]!.id })).resolves.toBe(true);
        expect(held.map((lock) => lock.isHeld())).toEqual([true, false, true]);
        expect((await bobs.inspect('several')).holders).toHaveLength(2);
        await expect(alices.forceRelease('several', { id: held[1]!.id })).resolves.toBe(false);
        await expect(alices.forceRelease('several')).resolves.toBe(true);
        expect(held.map((lock) => lock.isHeld())).toEqual([false, false, false]);
        await expect(bobs.inspect('several')).resolves.toMatchObject({ held: false, holders: [] });
        await Promise.all(held.map((lock) => lock.release()));
      });
    }

    async function upNodes(): Promise<number> {
      return (await bobs.inspect('anything')).votes.length - down;
    }
  });
}
