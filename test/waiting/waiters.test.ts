import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { setTimeout as delay } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { RedisStore } from '../../lib/stores/redis/redis-store.js';
import { openClient } from '../../lib/stores/redis/connection/connection.js';
import { LockHeldError } from '../../lib/core/errors.js';
import { TURN_MS } from '../../lib/core/store-times.js';
import { LockInspector } from '../../lib/redlock/inspect/lock-inspector.js';
import type { HeldLock } from '../../lib/redlock/held-lock.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import { countLocks, heldKeys, newFleet, nodesTo, redlockOver } from '../support/core.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { type Contender, outcomeOf, startContenders } from './contenders.js';

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

let server: RedisServer;
let looker: Redis;
const opened: Redlock[] = [];

beforeAll(async () => {
  server = await startRedis();
  looker = server.client();
});
afterAll(() => server.stop());
beforeEach(async () => {
  await looker.flushall();
  // The server notices a moment later that the previous test has closed its connections.
  await until(async () => (await subscribers()) === 0);
});
afterEach(async () => {
  await Promise.all(opened.splice(0).map((redlock) => redlock.close()));
});

/** A `Redlock` with its own connections and its own id. The server sees it as a separate process. */
async function newProcess(owner: string): Promise<Redlock> {
  const nodes = nodesTo([server.url]);
  await Promise.all(nodes.map((node) => node.connect()));
  // Give the node much time to answer. A waiter that gets no answer in time polls after its long delay, and would
  // exceed the limits of these tests.
  const redlock = redlockOver(nodes, { owner, nodeTimeout: TTL / 5 });
  opened.push(redlock);
  return redlock;
}

/** Number of waiters in the queue of a key, without entries for the turn and for stand-bys (the next two waiters). */
function inLine(key: string): Promise<number> {
  return looker.zcount(`lock:{${key}}:q`, 0, 1e13);
}

async function subscriberIds(): Promise<string[]> {
  const list = String(await looker.call('CLIENT', 'LIST', 'TYPE', 'pubsub'));
  return [...list.matchAll(/^id=(\d+)/gm)].map(([, id = '']) => id);
}

async function subscribers(): Promise<number> {
  return (await subscriberIds()).length;
}

/** Bytes of the heap that are in use, without garbage. */
function liveHeap(): number {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
  return process.memoryUsage().heapUsed;
}

/** Resolves to the value of a promise, and to the moment at which it came. */
async function timed<T>(promise: Promise<T>): Promise<{ value: T; at: number }> {
  const value = await promise;
  return { value, at: performance.now() };
}

test('after a release, the next waiter in the queue acquires without polling', async () => {
  const [alice, bob] = [await newProcess('alice'), await newProcess('bob')];
  const held = await alice.acquire(['k'], waiting);
  const next = timed(bob.acquire(['k'], inQueue));
  await until(async () => (await inLine('k')) === 1);
  const released = performance.now();
  await held.release();
  const { value, at } = await next;
  expect(at - released).toBeLessThan(ROOM_MS);
  await value.release();
});

test('a waiter acquires a released lock when the `minHold` of that lock ends', async () => {
  const [alice, bob] = [await newProcess('alice'), await newProcess('bob')];
  const start = performance.now();
  const held = await alice.acquire(['k'], { ...waiting, minHold: 800 });
  const next = timed(bob.acquire(['k'], inQueue));
  await until(async () => (await inLine('k')) === 1);
  await held.release();
  const { value, at } = await next;
  expect(at - start).toBeGreaterThanOrEqual(790);
  expect(at - start).toBeLessThan(800 + ROOM_MS);
  await value.release();
});

test('all waiting calls of a process share one queue entry, and acquire in order', async () => {
  const [alice, bob] = [await newProcess('alice'), await newProcess('bob')];
  const held = await alice.acquire(['k'], waiting);
  const served: number[] = [];
  const calls = Array.from({ length: 20 }, async (_, index) => {
    const lock = await bob.acquire(['k'], waiting);
    served.push(index);
    await lock.release();
  });
  await until(async () => (await inLine('k')) === 1);
  await held.release();
  await Promise.all(calls);
  expect(served).toEqual(Array.from({ length: 20 }, (_, index) => index));
  await expect(inLine('k')).resolves.toBe(0);
});

test('calls of several processes acquire in order of arrival', async () => {
  const processes = [await newProcess('alice'), await newProcess('bob'), await newProcess('carol')];
  const held = await processes[0]!.acquire(['k'], waiting);
  const served: number[] = [];
  // Number of calls that are served before the first slow hand-over. The turn of a waiter may end during a slow hand-over,
  // and later waiters may then come first.
  let inOrder = Infinity;
  let released: number;
  const calls: Promise<void>[] = [];
  const standing = new Set<number>();
  const order = [1, 1, 2, 0, 1, 2, 2, 0];
  for (const [index, process] of order.entries()) {
    const call = processes[process]!.acquire(['k'], waiting).then((lock) => {
      if (performance.now() - released > TURN_MS) inOrder = Math.min(inOrder, served.length);
      served.push(index);
      released = performance.now();
      return lock.release();
    });
    calls.push(call);
    // A process is in the queue from its first call on.
    standing.add(process);
    await until(async () => (await inLine('k')) === standing.size);
    // A waiter that asks again moves back in the queue by the duration of its request. This pause keeps the order.
    await delay(TURN_MS);
  }
  released = performance.now();
  await held.release();
  await Promise.all(calls);
  const arrivals = [...order.keys()];
  expect(served.toSorted()).toEqual(arrivals);
  expect(served.slice(0, inOrder)).toEqual(arrivals.slice(0, inOrder));
});

describe('a waiter that gives up', () => {
  test.each<[string, (controller: AbortController) => AcquireTerms]>([
    ['after its timeout', () => ({ ...waiting, retry: { ...waiting.retry, timeout: 2_500 } })],
    [
      'after its last attempt',
      () => ({ ...waiting, retry: { ...waiting.retry, attempts: 3, delay: 1_000 } }),
    ],
    ['when its signal aborts', ({ signal }) => ({ ...waiting, signals: [signal] })],
  ])('a waiter that gives up %s leaves no queue and no held lock in Redis', async (_when, acquisition) => {
    const [alice, bob] = [await newProcess('alice'), await newProcess('bob')];
    const held = await alice.acquire(['k'], waiting);
    const controller = new AbortController();
    // The second call waits behind the first.
    const calls = [1, 2].map(() => bob.acquire(['k'], acquisition(controller)));
    let isOver = false;
    const outcomes = Promise.allSettled(calls).finally(() => (isOver = true));
    // On a machine that stalls, the calls may end before the test sees them in the queue.
    await until(async () => isOver || (await inLine('k')) === 1);
    controller.abort(new Error('not needed any more'));
    for (const outcome of await outcomes) expect(outcome.status).toBe('rejected');
    await until(async () => (await looker.exists('lock:{k}:q')) === 0);
    await held.release();
    await expect(looker.keys('*')).resolves.toEqual(['lock:{k}']);
    await expect(countLocks(looker)).resolves.toBe(0);
  });
});

test('a waiter that gives up during its turn passes the turn to the next waiter', async () => {
  const [alice, bob, carol] = [await newProcess('alice'), await newProcess('bob'), await newProcess('carol')];
  const held = await alice.acquire(['k'], waiting);
  const controller = new AbortController();
  const first = bob.acquire(['k'], { ...waiting, signals: [controller.signal] });
  await until(async () => (await inLine('k')) === 1);
  const second = timed(carol.acquire(['k'], inQueue));
  await until(async () => (await inLine('k')) === 2);
  const released = performance.now();
  void held.release();
  controller.abort(new Error('enough'));
  await expect(first).rejects.toThrow('enough');
  const { value, at } = await second;
  expect(at - released).toBeLessThan(ROOM_MS);
  await value.release();
});

describe('a waiter whose process no longer answers', () => {
  const options = (key: string) => ({
    module: { nodes: [server.url], nodeTimeout: TTL / 5 },
    key,
    loops: 1,
    lock: { ttl: TTL, retry: { timeout: 60_000, attempts: 1_000, delay: POLL_MS } },
    hold: 0,
  });

  test.each<[string, 'kill' | 'pause']>([
    ['a killed process', 'kill'],
    ['a stopped process', 'pause'],
  ])('a waiter in %s delays the next waiter only briefly', async (_what, fault) => {
    const alice = await newProcess('alice');
    const held = await alice.acquire(['k'], waiting);
    const [dead] = await startContenders(1, options('k'));
    dead!.tell('go');
    await until(async () => (await inLine('k')) === 1);
    const [alive] = await startContenders(1, options('k'));
    const outcome = outcomeOf([alive!], 'once');
    await until(async () => (await inLine('k')) === 2);

    if (fault === 'kill') {
      await dead!.kill();
      await until(async () => (await subscribers()) === 1);
    } else dead!.pause();
    const released = Number(process.hrtime.bigint()) / 1e6;
    await held.release();
    const { served } = await outcome;
    expect(served[0]!.granted - released).toBeLessThan(ROOM_MS);
    if (fault === 'pause') dead!.resume();
    await dead!.kill();
    await alive!.quit();
  });
});

describe('paused waiters', () => {
  /** A process in the queue that no longer reads messages. */
  async function hanging(behind: number): Promise<Contender> {
    const options = {
      module: { nodes: [server.url] },
      key: 'k',
      loops: 1,
      lock: { ttl: TTL, retry: { timeout: 60_000, delay: POLL_MS } },
      hold: 0,
    };
    const [waiter] = await startContenders(1, options);
    waiter!.tell('go');
    await until(async () => (await inLine('k')) === behind + 1);
    waiter!.pause();
    return waiter!;
  }

  // In the first row Carol gets a message about Bob's turn. In the second row she gets a message about the turn after
  // Bob's. In the third row Carol's first call has a turn before the paused process, and her second call waits behind it.
  test.each([
    ['the second waiter', ['bob', 'hangs', 'carol']],
    ['the second and the third waiter', ['bob', 'hangs', 'hangs', 'carol']],
    ['the third waiter, between two calls of another process', ['bob', 'carol', 'hangs', 'carol']],
  ])('a pause of %s delays other waiters only briefly', async (_which, line) => {
    const people = {
      alice: await newProcess('alice'),
      bob: await newProcess('bob'),
      carol: await newProcess('carol'),
    };
    const held = await people.alice.acquire(['k'], waiting);
    const dead: Contender[] = [];
    const calls: Promise<number>[] = [];
    const places = new Set<string>();
    for (const who of line) {
      if (who === 'hangs') dead.push(await hanging(places.size + dead.length));
      else {
        const call = people[who as 'bob' | 'carol'].acquire(['k'], inQueue);
        calls.push(
          call.then(async (lock) => {
            await lock.release();
            return performance.now();
          }),
        );
        places.add(who);
        await until(async () => (await inLine('k')) === places.size + dead.length);
      }
    }
    const released = performance.now();
    await held.release();
    for (const ended of await Promise.all(calls)) expect(ended - released).toBeLessThan(ROOM_MS);
    await Promise.all(dead.map((waiter) => waiter.kill()));
  });
});

describe('the calls of one process', () => {
  /** Resolves to the milliseconds that the calls take together. Each call holds the lock for a moment. */
  async function inTurn(redlock: Redlock, calls: number, terms = waiting): Promise<number> {
    const start = performance.now();
    const all = Array.from({ length: calls }, async () => {
      const lock = await redlock.acquire(['k'], terms);
      await delay(2);
      await lock.release();
    });
    await Promise.all(all);
    return performance.now() - start;
  }

  test('calls of one process acquire one after another without messages when the Redis user may not publish', async () => {
    await looker.call('ACL', 'SETUSER', 'mute', 'on', '>secret', '~*', '&*', '+@all', '-publish');
    const nodes = nodesTo([server.url.replace('redis://', 'redis://mute:secret@')]);
    await Promise.all(nodes.map((node) => node.connect()));
    const mute = redlockOver(nodes, { owner: 'mute', nodeTimeout: TTL / 5 });
    opened.push(mute);
    // Now the server knows the script of a release. Otherwise a release takes two round trips.
    await (await mute.acquire(['k'], waiting)).release();
    // Nobody releases this lock. When it lapses, the first of the calls below is granted.
    await mute.acquire(['k'], { ...waiting, ttl: 500, renew: false });
    expect(await inTurn(mute, 10, inQueue)).toBeLessThan(ROOM_MS);
    await looker.call('ACL', 'DELUSER', 'mute');
  });

  test('the calls of one process need about two commands each, though the process gets messages about its own releases', async () => {
    const alice = await newProcess('alice');
    // Opens the connection for messages.
    await inTurn(alice, 2);
    await looker.config('RESETSTAT');
    await inTurn(alice, 100);
    const [, scripts = '0'] = /cmdstat_evalsha:calls=(\d+)/.exec(await looker.info('commandstats')) ?? [];
    expect(Number(scripts)).toBeLessThan(2.5 * 100);
  });
});

test('a forced release lets the next waiter acquire, in the process of the holder as well as in another process', async () => {
  const [alice, bob] = [await newProcess('alice'), await newProcess('bob')];
  const nodes = nodesTo([server.url]);
  await Promise.all(nodes.map((node) => node.connect()));
  const operator = new LockInspector(nodes, { nodeTimeout: undefined }, new Set());
  for (const [holder, waiter] of [
    [alice, bob],
    [alice, alice],
  ] as const) {
    const held = await holder.acquire(['k'], waiting);
    const next = timed(waiter.acquire(['k'], inQueue));
    await until(async () => (await inLine('k')) === 1);
    const start = performance.now();
    await expect(operator.forceRelease('k')).resolves.toBe(true);
    const { value, at } = await next;
    expect(at - start).toBeLessThan(ROOM_MS);
    await value.release();
    await held.release();
  }
  await Promise.all(nodes.map((node) => node.close()));
});

test('a waiter still acquires, only later, after Redis has lost the queue of waiters', async () => {
  const [alice, bob] = [await newProcess('alice'), await newProcess('bob')];
  const held = await alice.acquire(['k'], { ...waiting, ttl: 3_000 });
  const next = timed(bob.acquire(['k'], inQueue));
  await until(async () => (await inLine('k')) === 1);
  await looker.del('lock:{k}:q');
  const released = performance.now();
  await held.release();
  const { value, at } = await next;
  // Bob asks again when the lock would have lapsed, according to the last answer that he got.
  expect(at - released).toBeLessThan(3_000 + ROOM_MS);
  await value.release();
});

describe('the connection for messages', () => {
  test('a process opens one connection for messages when a call waits, and closes it after a while without waiters', async () => {
    const [alice, bob] = [await newProcess('alice'), await newProcess('bob')];
    await (await bob.acquire(['free'], waiting)).release();
    await expect(subscribers()).resolves.toBe(0);
    const locks = await Promise.all(['a', 'b', 'c'].map((key) => alice.acquire([key], waiting)));
    const next = ['a', 'b', 'c'].map((key) => bob.acquire([key], waiting));
    await until(async () => (await inLine('c')) === 1);
    await expect(subscribers()).resolves.toBe(1);
    await Promise.all(locks.map((lock) => lock.release()));
    const since = performance.now();
    for (const lock of await Promise.all(next)) await lock.release();
    const left = await subscribers();
    // The connection closes after five seconds without waiters.
    expect(performance.now() - since < 4_000 ? left : 1).toBe(1);
    await until(async () => (await subscribers()) === 0);
  });

  test('the connection for messages is replaced when it is cut, and a waiter still acquires soon after a release', async () => {
    const [alice, bob] = [await newProcess('alice'), await newProcess('bob')];
    const held = await alice.acquire(['k'], waiting);
    const next = timed(bob.acquire(['k'], inQueue));
    await until(async () => (await inLine('k')) === 1);
    for (let cut = 0; cut < 5; cut++) {
      await looker.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
      await until(async () => (await subscribers()) === 1);
    }
    const released = performance.now();
    await held.release();
    const { value, at } = await next;
    expect(at - released).toBeLessThan(ROOM_MS);
    await value.release();
  });

  test('the connection for messages is replaced when the server stops answering', async () => {
    const alice = await newProcess('alice');
    const held = await alice.acquire(['k'], waiting);
    const [node] = nodesTo([server.url]) as [RedisStore];
    await node.connect();
    const bob = redlockOver([node], { owner: 'bob', nodeTimeout: TTL / 5 });
    opened.push(bob);
    const next = bob.acquire(['k'], waiting);
    await until(async () => (await inLine('k')) === 1);
    const before = await subscriberIds();
    server.pause();
    await until(() => !node.subscribed);
    server.resume();
    await until(async () => (await subscriberIds()).some((id) => !before.includes(id)));
    await held.release();
    const lock = await next;
    expect(lock.isHeld()).toBe(true);
    await lock.release();
  });

  test('waiters poll when the Redis user may not subscribe to messages', async () => {
    await looker.call('ACL', 'SETUSER', 'deaf', 'on', '>secret', '~*', '+@all', 'resetchannels');
    const url = server.url.replace('redis://', 'redis://deaf:secret@');
    const fleet = newFleet();
    const nodes = nodesTo([url], fleet);
    await Promise.all(nodes.map((node) => node.connect()));
    const deaf = redlockOver(nodes, { owner: 'deaf', nodeTimeout: TTL / 5 });
    opened.push(deaf);
    const alice = await newProcess('alice');
    const held = await alice.acquire(['k'], waiting);
    const polling = { ...waiting, retry: { ...waiting.retry, delay: 100 } };
    const next = deaf.acquire(['k'], polling);
    const denied = /may not subscribe.* &lock:wake:\* \+subscribe/;
    await until(() => fleet.warnings.some((warning) => denied.test(warning)));
    await held.release();
    const lock = await next;
    // The user may not publish either, and the release works all the same (S7).
    const after = alice.acquire(['k'], { ...polling, ttl: 2_000 });
    await until(async () => (await inLine('k')) === 1);
    await lock.release();
    await (await after).release();
    await expect(heldKeys(looker)).resolves.toEqual([]);
    await looker.call('ACL', 'DELUSER', 'deaf');
  });

  test('the connection for messages is a duplicate of the passed-in client, which stays unchanged', async () => {
    const mine = server.client();
    const node = new RedisStore(mine, false, newFleet());
    await node.connect();
    const bob = redlockOver([node], { owner: 'bob', nodeTimeout: TTL / 5 });
    const listeners = mine.eventNames().map((name) => mine.listenerCount(name));
    const alice = await newProcess('alice');
    const held = await alice.acquire(['k'], waiting);
    const next = bob.acquire(['k'], waiting);
    await until(async () => (await inLine('k')) === 1);
    await held.release();
    await (await next).release();
    await expect(mine.ping()).resolves.toBe('PONG');
    expect(mine.eventNames().map((name) => mine.listenerCount(name))).toEqual(listeners);
    await bob.close();
    await until(async () => (await subscribers()) === 0);
    await expect(mine.ping()).resolves.toBe('PONG');
  });
});

test('five thousand waiters of one process need little memory and only one queue entry, and cause no leak warning', async () => {
  const warnings: Error[] = [];
  const warn = (warning: Error): void => void warnings.push(warning);
  process.on('warning', warn);
  const client = openClient(server.url);
  const node = new RedisStore(client, true, newFleet());
  await node.connect();
  const bob = redlockOver([node], { owner: 'bob', nodeTimeout: TTL / 5 });
  const held: HeldLock = await bob.acquire(['k'], waiting);
  const controller = new AbortController();
  const calls: Promise<unknown>[] = [];
  const crowd = { ...waiting, signals: [controller.signal] };
  await looker.config('RESETSTAT');
  const before = liveHeap();
  for (let waiter = 0; waiter < 5_000; waiter++) {
    calls.push(bob.acquire(['k'], crowd).catch((error: unknown) => error));
  }
  await until(async () => (await inLine('k')) === 1);
  const perWaiter = (liveHeap() - before) / 5_000;
  expect(perWaiter).toBeLessThan(8_000);
  const [, scripts = '0'] = /cmdstat_eval(?:sha)?:calls=(\d+)/.exec(await looker.info('commandstats')) ?? [];
  expect(Number(scripts)).toBeLessThan(10);
  controller.abort(new Error('enough'));
  const outcomes = await Promise.all(calls);
  expect(outcomes.every((error) => error instanceof Error && error.message === 'enough')).toBe(true);
  await until(async () => (await looker.exists('lock:{k}:q')) === 0);
  expect(held.isHeld()).toBe(true);
  await held.release();
  await bob.close();
  process.off('warning', warn);
  expect(warnings).toEqual([]);
});

test('a refusal after a wait names the timeout, the holder and the remaining time of the lock', async () => {
  const [alice, bob] = [await newProcess('alice'), await newProcess('bob')];
  await using held = await alice.acquire(['k'], waiting);
  const patient = { ...waiting, retry: { ...waiting.retry, timeout: 3_000 } };
  // The second call waits behind the first, and asks no node.
  const refusals = await Promise.all(
    [1, 2].map(() => bob.acquire(['k'], patient).catch((error: unknown) => error)),
  );
  for (const refusal of refusals) {
    expect(refusal).toBeInstanceOf(LockHeldError);
    expect(refusal).toMatchObject({ owner: 'alice', keys: ['k'], limit: { timeout: 3_000 } });
    expect((refusal as LockHeldError).retryAfter).toBeGreaterThan(TTL / 2);
    expect((refusal as LockHeldError).message).toContain('Gave up after 3000 ms (retry.timeout).');
  }
  expect(held.isHeld()).toBe(true);
});
