import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { setTimeout as delay } from 'node:timers/promises';
import { Lease } from '../../lib/core/lease.js';
import { STANDBY_MS, TURN_MS } from '../../lib/core/store-times.js';
import type { RedisStore } from '../../lib/stores/redis/redis-store.js';
import { HeldLock } from '../../lib/redlock/held-lock.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import { acquireOn, extendOn } from '../support/ask-store.js';
import { nodesTo, redlockOver } from '../support/core.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';

const TTL = 30_000;

/** Milliseconds. A waiter that gets no message asks again later, so an earlier grant is the effect of a message. */
const TOLD_MS = 15_000;

let server: RedisServer;
let looker: Redis;
const opened: Redlock[] = [];

beforeAll(async () => {
  server = await startRedis();
  looker = server.client();
});
afterAll(() => server.stop());
beforeEach(() => looker.flushall());
afterEach(async () => {
  await Promise.all(opened.splice(0).map((redlock) => redlock.close()));
});

/** A `Redlock` with its own connections and its own id. The server sees it as a separate process. */
async function newProcess(owner: string): Promise<Redlock> {
  const nodes = nodesTo([server.url]);
  await Promise.all(nodes.map((node) => node.connect()));
  const redlock = redlockOver(nodes, { owner, nodeTimeout: TTL / 5 });
  opened.push(redlock);
  return redlock;
}

function permits(count: number): AcquireTerms {
  return {
    ttl: TTL,
    kind: { mode: 'permits', permits: count },
    // With a limit of attempts, a waiter in the queue that gets no message sleeps for the whole delay.
    retry: { timeout: 60_000, attempts: 1_000, delay: 20_000, jitter: 0 },
    renew: true,
    signals: [],
  };
}

/** Number of waiters in the queue of a key, without entries for the turn and for stand-bys (the next two waiters). */
function inLine(key: string): Promise<number> {
  return looker.zcount(`lock:{${key}}:q`, 0, 1e13);
}

/** Resolves to the lock, and to the number of milliseconds until its grant. */
async function timed(promise: Promise<HeldLock>): Promise<{ lock: HeldLock; took: number }> {
  const from = performance.now();
  return { lock: await promise, took: performance.now() - from };
}

describe('calls of one process that wait for permits', () => {
  test.each([2, 5])(
    'when %i permits are freed at once, as many waiting calls of one process acquire',
    async (count) => {
      const [holder, waiting] = [await newProcess('holder'), await newProcess('waiting')];
      for (let round = 0; round < 5; round++) {
        const key = `k${count}-${round}`;
        const held = await Promise.all(
          Array.from({ length: count }, () => holder.acquire([key], permits(count))),
        );
        const asking = Array.from({ length: count }, () => waiting.acquire([key], permits(count)));
        await until(async () => (await inLine(key)) === 1);
        const timings = asking.map(timed);
        await Promise.all(held.map((lock) => lock.release()));
        const got = await Promise.all(timings);
        expect(Math.max(...got.map(({ took }) => took))).toBeLessThan(TOLD_MS);
        await Promise.all(got.map(({ lock }) => lock.release()));
      }
    },
  );

  test('a holder that renews with a wrong slot loses its permit, and a waiting call acquires the permit', async () => {
    const [store] = nodesTo([server.url]) as [RedisStore];
    await store.connect();
    const waiting = await newProcess('waiting');
    const stray = new Lease(['k'], 'stray', TTL, undefined, { mode: 'permits', permits: 1 });
    await acquireOn(store, stray);
    const call = timed(waiting.acquire(['k'], permits(1)));
    await until(async () => (await inLine('k')) === 1);
    stray.slots = [3];
    const from = performance.now();
    await expect(extendOn(store, stray, TTL)).resolves.toBe(false);
    await store.close();
    const { lock } = await call;
    expect(performance.now() - from).toBeLessThan(TOLD_MS);
    await lock.release();
  });

  test('a waiting call acquires a permit when an earlier call of the same process releases one', async () => {
    const [alice, bob, carol] = [
      await newProcess('alice'),
      await newProcess('bob'),
      await newProcess('carol'),
    ];
    const three = permits(3);
    const [one, two, last] = await Promise.all([1, 2, 3].map(() => alice.acquire(['k'], three)));
    const first = bob.acquire(['k'], three);
    await until(async () => (await inLine('k')) === 1);
    const carols = carol.acquire(['k'], three);
    await until(async () => (await inLine('k')) === 2);
    const [second, third] = [bob.acquire(['k'], three), bob.acquire(['k'], three)];
    await one!.release();
    const firstLock = await first;
    await two!.release();
    // Carol is the first waiter in the queue, and acquires before Bob unless a busy machine makes her ask too late.
    await Promise.race([carols, second]);
    await last!.release();
    const [carolsLock, secondLock] = await Promise.all([carols, second]);
    // By now the stand-bys have asked, and were refused.
    await delay(2 * STANDBY_MS);
    const thirdLock = timed(third);
    await firstLock.release();
    expect((await thirdLock).took).toBeLessThan(TOLD_MS);
    await Promise.all([secondLock, carolsLock, (await thirdLock).lock].map((lock) => lock.release()));
  });

  test('the second of two waiting calls of a process acquires when the permit of a dead holder lapses', async () => {
    const [holder, dead, waiting] = [
      await newProcess('holder'),
      await newProcess('dead'),
      await newProcess('waiting'),
    ];
    const two = permits(2);
    const held = await holder.acquire(['k'], two);
    const dying = await dead.acquire(['k'], { ...two, ttl: 1_000, renew: false });
    const [first, second] = [waiting.acquire(['k'], two), waiting.acquire(['k'], two)];
    await until(async () => (await inLine('k')) === 1);
    const secondLock = timed(second);
    await held.release();
    await first;
    expect((await secondLock).took).toBeLessThan(TOLD_MS);
    expect(dying.isHeld()).toBe(false);
    await Promise.all([await first, await second].map((lock) => lock.release()));
  });
});

test('a single attempt for a permit is refused during the turn of a waiter, even if a permit is free', async () => {
  const [holder, trying] = [await newProcess('holder'), await newProcess('trying')];
  const [store] = nodesTo([server.url]) as [RedisStore];
  await store.connect();
  const kind = { mode: 'permits', permits: 2 } as const;
  const waiter = { keys: ['k'], mode: 'permits', process: 'b'.repeat(16), number: 1, owner: 'bob' } as const;
  const told: number[] = [];
  const subscription = store.listen(waiter, (after, turn) => {
    if (turn) told.push(after);
  });
  await until(() => subscription.ready);
  const position = { waiter, waited: 1_000, next: undefined };
  const once = { ...permits(2), retry: { timeout: 60_000, attempts: 1, delay: 0, jitter: 0 } };
  /** Bob gets a message and does not ask. Another caller makes one attempt instead. */
  const round = async (): Promise<{ outcome: unknown; took: number; messages: number[] }> => {
    const held = await Promise.all([1, 2].map(() => holder.acquire(['k'], permits(2))));
    await acquireOn(store, new Lease(['k'], 'bob', TTL, undefined, kind), { position, ordered: true });
    expect(await inLine('k')).toBe(1);
    told.length = 0;
    const from = performance.now();
    await held[0]!.release();
    const outcome = await trying.acquire(['k'], once).catch((error: unknown) => error);
    const took = performance.now() - from;
    await until(() => told.length > 0);
    const messages = [...told];
    if (outcome instanceof HeldLock) await outcome.release();
    // Two permits are free, so there is one for Bob and one more.
    await held[1]!.release();
    const lock = await trying.acquire(['k'], once);
    await lock.release();
    await looker.flushall();
    return { outcome, took, messages };
  };
  let last = await round();
  // Bob's turn ends after 150 ms, so a round in which the machine took longer shows nothing.
  for (let rounds = 1; last.took >= TURN_MS && rounds < 50; rounds++) last = await round();
  expect(last).toMatchObject({ outcome: { owner: 'bob', holders: [] }, messages: [0] });
  subscription.stop();
  await store.close();
});
