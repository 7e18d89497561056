import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import { LockHeldError, LockLostError, LockUnavailableError } from '../../lib/core/errors.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import type { AcquireOptions, Redlock } from '../../lib/redlock/redlock.js';
import { countLocks, nodesTo, redlockOver } from '../support/core.js';
import { type RedisServer, startRedisNodes } from '../support/redis-server.js';
import { startTcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

const TTL = 5_000;
/** What is left of the ttl after drift (S4). */
const USABLE = 4_948;
/** Time limit of a node. A running node answers within it, even if the machine freezes for a moment. */
const NODE_LIMIT = 1_000;
/** What a busy machine may add to a limit of time, in milliseconds; with it, the limit is still well before the ttl. */
const NOISE = 2_000;
const once: AcquireOptions = { ttl: TTL, retry: NO_RETRY, renew: true, signals: [] };
/** For attempts that must succeed: on a busy machine a node may miss its time limit once. */
const patient: AcquireOptions = {
  ...once,
  retry: { timeout: 30_000, attempts: Infinity, delay: 10, jitter: 10 },
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

/** One more process, as the servers see it. */
async function newProcess(
  owner: string,
  urls = servers.map(({ url }) => url),
  nodeTimeout = NODE_LIMIT,
): Promise<Redlock> {
  const nodes = nodesTo(urls);
  await Promise.all(nodes.map((node) => node.connect()));
  const redlock = redlockOver(nodes, { owner, nodeTimeout });
  opened.push(redlock);
  // Every server knows the scripts, so that what follows measures one round trip.
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
])('one of three nodes %s', (_how, takeAway) => {
  test('the lock is acquired, renewed, excluded and released as without the fault', async () => {
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

describe('two of three nodes paused (SIGSTOP)', () => {
  test('an attempt settles at the time limit of a node and names the nodes without an answer (S1, S3)', async () => {
    const alice = await newProcess('alice');
    for (const server of servers.slice(1)) server.pause();
    const { value, after } = await timed(alice.acquire(['k'], once));
    expect(value).toBeInstanceOf(LockUnavailableError);
    expect((value as LockUnavailableError).votes.map(({ vote }) => vote)).toEqual([
      'granted',
      'error',
      'error',
    ]);
    expect(after).toBeLessThan(NODE_LIMIT + NOISE);
  });

  test('waiting settles within retry.timeout (S8), and no key is left when the nodes are back (S6)', async () => {
    const alice = await newProcess('alice');
    for (const server of servers.slice(1)) server.pause();
    const retry = { timeout: 1_000, attempts: Infinity, delay: 200, jitter: 100 };
    const { value, after } = await timed(alice.acquire(['k'], { ...once, ttl: 60_000, retry }));
    expect(value).toBeInstanceOf(LockUnavailableError);
    expect(after).toBeLessThan(1_000 + NOISE);
    for (const server of servers.slice(1)) server.resume();
    await until(async () => (await keysLeft()) === 0);
  });

  test('the holder learns of the loss at the end of validity, before another can acquire (S10)', async () => {
    const [alice, bob] = [await newProcess('alice'), await newProcess('bob')];
    const lock = await alice.acquire(['k'], patient);
    const { signal } = lock;
    let toldAfter: number | undefined;
    for (const server of servers.slice(1)) server.pause();
    const start = performance.now();
    signal.addEventListener('abort', () => {
      toldAfter = performance.now() - start;
    });
    // While the last renewal may still count, nobody can say that it is lost.
    await delay(TTL / 2);
    expect(signal.aborted).toBe(false);
    for (const server of servers.slice(1)) server.resume();
    // The paused servers process the pending renewals in time, so the lock continues.
    await delay(TTL);
    expect(lock.isHeld()).toBe(true);

    for (const server of servers.slice(1)) server.pause();
    const pausedAt = performance.now() - start;
    const longest = pausedAt + USABLE;
    while (!signal.aborted) await delay(1);
    expect(toldAfter).toBeLessThan(longest + NOISE);
    expect(signal.reason).toBeInstanceOf(LockLostError);
    await expect(bob.acquire(['k'], once)).rejects.toBeInstanceOf(LockUnavailableError);
    await lock.release();
  });
});

describe('slow connections', () => {
  test('replies after the time limit of a node count as votes against, and no key is left (S3, S6)', async () => {
    // Far less than after which a node counts as silent, and is sent nothing more until it answers.
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
    expect(after).toBeLessThan(limit + NOISE);
    // Before it would have ended by itself.
    await until(async () => (await keysLeft()) === 0, TTL / 2);
  });

  test('waiting behind others settles within retry.timeout when the gate is slow and the others are paused (S8)', async () => {
    const proxy = await startTcpProxy(servers[0]!);
    const urls = [proxy.url, servers[1]!.url, servers[2]!.url];
    const [alice, bob] = [await newProcess('alice', urls, 60_000), await newProcess('bob')];
    const waiters = (): Promise<number> => servers[0]!.client().zcard('lock:{k}:q');
    // Alice has the lock while Bob waits for it. For a second she knows of that, and asks the gate first.
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
    const { value, after } = await timed(alice.acquire(['k'], { ...once, ttl: 60_000, retry }));
    expect(value).toBeInstanceOf(LockUnavailableError);
    expect(after).toBeLessThan(4_000 + NOISE);
  });

  test('validity counts from the send: a slow reply shortens it and does not extend the lock (S4)', async () => {
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

test('a thread that was blocked past the validity sees the loss before any timer fires (S10)', async () => {
  const alice = await newProcess('alice');
  const lock = await alice.acquire(['k'], patient);
  const { signal } = lock;
  const end = performance.now() + TTL;
  while (performance.now() < end);
  expect(() => lock.assertHeld()).toThrow(LockLostError);
  expect(signal.aborted).toBe(true);
  await lock.release();
});

test('a node that lost its data (FLUSHALL) does not keep a lock alive: a majority that lost it ends it at the next renewal', async () => {
  const alice = await newProcess('alice');
  const lock = await alice.acquire(['k'], patient);
  await Promise.all(servers.slice(1).map((server) => server.client().flushall()));
  const start = performance.now();
  while (lock.isHeld() && performance.now() - start < 2 * TTL) await delay(5);
  expect(performance.now() - start).toBeLessThan(TTL / 3 + NOISE);
  expect(lock.loss).toBeInstanceOf(LockLostError);
  await lock.release();
});
