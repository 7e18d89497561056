import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { setTimeout as delay } from 'node:timers/promises';
import { EXCLUSIVE, type LockKind, SHARED } from '../../lib/core/lock-mode.js';
import type { HeldLock } from '../../lib/redlock/held-lock.js';
import type { AcquireOptions, Redlock } from '../../lib/redlock/redlock.js';
import { nodesTo, redlockOver } from '../support/core.js';
import { type RedisServer, startRedisNodes } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { type Contender, startContenders } from './contenders.js';

// Who waits for a lock that several can hold, or behind such as do.

/** Polling alone would take this long, so what comes sooner came by a message. */
const POLL_MS = 20_000;

/** What a test allows for a machine that is busy, in milliseconds; less than anybody sleeps whom no message reaches. */
const ROOM_MS = 4_000;

/** When the next two in line try, in milliseconds, in case that the first does not take its turn. */
const STANDBY_MS = 200;

const TTL = 30_000;

const waiting: AcquireOptions = {
  ttl: TTL,
  retry: { timeout: 60_000, attempts: Infinity, delay: POLL_MS, jitter: 0 },
  renew: true,
  signals: [],
};

function permits(count: number): LockKind {
  return { mode: 'permits', permits: count };
}

describe.each([
  ['one node', 1],
  ['five nodes', 5],
])('on %s', (_nodes, count) => {
  let servers: RedisServer[];
  let lookers: Redis[];
  const opened: Redlock[] = [];
  /** At which nodes the mark of the writer stands, and since when that is a majority, by `performance.now()`. */
  const mark = { nodes: new Set<unknown>(), stands: Infinity };
  /** Ends what still waits when a test has failed. */
  let over = new AbortController();

  beforeAll(async () => {
    servers = await startRedisNodes(count);
    lookers = servers.map((server) => server.client());
  });
  afterAll(() => Promise.all(servers.map((server) => server.stop())));
  beforeEach(async () => {
    await Promise.all(lookers.map((looker) => looker.flushall()));
  });
  afterEach(async () => {
    over.abort(new Error('the test is over'));
    over = new AbortController();
    await Promise.all(opened.splice(0).map((redlock) => redlock.close()));
  });

  function forgetMark(): void {
    mark.nodes.clear();
    mark.stands = Infinity;
  }

  /** A process of its own, as the servers see it. */
  async function newProcess(owner: string, holdsBack = true, hears = true): Promise<Redlock> {
    const nodes = nodesTo(servers.map(({ url }) => url));
    if (!hears) for (const node of nodes) node.listen = () => ({ ready: false, stop: () => undefined });
    for (const node of nodes) {
      const holdBack = node.holdBack.bind(node);
      node.holdBack = async (waiter, waited) => {
        if (!holdsBack) return true;
        const stands = await holdBack(waiter, waited);
        if (stands && owner === 'writer') mark.nodes.add(node);
        if (mark.nodes.size >= (count + 1) / 2) mark.stands = Math.min(mark.stands, performance.now());
        return stands;
      };
    }
    await Promise.all(nodes.map((node) => node.connect()));
    // What is not answered in time is asked again by polling, which would take too long.
    const redlock = redlockOver(nodes, { owner, nodeTimeout: TTL / 5 });
    opened.push(redlock);
    return redlock;
  }

  function processes(number: number): Promise<Redlock[]> {
    return Promise.all(Array.from({ length: number }, (_, index) => newProcess(`process ${index}`)));
  }

  /** How many processes stand in line, at the node where they do. */
  function inLine(): Promise<number> {
    return lookers[0]!.zcount('lock:{k}:q', 0, 1e13);
  }

  /** Each asks for the lock once those before it stand in line; what they are granted, and in which order. */
  async function line(kinds: readonly LockKind[]): Promise<{
    readonly locks: (HeldLock | undefined)[];
    readonly order: number[];
    release(index: number): Promise<void>;
  }> {
    const locks: (HeldLock | undefined)[] = kinds.map(() => undefined);
    const order: number[] = [];
    const all = await processes(kinds.length);
    for (const [index, kind] of kinds.entries()) {
      const granted = (lock: HeldLock): void => {
        locks[index] = lock;
        order.push(index);
      };
      all[index]!.acquire(['k'], { ...waiting, kind, signals: [over.signal] }).then(granted, () => undefined);
      await until(async () => (await inLine()) === index + 1);
      // Farther apart than a busy machine is late.
      await delay(50);
    }
    return { locks, order, release: async (index) => locks[index]?.release() };
  }

  async function scripts(): Promise<number> {
    const stats = await lookers[0]!.info('commandstats');
    const calls = [...stats.matchAll(/cmdstat_eval(?:sha)?:calls=(\d+)/g)];
    return calls.reduce((sum, [, each = '0']) => sum + Number(each), 0);
  }

  describe('an endless stream of holders does not starve a waiter in another mode', () => {
    const LOOPS = 9;

    /** Those who are let pass at one node and not at the others are told by none: they poll. */
    const streaming: AcquireOptions = { ...waiting, retry: { ...waiting.retry, delay: 50, jitter: 50 } };

    /**
     * So many loops that hold the lock together, each again as soon as it has given it back. The last one waits a moment for the
     * others: as long as they get in, somebody always holds it.
     */
    async function stream(kind: LockKind, holdsBack = true, hears = true) {
      const state = { over: false, grants: 0, afterMark: 0, holding: 0 };
      const readers = await Promise.all(
        [1, 2, 3].map((each) => newProcess(`stream ${each}`, holdsBack, hears)),
      );
      const loops = Array.from({ length: LOOPS }, async (_, index) => {
        while (!state.over) {
          const asked = performance.now();
          const lock = await readers[index % readers.length]!.acquire(['k'], { ...streaming, kind });
          state.grants++;
          if (asked > mark.stands) state.afterMark++;
          state.holding++;
          await delay(20 + Math.random() * 20);
          // When the machine has stood still, all of them come here at once.
          for (let turn = 0; turn < 20 && state.holding === 1; turn++) await delay(5);
          state.holding--;
          await lock.release();
        }
      });
      await until(() => state.grants > 5 * LOOPS);
      return {
        state,
        end: async () => {
          state.over = true;
          await Promise.all(loops);
        },
      };
    }

    test.each<[string, string, LockKind, LockKind]>([
      ['readers', 'a writer', SHARED, EXCLUSIVE],
      ['readers', 'one who wants a permit', SHARED, permits(3)],
      ['permits', 'a writer', permits(LOOPS), EXCLUSIVE],
      ['permits', 'a reader', permits(LOOPS), SHARED],
    ])('%s: %s', async (_stream, _waiter, kind, other) => {
      const writer = await newProcess('writer');
      const { state, end } = await stream(kind);
      let marked = 0;
      for (let turn = 0; turn < 5; turn++) {
        const before = state.grants;
        forgetMark();
        const lock = await writer.acquire(['k'], { ...waiting, kind: other });
        if (mark.stands < Infinity) marked++;
        forgetMark();
        expect(state.holding).toBe(0);
        await lock.release();
        await until(() => state.grants > before + 2 * LOOPS);
      }
      await end();
      // Those who had asked before get in: until the mark stands, which takes a busy machine longer, each maybe more than once.
      expect({ afterMark: state.afterMark, marked: marked > 0 }).toEqual({ afterMark: 0, marked: true });
    });

    test('a writer with few attempts acquires between two of them without messages', async () => {
      const writer = await newProcess('writer', true, false);
      const { state, end } = await stream(SHARED, true, false);
      forgetMark();
      // Its mark lapses after two seconds, and it would be refused each time.
      const retry = { timeout: 60_000, attempts: 3, delay: 15_000, jitter: 15_000 };
      const asked = performance.now();
      const lock = await writer.acquire(['k'], { ...waiting, retry, kind: EXCLUSIVE });
      expect(performance.now() - asked).toBeLessThan(ROOM_MS);
      expect({ holding: state.holding, afterMark: state.afterMark }).toEqual({
        holding: 0,
        afterMark: 0,
      });
      await lock.release();
      await end();
    });

    test('a writer without a mark starves (control)', async () => {
      const writer = await newProcess('writer', false);
      const { state, end } = await stream(SHARED, false);
      const before = state.grants;
      let meanwhile: number | undefined;
      const lock = writer.acquire(['k'], { ...waiting, kind: EXCLUSIVE }).then((held) => {
        meanwhile = state.grants - before;
        return held;
      });
      await until(() => meanwhile !== undefined || state.grants > before + 20 * LOOPS);
      expect(meanwhile).toBeUndefined();
      await end();
      await (await lock).release();
    });
  });

  test('adjacent readers in line acquire together, and readers behind a writer do not', async () => {
    const alice = await newProcess('alice');
    const held = await alice.acquire(['k'], waiting);
    // More than stand by.
    const { order, release } = await line([SHARED, SHARED, SHARED, SHARED, SHARED, EXCLUSIVE, SHARED]);
    await held.release();
    await until(() => order.length === 5, ROOM_MS);
    expect(order.toSorted()).toEqual([0, 1, 2, 3, 4]);
    await Promise.all([0, 1, 2, 3].map(release));
    await delay(100);
    expect(order).toHaveLength(5);
    await release(4);
    await until(() => order.length === 6, ROOM_MS);
    expect(order[5]).toBe(5);
    await release(5);
    await until(() => order.length === 7, ROOM_MS);
    await release(6);
  });

  test('wakes as many waiters as permits are freed at once', async () => {
    const [alice] = (await processes(1)) as [Redlock];
    const kind = permits(5);
    const held = await Promise.all(
      Array.from({ length: 5 }, () => alice.acquire(['k'], { ...waiting, kind })),
    );
    const { order, locks } = await line(Array.from({ length: 8 }, () => kind));
    await Promise.all(held.map((lock) => lock.release()));
    await until(() => order.length === 5, ROOM_MS);
    await delay(200);
    expect(order.toSorted()).toEqual([0, 1, 2, 3, 4]);
    const slots = locks.flatMap((lock) => lock?.lease.slots ?? []);
    expect(slots.toSorted()).toEqual([0, 1, 2, 3, 4]);
    await Promise.all(locks.map((lock) => lock?.release()));
    await until(() => order.length === 8, ROOM_MS);
    await Promise.all(locks.map((lock) => lock?.release()));
  });

  test('a freed permit goes to the first in line, and only the two stand-bys also ask', async () => {
    const [alice] = (await processes(1)) as [Redlock];
    const kind = permits(2);
    const first = await alice.acquire(['k'], { ...waiting, kind });
    const second = await alice.acquire(['k'], { ...waiting, kind });
    const { order, release } = await line(Array.from({ length: 8 }, () => kind));
    const free = [
      () => first.release(),
      () => second.release(),
      ...[0, 1, 2, 3].map((each) => () => release(each)),
    ];
    for (const [turn, freeOne] of free.entries()) {
      await lookers[0]!.config('RESETSTAT');
      await freeOne();
      await until(() => order.length === turn + 1, ROOM_MS);
      // They try when a turn that was not taken would be over.
      await delay(STANDBY_MS + 150);
      expect(order).toEqual(Array.from({ length: turn + 1 }, (_, index) => index));
      // The release, the acquisition of the first, and two refusals; with several nodes it may have to agree on slot and token.
      expect(await scripts()).toBeLessThanOrEqual(count === 1 ? 4 : 6);
    }
    await Promise.all([4, 5].map(release));
    await until(() => order.length === 8, ROOM_MS);
    await Promise.all([6, 7].map(release));
  });

  describe('a first waiter that misses its turn delays the others only briefly', () => {
    const reading = { mode: 'shared' } as const;
    const oneOfTwo = { permits: 2 } as const;

    async function inFront(kind: object): Promise<Contender> {
      const [contender] = await startContenders(1, {
        module: { nodes: servers.map(({ url }) => url), nodeTimeout: TTL / 5, restartGuard: false },
        key: 'k',
        loops: 1,
        lock: { ttl: TTL, retry: { timeout: 60_000, delay: POLL_MS }, ...kind },
        hold: 0,
      });
      const before = await inLine();
      contender!.tell('go');
      await until(async () => (await inLine()) === before + 1);
      return contender!;
    }

    test.each<[string, object, LockKind, readonly LockKind[]]>([
      ['a reader, before readers', reading, EXCLUSIVE, [SHARED, SHARED]],
      ['a reader, before a writer', reading, EXCLUSIVE, [EXCLUSIVE]],
      ['a writer, before readers', {}, SHARED, [SHARED, SHARED]],
      ['a writer, before permits', {}, permits(2), [permits(2), permits(2)]],
      ['one who wants a permit, before others', oneOfTwo, EXCLUSIVE, [permits(2), permits(2)]],
    ])('%s', async (_what, front, holding, behind) => {
      for (const fault of ['kill', 'pause'] as const) {
        const [alice, ...others] = (await processes(1 + behind.length)) as [Redlock, ...Redlock[]];
        const held = await alice.acquire(['k'], { ...waiting, kind: holding });
        const dead = await inFront(front);
        const calls: Promise<HeldLock>[] = [];
        for (const [index, kind] of behind.entries()) {
          calls.push(others[index]!.acquire(['k'], { ...waiting, kind }));
          await until(async () => (await inLine()) === index + 2);
        }
        if (fault === 'kill') await dead.kill();
        else dead.pause();
        const released = performance.now();
        await held.release();
        const locks = await Promise.all(calls);
        expect(performance.now() - released).toBeLessThan(ROOM_MS);
        await Promise.all(locks.map((lock) => lock.release()));
        if (fault === 'pause') await dead.kill();
        await Promise.all(lookers.map((looker) => looker.flushall()));
      }
    });
  });
});
