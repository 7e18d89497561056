import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import { LockHeldError, LockLostError, LockUnavailableError } from '../../lib/core/errors.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import { countLocks, nodesTo, redlockOver } from '../support/core.js';
import { type RedisServer, startRedisNodes } from '../support/redis-server.js';
import { startTcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

const TTL = 5_000;
/** Validity after an instant round trip: the ttl without the allowance for drift (S4). */
const USABLE = 4_948;
/** Time limit of a node, in milliseconds; a busy machine may freeze for a shorter time. */
const NODE_LIMIT = 3_000;
/** An answer is late after this time. It is far above each limit that is tested, and far below `LONG`. */
const LATE = 20_000;
/** A ttl of one minute, in milliseconds. A node's time limit is a fifth of the ttl at most. */
const LONG = 60_000;

/** Options of a lock that is renewed every third of its ttl. */
const short: AcquireTerms = { ttl: TTL, retry: NO_RETRY, renew: true, signals: [] };
/** Options of a single attempt, with a ttl that does not end during a test. */
const once: AcquireTerms = { ...short, ttl: LONG };
/** Options that repeat the attempt until it succeeds, because a node may miss its time limit on a busy machine. */
const patient: AcquireTerms = {
  ...short,
  retry: { timeout: 60_000, attempts: Infinity, delay: 10, jitter: 10 },
};

let servers: RedisServer[];
let opened: Redlock[];

beforeEach(async () => {
  servers = await startRedisNodes(3);
  opened = [];
});
afterEach(async () => {
  await Promise.all(opened.map((redlock) => redlock.close()));
  await Promise.all(servers.map((server) => server.stop()));
});

/** Makes a client that the servers see as another process. */
async function newProcess(
  owner: string,
  urls = servers.map(({ url }) => url),
  nodeTimeout = NODE_LIMIT,
): Promise<Redlock> {
  const nodes = nodesTo(urls);
  await Promise.all(nodes.map((node) => node.connect()));
  const redlock = redlockOver(nodes, { owner, nodeTimeout });
  opened.push(redlock);
  // Loads the scripts into every server, so that the next call takes one round trip.
  await (await redlock.acquire(['warm'], patient)).release();
  return redlock;
}

async function timed<T>(promise: Promise<T>): Promise<{ value: T | Error; after: number }> {
  const start = performance.now();
  const value = await promise.catch((error: unknown) => error as Error);
  return { value, after: performance.now() - start };
}

async function keysLeft(): Promise<number> {
  const sizes = await Promise.all(
    servers.filter(({ running }) => running).map((server) => countLocks(server.client())),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}

describe.each([
  ['killed', (server: RedisServer) => server.kill()],
  ['paused', (server: RedisServer) => server.pause()],
])('with one of three nodes %s', (_how, takeAway) => {
  test('with one of three nodes away, a lock can be acquired, renewed and released, and excludes another client', async () => {
    const [alice, bob] = [await newProcess('alice'), await newProcess('bob')];
    await takeAway(servers[1]!);
    const lock = await alice.acquire(['k'], patient);
    await delay(1.5 * TTL);
    lock.assertHeld();
    await expect(bob.acquire(['k'], once)).rejects.toBeInstanceOf(LockHeldError);
    await lock.release();
    await (await bob.acquire(['k'], patient)).release();
  });
});

describe('with two of three nodes paused (SIGSTOP)', () => {
  test('an attempt rejects within 20 s, with the vote "error" for each paused node (S1, S3)', async () => {
    const alice = await newProcess('alice');
    for (const server of servers.slice(1)) server.pause();
    const { value, after } = await timed(alice.acquire(['k'], once));
    expect(value).toBeInstanceOf(LockUnavailableError);
    expect((value as LockUnavailableError).votes.map(({ vote }) => vote)).toEqual([
      'granted',
      'error',
      'error',
    ]);
    expect(after).toBeLessThan(LATE);
  });

  test('a waiting `acquire` rejects after `retry.timeout`, and leaves no key on the resumed nodes (S6, S8)', async () => {
    const alice = await newProcess('alice');
    for (const server of servers.slice(1)) server.pause();
    const retry = { timeout: 1_000, attempts: Infinity, delay: 200, jitter: 100 };
    const { value, after } = await timed(alice.acquire(['k'], { ...once, retry }));
    expect(value).toBeInstanceOf(LockUnavailableError);
    expect(after).toBeLessThan(LATE);
    for (const server of servers.slice(1)) server.resume();
    // The ttl is longer than this wait, so the keys are deleted, not expired.
    await until(async () => (await keysLeft()) === 0);
  });

  test('a holder without a quorum learns of the loss at the end of validity, before another client can acquire (S10)', async () => {
    const [alice, bob] = [await newProcess('alice'), await newProcess('bob')];
    const lock = await alice.acquire(['k'], patient);
    const { signal } = lock;
    for (const server of servers.slice(1)) server.pause();
    // A renewal has begun. While it may still succeed, the lock is not lost.
    await delay(0.4 * TTL);
    expect(signal.aborted).toBe(false);
    for (const server of servers.slice(1)) server.resume();
    // The resumed servers execute the pending renewal in time, so the lock continues.
    await delay(TTL);
    expect(lock.isHeld()).toBe(true);

    // From here on the paused servers do not answer, so a notice that waited for an answer would never come.
    for (const server of servers.slice(1)) server.pause();
    const pausedAt = performance.now();
    while (!signal.aborted) await delay(1);
    expect(performance.now() - pausedAt).toBeLessThan(LATE);
    expect(signal.reason).toBeInstanceOf(LockLostError);
    await expect(bob.acquire(['k'], once)).rejects.toBeInstanceOf(LockUnavailableError);
    await lock.release();
  });
});

describe('with slow connections', () => {
  test('an attempt rejects when two of three replies exceed the time limit, and leaves no key (S3, S6)', async () => {
    // The replies come after three times this limit, and no node must count as silent by then: a silent node gets no
    // command until it answers.
    const limit = 100;
    const proxies = await Promise.all(servers.map((server) => startTcpProxy(server)));
    const alice = await newProcess(
      'alice',
      proxies.map(({ url }) => url),
      limit,
    );
    for (const proxy of proxies.slice(1)) proxy.delayReplies(3 * limit);
    const { value, after } = await timed(alice.acquire(['k'], once));
    expect(value).toBeInstanceOf(LockUnavailableError);
    expect(after).toBeLessThan(LATE);
    // The ttl is longer than this wait, so the keys were deleted, not expired.
    await until(async () => (await keysLeft()) === 0);
  });

  test('a waiting `acquire` rejects after `retry.timeout` if the node with the queue is slow and all other nodes are paused (S8)', async () => {
    const proxy = await startTcpProxy(servers[0]!);
    const urls = [proxy.url, servers[1]!.url, servers[2]!.url];
    const [alice, bob] = [await newProcess('alice', urls, 60_000), await newProcess('bob')];
    const waiters = (): Promise<number> => servers[0]!.client().zcard('lock:{k}:q');
    // Bob waits while Alice holds the lock, so Alice learns that the lock has a waiter. For the next second, an attempt
    // of Alice therefore begins with a request to one node only: the node that keeps the queue of waiters.
    const before = await bob.acquire(['k'], patient);
    const hers = alice.acquire(['k'], patient);
    await until(async () => (await waiters()) === 1);
    const his = bob.acquire(['k'], patient);
    await until(async () => (await waiters()) === 2);
    await before.release();
    await (await hers).release();
    await (await his).release();
    for (const server of servers.slice(1)) server.pause();
    proxy.delayReplies(3_000);
    const retry = { timeout: 4_000, attempts: Infinity, delay: 200, jitter: 100 };
    const { value, after } = await timed(alice.acquire(['k'], { ...once, retry }));
    expect(value).toBeInstanceOf(LockUnavailableError);
    expect(after).toBeLessThan(LATE);
  });

  test('the validity of a lock counts from the request, so a slow reply shortens it (S4)', async () => {
    const proxies = await Promise.all(servers.map((server) => startTcpProxy(server)));
    const alice = await newProcess(
      'alice',
      proxies.map(({ url }) => url),
    );
    for (const proxy of proxies) proxy.delayReplies(30);
    const lock = await alice.acquire(['k'], patient);
    expect(lock.remaining()).toBeLessThanOrEqual(USABLE - 29);
    await lock.release();
  });
});

test('a holder whose thread was blocked past the validity sees the loss before any timer fires (S10)', async () => {
  const alice = await newProcess('alice');
  const lock = await alice.acquire(['k'], patient);
  const { signal } = lock;
  const end = performance.now() + TTL;
  while (performance.now() < end);
  expect(() => lock.assertHeld()).toThrow(LockLostError);
  expect(signal.aborted).toBe(true);
  await lock.release();
});

test('a holder loses its lock at the next renewal after FLUSHALL on a majority of the nodes', async () => {
  const alice = await newProcess('alice');
  // The next renewal comes after a third of the ttl. A stall of some seconds does not move it beyond the bound below.
  const ttl = 3 * TTL;
  const lock = await alice.acquire(['k'], { ...patient, ttl });
  await Promise.all(servers.slice(1).map((server) => server.client().flushall()));
  const start = performance.now();
  while (lock.isHeld()) await delay(5);
  expect(performance.now() - start).toBeLessThan(0.7 * ttl);
  expect(lock.loss).toBeInstanceOf(LockLostError);
  await lock.release();
});
