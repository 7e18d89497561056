import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { setTimeout as delay } from 'node:timers/promises';
import { EXCLUSIVE, type LockKind, SHARED } from '../../lib/core/lock-mode.js';
import { MARK_MS, STANDBY_MS, TURN_MS } from '../../lib/core/store-times.js';
import type { HeldLock } from '../../lib/redlock/held-lock.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import { nodesTo, redlockOver } from '../support/core.js';
import { type RedisServer, startRedisNodes } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { type Contender, startContenders } from './contenders.js';

// Callers wait for a lock that several callers can hold, or wait behind the holders of such a lock.

/** The pause between two attempts of a waiter outside the queue, in milliseconds. */
const POLL_MS = 20_000;

/** The most milliseconds that a grant to a caller with `inQueue` may take on a busy machine. */
const ROOM_MS = 15_000;

const TTL = 30_000;

const waiting: AcquireTerms = {
  ttl: TTL,
  retry: { timeout: 60_000, attempts: Infinity, delay: POLL_MS, jitter: 0 },
  renew: true,
  signals: [],
};

/**
 * A waiter with a limit of attempts that gets no message sleeps for its whole delay, which is longer than ROOM_MS. Without
 * a limit it would sleep for five seconds, and on a busy machine a message can take about as long.
 */
const inQueue: AcquireTerms = { ...waiting, retry: { ...waiting.retry, attempts: 1_000 } };

function permits(count: number): LockKind {
  return { mode: 'permits', permits: count };
}

/** The time for which a node certainly keeps the mark of the writer, by `performance.now()`. */
interface Standing {
  readonly from: number;
  readonly to: number;
}

/**
 * The mark of the writer, as the test process knows it. With the mark, a node refuses later readers and later callers
 * for a permit. The node keeps the mark for {@link MARK_MS} after the request. If the machine stalls for longer, the
 * mark lapses and later callers may pass. So only the time for which the node certainly has the mark counts.
 */
class WritersMark {
  readonly #standing = new Map<number, Standing>();
  /** For each node, a moment: an answer counts only if its request was sent later. */
  readonly #doubted = new Map<number, number>();
  #forgotten = -Infinity;
  /** The moments at which the writer sent its unanswered requests. */
  readonly #unanswered = new Set<number>();
  /** The longest time from a request of the writer to its answer since the last `forget`. */
  #delay = 0;
  /** True if, at one moment since the last `forget`, the writer's mark certainly was on a majority of the nodes. */
  wasSet = false;

  constructor(private readonly nodeCount: number) {}

  forget(): void {
    this.#standing.clear();
    this.#forgotten = performance.now();
    this.#unanswered.clear();
    this.#delay = 0;
    this.wasSet = false;
  }

  /** Another waiter sets its own mark on the node. The mark of an earlier waiter replaces the mark of the writer. */
  doubt(node: number): void {
    this.#standing.delete(node);
    this.#doubted.set(node, performance.now());
  }

  /** The writer sends a request for its mark at this moment. */
  request(sent: number): void {
    this.#unanswered.add(sent);
  }

  /** @param sent - the moment at which the writer sent the answered request */
  answer(sent: number): void {
    if (this.#unanswered.delete(sent)) this.#delay = Math.max(this.#delay, performance.now() - sent);
  }

  /** @param sent - the moment at which the writer's request was sent */
  confirm(node: number, sent: number): void {
    if (sent < Math.max(this.#forgotten, this.#doubted.get(node) ?? -Infinity)) return;
    const now = performance.now();
    const before = this.#standing.get(node);
    const from = before && before.to > now ? before.from : now;
    this.#standing.set(node, { from, to: sent + MARK_MS });
    this.wasSet ||= this.stood(now, now);
  }

  /**
   * True if a majority certainly had the mark all the time, and the mark excluded a caller that asked at `from`.
   *
   * With five nodes, the queue node does not count, because it drops the mark when it grants, perhaps before the other
   * nodes grant. Three of the other four nodes must have had the mark.
   *
   * A renewal of the mark says how long the writer had waited when the renewal was sent. If the renewal arrives late,
   * the node assumes that the writer's wait began later, by the same delay. A caller that asked within that delay may
   * then acquire before the writer.
   */
  stood(from: number, to: number): boolean {
    const delays = [this.#delay, ...[...this.#unanswered].map((sent) => to - sent)];
    if (from <= this.#forgotten + Math.max(...delays)) return false;
    const nodes = [...this.#standing].filter(
      ([node, mark]) => (this.nodeCount === 1 || node > 0) && mark.from <= from && mark.to >= to,
    );
    return nodes.length > this.nodeCount / 2;
  }
}

describe.each([
  ['one node', 1],
  ['five nodes', 5],
])('on %s', (_nodes, count) => {
  let servers: RedisServer[];
  let lookers: Redis[];
  const opened: Redlock[] = [];
  const mark = new WritersMark(count);
  /** Aborts the calls that still wait when a test has failed. */
  let over = new AbortController();

  beforeAll(async () => {
    servers = await startRedisNodes(count);
    lookers = servers.map((server) => server.client());
  });
  afterAll(() => Promise.all(servers.map((server) => server.stop())));
  beforeEach(async () => {
    await Promise.all(lookers.map((looker) => looker.flushall()));
  });
  afterEach(endAll);

  async function endAll(): Promise<void> {
    over.abort(new Error('the test is over'));
    over = new AbortController();
    await Promise.all(opened.splice(0).map((redlock) => redlock.close()));
    await Promise.all(lookers.map((looker) => looker.flushall()));
  }

  /** A `Redlock` with its own connections and its own id. The servers see it as a separate process. */
  async function newProcess(owner: string, holdsBack = true, hears = true): Promise<Redlock> {
    const nodes = nodesTo(servers.map(({ url }) => url));
    if (!hears) for (const node of nodes) node.listen = () => ({ ready: false, stop: () => undefined });
    for (const [index, node] of nodes.entries()) {
      const holdBack = node.holdBack.bind(node);
      node.holdBack = async (waiter, waited) => {
        if (!holdsBack) return true;
        const sent = performance.now();
        if (owner === 'writer') mark.request(sent);
        else mark.doubt(index);
        const stands = await holdBack(waiter, waited).finally(() => mark.answer(sent));
        if (owner !== 'writer') mark.doubt(index);
        else if (stands) mark.confirm(index, sent);
        return stands;
      };
    }
    await Promise.all(nodes.map((node) => node.connect()));
    // Give the nodes much time to answer. A waiter that gets no answer in time polls after its long delay, and would
    // exceed the time limits of these tests.
    const redlock = redlockOver(nodes, { owner, nodeTimeout: TTL / 5 });
    opened.push(redlock);
    return redlock;
  }

  function processes(number: number): Promise<Redlock[]> {
    return Promise.all(Array.from({ length: number }, (_, index) => newProcess(`process ${index}`)));
  }

  /** Number of processes in the queue, which the first node keeps. */
  function inLine(): Promise<number> {
    return lookers[0]!.zcount('lock:{k}:q', 0, 1e13);
  }

  /** Processes in the queue, one for each given kind of lock, in the order of the kinds. */
  interface Line {
    readonly locks: (HeldLock | undefined)[];
    /** The indexes of the processes, in the order in which they acquired. */
    readonly order: number[];
    release(index: number | undefined): Promise<void>;
    /** The index of the first process in the queue. */
    first(): Promise<number>;
  }

  async function line(kinds: readonly LockKind[]): Promise<Line> {
    const locks: (HeldLock | undefined)[] = kinds.map(() => undefined);
    const order: number[] = [];
    const all = await processes(kinds.length);
    for (const [index, kind] of kinds.entries()) {
      const granted = (lock: HeldLock): void => {
        locks[index] = lock;
        order.push(index);
      };
      all[index]!.acquire(['k'], { ...inQueue, kind, signals: [over.signal] }).then(granted, () => undefined);
      await until(async () => (await inLine()) === index + 1);
      // A waiter that asks again moves back in the queue by the duration of its request. This pause keeps the order.
      await delay(50);
    }
    return {
      locks,
      order,
      release: async (index) => locks[index ?? -1]?.release(),
      first: async () => {
        const [name] = await lookers[0]!.zrangebyscore('lock:{k}:q', 0, '(1e13', 'LIMIT', 0, 1);
        return all.findIndex(({ process }) => name?.startsWith(process));
      },
    };
  }

  async function scripts(): Promise<number> {
    const stats = await lookers[0]!.info('commandstats');
    const calls = [...stats.matchAll(/cmdstat_eval(?:sha)?:calls=(\d+)/g)];
    return calls.reduce((sum, [, each = '0']) => sum + Number(each), 0);
  }

  describe('an endless stream of holders', () => {
    const LOOPS = 9;

    /** A caller that one node grants and the others refuse gets no message, so it polls. */
    const streaming: AcquireTerms = { ...waiting, retry: { ...waiting.retry, delay: 50, jitter: 50 } };

    /**
     * Loops that hold the lock together. Each loop acquires again as soon as it has released. The last holder waits until
     * another loop holds the lock too, so that the lock is never free. Without marks the last holder waits as long as
     * needed. With marks it waits only for a moment, because the nodes may refuse the other loops.
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
          if (mark.stood(asked, performance.now())) state.afterMark++;
          state.holding++;
          await delay(20 + Math.random() * 20);
          // After a stall of the machine all loops come here at once. The last holder waits for another loop.
          const turns = holdsBack ? 20 : Infinity;
          for (let turn = 0; turn < turns && state.holding === 1 && !state.over; turn++) await delay(5);
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
      ['readers', 'a caller for a permit', SHARED, permits(3)],
      ['permits', 'a writer', permits(LOOPS), EXCLUSIVE],
      ['permits', 'a reader', permits(LOOPS), SHARED],
    ])(
      'an endless stream of holders (%s) does not starve a waiter in another mode (%s)',
      async (_stream, _waiter, kind, other) => {
        const writer = await newProcess('writer');
        const { state, end } = await stream(kind);
        let marked = 0;
        // On a busy machine a grant may come before the test knows that the mark is set. More turns follow then.
        for (let turn = 0; turn < 5 || (marked === 0 && turn < 50); turn++) {
          const before = state.grants;
          mark.forget();
          const lock = await writer.acquire(['k'], { ...waiting, kind: other });
          if (mark.wasSet) marked++;
          mark.forget();
          expect(state.holding).toBe(0);
          await lock.release();
          await until(() => state.grants > before + 2 * LOOPS);
        }
        await end();
        // Callers that asked before the mark was set may be granted, even more than once. Later callers are not.
        expect({ afterMark: state.afterMark, marked: marked > 0 }).toEqual({ afterMark: 0, marked: true });
      },
    );

    test('a waiting writer that gets no messages asks again long before its retry delay has passed, and acquires the lock', async () => {
      const writer = await newProcess('writer', true, false);
      const { state, end } = await stream(SHARED, true, false);
      mark.forget();
      // The mark of the writer lapses after two seconds. If the writer did not ask sooner, every attempt would fail.
      const retry = { timeout: 60_000, attempts: 3, delay: 15_000, jitter: 15_000 };
      const asked = performance.now();
      const lock = await writer.acquire(['k'], { ...waiting, retry, kind: EXCLUSIVE });
      expect(performance.now() - asked).toBeLessThan(retry.delay - 1_000);
      expect({ holding: state.holding, afterMark: state.afterMark }).toEqual({
        holding: 0,
        afterMark: 0,
      });
      await lock.release();
      await end();
    });

    test('a waiting writer without a mark starves during an endless stream of readers (control experiment)', async () => {
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

  test('adjacent readers in the queue acquire together, and a reader behind a waiting writer acquires after the writer', async () => {
    const alice = await newProcess('alice');
    const held = await alice.acquire(['k'], waiting);
    // There are more readers than stand-bys.
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

  test('five permits that are freed at once go to five waiters', async () => {
    const kind = permits(5);
    /** Resolves to the waiters that acquired, and the milliseconds that they needed. */
    const freeFive = async (): Promise<{ readonly got: readonly number[]; readonly took: number }> => {
      const [alice] = (await processes(1)) as [Redlock];
      const held = await Promise.all(
        Array.from({ length: 5 }, () => alice.acquire(['k'], { ...waiting, kind })),
      );
      const { order, locks } = await line(Array.from({ length: 8 }, () => kind));
      const released = performance.now();
      await Promise.all(held.map((lock) => lock.release()));
      await until(() => order.length === 5, ROOM_MS);
      const took = performance.now() - released;
      await delay(200);
      expect(order).toHaveLength(5);
      const got = [...order];
      const slots = locks.flatMap((lock) => lock?.lease.slots ?? []);
      expect(slots.toSorted()).toEqual([0, 1, 2, 3, 4]);
      await Promise.all(locks.map((lock) => lock?.release()));
      await until(() => order.length === 8, ROOM_MS);
      await Promise.all(locks.map((lock) => lock?.release()));
      await endAll();
      return { got, took };
    };
    // A waiter that is delayed misses its turn, which then goes to a later one: that only shows the order of the queue if the
    // machine did not stall for as long.
    let { got, took } = await freeFive();
    for (let more = 0; more < 5 && took > TURN_MS; more++) ({ got, took } = await freeFive());
    const inOrder = took > TURN_MS ? 5 : got.filter((index) => index < 5).length;
    expect(inOrder).toBeGreaterThanOrEqual(3);
  });

  test('a freed permit goes to the first waiter in the queue, and of the other waiters only the next two ask for the permit', async () => {
    interface Turn {
      readonly wasFirst: boolean;
      readonly commands: number;
      /** Milliseconds from the release to the grant. */
      readonly took: number;
    }
    const kind = permits(2);
    const turnsOfOneLine = async (): Promise<Turn[]> => {
      const [alice] = (await processes(1)) as [Redlock];
      const first = await alice.acquire(['k'], { ...waiting, kind });
      const second = await alice.acquire(['k'], { ...waiting, kind });
      const { order, release, first: firstInLine } = await line(Array.from({ length: 8 }, () => kind));
      const free = [
        () => first.release(),
        () => second.release(),
        ...[0, 1, 2, 3].map((each) => () => release(order[each])),
      ];
      const turns: Turn[] = [];
      for (const [turn, freeOne] of free.entries()) {
        const expected = await firstInLine();
        await lookers[0]!.config('RESETSTAT');
        const released = performance.now();
        await freeOne();
        await until(() => order.length === turn + 1, ROOM_MS);
        const took = performance.now() - released;
        // The stand-bys try after the end of the turn.
        await delay(STANDBY_MS + TURN_MS);
        expect(order).toHaveLength(turn + 1);
        turns.push({ wasFirst: order[turn] === expected, commands: await scripts(), took });
      }
      await Promise.all([order[4], order[5]].map(release));
      await until(() => order.length === 8, ROOM_MS);
      await Promise.all([order[6], order[7]].map(release));
      await endAll();
      return turns;
    };
    // On a busy machine the first waiter may be delayed, and miss its turn. Such turns do not count; others follow.
    const turns: Turn[] = [];
    for (let lines = 0; lines < 5 && turns.length < 6; lines++)
      turns.push(...(await turnsOfOneLine()).filter(({ took }) => took <= TURN_MS));
    const half = turns.length / 2;
    expect(turns.filter(({ wasFirst }) => wasFirst).length).toBeGreaterThan(half);
    // The commands are the release, the grant of the first waiter, and two refusals. On several nodes the first waiter may
    // need further commands to agree on the slot and the token.
    const most = count === 1 ? 4 : 6;
    expect(turns.filter(({ commands }) => commands <= most).length).toBeGreaterThanOrEqual(half);
  });

  describe('a first waiter that misses its turn', () => {
    const reading = { mode: 'shared' } as const;
    const oneOfTwo = { permits: 2 } as const;

    async function inFront(kind: object): Promise<Contender> {
      const [contender] = await startContenders(1, {
        module: { nodes: servers.map(({ url }) => url), nodeTimeout: TTL / 5, restartGuard: false },
        key: 'k',
        loops: 1,
        lock: { ttl: TTL, retry: { timeout: 60_000, attempts: 1_000, delay: POLL_MS }, ...kind },
        hold: 0,
      });
      const before = await inLine();
      contender!.tell('go');
      await until(async () => (await inLine()) === before + 1);
      return contender!;
    }

    test.each<[string, object, LockKind, readonly LockKind[]]>([
      ['a reader in front of readers', reading, EXCLUSIVE, [SHARED, SHARED]],
      ['a reader in front of a writer', reading, EXCLUSIVE, [EXCLUSIVE]],
      ['a writer in front of readers', {}, SHARED, [SHARED, SHARED]],
      ['a writer in front of callers for permits', {}, permits(2), [permits(2), permits(2)]],
      [
        'a caller for a permit in front of other callers for permits',
        oneOfTwo,
        EXCLUSIVE,
        [permits(2), permits(2)],
      ],
    ])(
      'waiters are delayed only briefly when the first waiter misses its turn (%s)',
      async (_what, front, holding, behind) => {
        for (const fault of ['kill', 'pause'] as const) {
          const [alice, ...others] = (await processes(1 + behind.length)) as [Redlock, ...Redlock[]];
          const held = await alice.acquire(['k'], { ...waiting, kind: holding });
          const dead = await inFront(front);
          const calls: Promise<HeldLock>[] = [];
          for (const [index, kind] of behind.entries()) {
            calls.push(others[index]!.acquire(['k'], { ...inQueue, kind }));
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
      },
    );
  });
});
