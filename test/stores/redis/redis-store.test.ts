import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Cluster, Redis, type RedisOptions } from 'ioredis';
import { Redis as Redis6 } from 'ioredis-6';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { setTimeout as delay } from 'node:timers/promises';
import { openClient } from '../../../lib/stores/redis/connection/connection.js';
import { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { Lease } from '../../../lib/core/lease.js';
import { LockHeldError, LockUnavailableError, NotSentError } from '../../../lib/core/errors.js';
import { NODE_ERROR_CHANNEL } from '../../../lib/core/lock-events.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import { LINGER_MS } from '../../../lib/core/store-times.js';
import type { AcquireTerms, Redlock } from '../../../lib/redlock/redlock.js';
import { acquireOn, extendOn } from '../../support/ask-store.js';
import { countLocks, newFleet, nodesTo, recordOf, redlockOver } from '../../support/core.js';
import { PATIENT } from '../../support/patience.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { scriptedNodes } from '../../support/scripted-node.js';
import { startTcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';

const once: AcquireTerms = { ttl: 30_000, retry: NO_RETRY, renew: false, signals: [] };

/** Milliseconds. Far below the ttl of 60 seconds, so a lock that is gone by then was released, and has not expired. */
const RELEASED_WITHIN = 30_000;

let server: RedisServer;
let looker: Redis;
let ends: (() => unknown)[];

beforeEach(async () => {
  server = await startRedis();
  looker = server.client();
  ends = [];
});
afterEach(async () => {
  await Promise.all(ends.map((end) => end()));
  await server.stop();
});

/** A connected node with a connection of its own. */
async function openNode(target: string | RedisOptions = server.url): Promise<RedisStore> {
  const node = new RedisStore(openClient(target), true, newFleet());
  ends.push(() => node.close());
  await node.connect();
  return node;
}

/** A connected node over a client that is passed in. */
async function borrowNode(client: Redis): Promise<RedisStore> {
  ends.push(() => client.disconnect());
  const node = new RedisStore(client, false, newFleet());
  await node.connect();
  return node;
}

/** Locks with a time limit that is long enough for a busy machine. */
function redlockOn(node: RedisStore): Redlock {
  return redlockOver([node], PATIENT);
}

/** Locks with a short time limit for each request, for tests in which the server does not answer. */
function hastyRedlockOn(node: RedisStore): Redlock {
  return redlockOver([node], { nodeTimeout: 100 });
}

/**
 * Number of times that the server ran each command since `CONFIG RESETSTAT`. Without PING: the connection tests itself after
 * a second without traffic.
 */
async function commandCounts(): Promise<Record<string, number>> {
  const lines = (await looker.info('commandstats')).matchAll(/^cmdstat_(\S+?):calls=(\d+)/gm);
  const ours = [...lines].filter(([, name]) => !/^(info|config|ping)/.test(name ?? ''));
  return Object.fromEntries(ours.map(([, name, calls]) => [name, Number(calls)]));
}

describe('a store of one Redis', () => {
  test('a store sends one command for an uncontended acquire, and one command for its release', async () => {
    const node = await openNode();
    await (await redlockOn(node).acquire(['warm'], once)).release();
    await looker.config('RESETSTAT');
    const lock = await redlockOn(node).acquire(['k'], once);
    await lock.release();
    // The store sends only EVALSHA. The scripts run TIME, GET and SET, which the server counts as well.
    expect(await commandCounts()).toEqual({
      evalsha: 2,
      time: 1,
      get: 2,
      set: 2,
    });
  });

  test('a store sends the text of each script only once', async () => {
    const node = await openNode();
    await looker.config('RESETSTAT');
    for (let round = 0; round < 3; round++) await (await redlockOn(node).acquire(['k'], once)).release();
    expect(await commandCounts()).toMatchObject({ evalsha: 6, eval: 2 });
  });
});

test('a permit has the slot that the sent command names, even if the request object changes later (S20)', async () => {
  const node = await openNode();
  const lease = new Lease(['k'], 'me', 30_000, undefined, { mode: 'permits', permits: 5 });
  const request = { lease, since: Date.now(), limit: 10_000, guard: 0, proposal: 0, position: undefined };
  const asked = { ...request, wish: { slots: [3], exactly: false } };
  const reply = new Promise((resolve) => node.acquire([asked], false, (_, answer) => resolve(answer)));
  asked.wish = { slots: [1], exactly: true };
  expect(await reply).toMatchObject({ granted: true, slots: [3] });
});

describe('a store whose server has lost its scripts (SCRIPT FLUSH)', () => {
  test('a store still acquires, extends and releases locks after SCRIPT FLUSH', async () => {
    const redlock = redlockOn(await openNode());
    for (let round = 0; round < 20; round++) {
      await looker.script('FLUSH');
      const lock = await redlock.acquire(['k'], once);
      await looker.script('FLUSH');
      await lock.extend();
      await looker.script('FLUSH');
      await lock.release();
      await expect(countLocks(looker)).resolves.toBe(0);
    }
  });

  test('a store does not resend the script of an acquire whose caller has given up (S15)', async () => {
    const proxy = await startTcpProxy(server);
    ends.push(() => proxy.close());
    const node = await openNode(proxy.url);
    await looker.script('FLUSH');
    proxy.holdReplies();
    // The NOSCRIPT reply is held back until the attempt has timed out and sent its release.
    await expect(hastyRedlockOn(node).acquire(['k'], once)).rejects.toBeInstanceOf(LockUnavailableError);
    proxy.heal();
    await extendOn(node, new Lease(['after'], 'me', 100), 100);
    await expect(looker.exists('lock:{k}')).resolves.toBe(0);
    expect(await commandCounts()).not.toHaveProperty('set');
  });

  test('the store of a thread does not resend the script for a lock that was taken back, whose release it does not see (S15, S31)', async () => {
    const proxy = await startTcpProxy(server);
    ends.push(() => proxy.close());
    const node = await openNode(proxy.url);
    let isTakenBack = false;
    const kept = new Lease(['k'], 'me', 60_000);
    const copy = Lease.copied(
      kept,
      0,
      () => false,
      () => isTakenBack,
    );
    for (const send of [
      () => acquireOn(node, copy, { heals: true, proposal: 1 }),
      () => extendOn(node, copy, 60_000),
    ]) {
      isTakenBack = false;
      await looker.script('FLUSH');
      const [evals, evalshas] = [await commandCountOf('eval'), await commandCountOf('evalsha')];
      proxy.holdReplies();
      const sent = send();
      await until(async () => (await commandCountOf('evalsha')) > evalshas);
      isTakenBack = true;
      proxy.heal();
      await expect(sent).rejects.toThrow(NotSentError);
      expect(await commandCountOf('eval')).toBe(evals);
    }
    await expect(looker.exists('lock:{k}')).resolves.toBe(0);
    // A request that waits for its connection is not sent either.
    await expect(acquireOn(node, copy, { heals: true, proposal: 1 })).rejects.toThrow(NotSentError);
  });

  test('a node is not told as failed when it was not asked to store and to extend a lock that ended meanwhile', async () => {
    const proxy = await startTcpProxy(server);
    ends.push(() => proxy.close());
    const node = await openNode(proxy.url);
    const lock = await redlockOver([node, ...scriptedNodes(2)], PATIENT).acquire(['k'], once);
    // The answer to this request comes after those to all earlier ones.
    const caughtUp = (): Promise<unknown> => extendOn(node, new Lease(['other'], 'me', 100), 100);
    await caughtUp();
    const told: unknown[] = [];
    const tell = (event: unknown): void => void told.push(event);
    subscribe(NODE_ERROR_CHANNEL, tell);
    await looker.script('FLUSH');
    const evalshas = await commandCountOf('evalsha');
    proxy.holdReplies();
    lock.missedBy(0b001);
    await lock.extend();
    await until(async () => (await commandCountOf('evalsha')) === evalshas + 2);
    const released = lock.release();
    proxy.heal();
    await released;
    await caughtUp();
    unsubscribe(NODE_ERROR_CHANNEL, tell);
    expect(told).toEqual([]);
    await expect(countLocks(looker)).resolves.toBe(0);
  });
});

describe('no lock stays held', () => {
  test('an acquire that reached a paused server and timed out leaves no lock (S6, SIGSTOP)', async () => {
    const node = await openNode();
    await (await redlockOn(node).acquire(['warm'], once)).release();
    const [evalshas, sets] = [await commandCountOf('evalsha'), await commandCountOf('set')];
    server.pause();
    const acquiring = hastyRedlockOn(node).acquire(['k'], { ...once, ttl: 60_000 });
    await expect(acquiring).rejects.toThrow('no answer within 100 ms');
    server.resume();
    // The server runs the acquire now, too late to store anything (S16), and then the release.
    await until(async () => (await commandCountOf('evalsha')) >= evalshas + 2);
    expect(await commandCountOf('set')).toBe(sets);
    await expect(countLocks(looker)).resolves.toBe(0);
  });

  test('an acquire whose reply was lost with the connection leaves no lock, because the store retries the release (S6)', async () => {
    const proxy = await startTcpProxy(server);
    ends.push(() => proxy.close());
    const node = await openNode(proxy.url);
    await (await redlockOn(node).acquire(['warm'], once)).release();
    proxy.holdReplies();
    const acquiring = redlockOn(node).acquire(['k'], { ...once, ttl: 60_000 });
    await until(async () => (await looker.exists('lock:{k}')) === 1);
    proxy.cut();
    proxy.refuse();
    await expect(acquiring).rejects.toBeInstanceOf(LockUnavailableError);
    await expect(looker.exists('lock:{k}')).resolves.toBe(1);
    proxy.heal();
    await until(async () => (await countLocks(looker)) === 0, RELEASED_WITHIN);
  });

  test('a lock that was released without a connection is freed once the node is connected again', async () => {
    const proxy = await startTcpProxy(server);
    ends.push(() => proxy.close());
    const lock = await redlockOn(await openNode(proxy.url)).acquire(['k'], { ...once, ttl: 60_000 });
    proxy.cut();
    proxy.refuse();
    await lock.release();
    await expect(looker.exists('lock:{k}')).resolves.toBe(1);
    proxy.heal();
    await until(async () => (await countLocks(looker)) === 0, RELEASED_WITHIN);
  });

  test.each([
    ['the node confirmed the longer ttl', false],
    ['the confirmation of the longer ttl was lost', true],
  ])('a late release frees an extended lock even after the original ttl if %s (S6)', async (_what, lost) => {
    const proxy = await startTcpProxy(server);
    ends.push(() => proxy.close());
    // With so short a ttl a node has little time to answer, so one attempt may not be enough.
    const retry = { timeout: 20_000, attempts: Infinity, delay: 10, jitter: 0 };
    const redlock = redlockOn(await openNode(proxy.url));
    const warm = await redlock.acquire(['warm'], once);
    await warm.extend();
    await warm.release();
    const ttl = 2_500;
    const lock = await redlock.acquire(['k'], { ...once, ttl, retry });
    if (lost) proxy.dropReplies();
    const extending = lock.extend(60_000).catch((error: Error) => error);
    await until(async () => (await looker.pttl('lock:{k}')) > 30_000 + LINGER_MS);
    if (!lost) await extending;
    proxy.cut();
    proxy.refuse();
    await extending;
    await lock.release();
    await delay(ttl + 100);
    await expect(countLocks(looker)).resolves.toBe(1);
    proxy.heal();
    await until(async () => (await countLocks(looker)) === 0, RELEASED_WITHIN);
  });

  test('a lock that was released without a connection is freed once the node is connected again, even if the wall clock jumps forward (S6)', async () => {
    const proxy = await startTcpProxy(server);
    ends.push(() => proxy.close());
    const lock = await redlockOn(await openNode(proxy.url)).acquire(['k'], { ...once, ttl: 60_000 });
    proxy.cut();
    proxy.refuse();
    await lock.release();
    const wall = Date.now.bind(Date);
    const clock = jest.spyOn(Date, 'now').mockImplementation(() => wall() + 3_600_000);
    await expect(countLocks(looker)).resolves.toBe(1);
    ends.push(() => clock.mockRestore());
    proxy.heal();
    await until(async () => (await countLocks(looker)) === 0, RELEASED_WITHIN);
  });

  test.each([
    ['kept for the rest of minHold', 20_000],
    ['freed after minHold', 100],
  ])(
    'a lock that was released without a connection is %s, once the node is connected again',
    async (_what, minHold) => {
      const proxy = await startTcpProxy(server);
      ends.push(() => proxy.close());
      const redlock = redlockOn(await openNode(proxy.url));
      const lock = await redlock.acquire(['k'], { ...once, ttl: 60_000, minHold });
      proxy.cut();
      proxy.refuse();
      await lock.release();
      await delay(500);
      await expect(looker.pttl('lock:{k}')).resolves.toBeGreaterThan(30_000 + LINGER_MS);
      proxy.heal();
      const left = Math.max(0, minHold - 500);
      await until(async () => (await looker.pttl('lock:{k}')) <= left + LINGER_MS, RELEASED_WITHIN);
      await expect(countLocks(looker)).resolves.toBe(left > 0 ? 1 : 0);
    },
  );

  test('a release without a connection stores after the reconnection that its schedule tick has run, even after the ttl', async () => {
    const proxy = await startTcpProxy(server);
    ends.push(() => proxy.close());
    const tick = { schedule: 's', at: 5, life: 60_000, from: 'release' } as const;
    // With so short a ttl a node has little time to answer, so one attempt may not be enough.
    const retry = { timeout: 20_000, attempts: Infinity, delay: 10, jitter: 0 };
    const redlock = redlockOn(await openNode(proxy.url));
    const lock = await redlock.acquire(['k'], { ...once, ttl: 500, retry, tick });
    proxy.cut();
    proxy.refuse();
    await lock.release();
    await delay(600);
    await expect(looker.keys('*:t:*')).resolves.toEqual([]);
    proxy.heal();
    await until(async () => (await looker.get('lock:{k}:t:s')) === '0000000000000005:me');
  });

  test('an acquire leaves no lock when a passed-in client with an offline queue is not connected (S15)', async () => {
    // By default, ioredis has an offline queue, and resends unanswered commands after a reconnection.
    const proxy = await startTcpProxy(server);
    ends.push(() => proxy.close());
    const client = new Redis(proxy.url, { retryStrategy: () => 20 });
    client.on('error', () => {});
    const node = await borrowNode(client);
    proxy.cut();
    proxy.refuse();
    await until(() => client.status !== 'ready');
    await expect(redlockOn(node).acquire(['k'], once)).rejects.toThrow('not connected');
    proxy.heal();
    await until(() => client.status === 'ready');
    await client.ping();
    await expect(countLocks(looker)).resolves.toBe(0);
  });

  test('an acquire that a passed-in client sends again after a cut of its connection leaves no lock (S15)', async () => {
    const proxy = await startTcpProxy(server);
    ends.push(() => proxy.close());
    const client = new Redis(proxy.url, { retryStrategy: () => 20, maxRetriesPerRequest: null });
    client.on('error', () => {});
    const node = await borrowNode(client);
    await (await redlockOn(node).acquire(['warm'], once)).release();
    proxy.holdRequests();
    const acquiring = hastyRedlockOn(node).acquire(['k'], { ...once, ttl: 60_000 });
    acquiring.catch(() => {});
    await delay(10);
    proxy.cut();
    await expect(acquiring).rejects.toBeInstanceOf(LockUnavailableError);
    proxy.heal();
    // Once connected, the client sends the acquire again, too late to store anything (S16), and then the release.
    await until(async () => (await commandCountOf('evalsha')) >= 4);
    await until(async () => (await countLocks(looker)) === 0, RELEASED_WITHIN);
  });
});

test('a store sends a release again when the server refuses it, and logs the refusal (NOREPLICAS)', async () => {
  const fleet = newFleet();
  const [node] = nodesTo([server.url], fleet) as [RedisStore];
  ends.push(() => node.close());
  await node.connect();
  const lock = await redlockOn(node).acquire(['k'], { ...once, ttl: 60_000 });
  await looker.config('SET', 'min-replicas-to-write', '1');
  await lock.release();
  await expect(countLocks(looker)).resolves.toBe(1);
  expect(fleet.warnings).toContainEqual(expect.stringMatching(/refuses to release locks.*NOREPLICAS/));
  await looker.config('SET', 'min-replicas-to-write', '0');
  await until(async () => (await countLocks(looker)) === 0, RELEASED_WITHIN);
});

test("a store sends an acquire a second time if its estimate of the server's clock was behind (S16)", async () => {
  const proxy = await startTcpProxy(server);
  ends.push(() => proxy.close());
  // This lock loads the scripts for connecting and for acquires into the server. So the slow connection below waits for
  // only two replies, and no acquire has to be sent again with the text of its script.
  await (await redlockOn(await openNode()).acquire(['warm'], once)).release();
  const client = new Redis(proxy.url);
  client.on('error', () => {});
  await client.ping();
  // The store learns the server's clock from a reply that is 3.5 seconds late, so its estimate is 3.5 seconds behind.
  proxy.delayReplies(3_500);
  const node = await borrowNode(client);
  proxy.delayReplies(0);
  await looker.config('RESETSTAT');
  const lock = await redlockOver([node], { nodeTimeout: 3_000 }).acquire(['k'], once);
  expect(lock.isHeld()).toBe(true);
  // The server refused the first acquire, because the deadline from the estimate had passed.
  await expect(commandCounts()).resolves.toMatchObject({ evalsha: 2, set: 1 });
  await lock.release();
});

test('a store works with a client that returns numbers as strings', async () => {
  const client = new Redis(server.url, { stringNumbers: true });
  const redlock = redlockOn(await borrowNode(client));
  const lock = await redlock.acquire(['k'], once);
  await lock.extend();
  await expect(redlock.acquire(['k'], once)).rejects.toMatchObject({ code: 'LOCK_HELD' });
  await lock.release();
  await expect(countLocks(looker)).resolves.toBe(0);
});

test('a store asks again if a passed-in client reconnected before the answer arrived (S12, S17)', async () => {
  const proxy = await startTcpProxy(server);
  ends.push(() => proxy.close());
  const client = new Redis(proxy.url, { retryStrategy: () => 20, maxRetriesPerRequest: null });
  client.on('error', () => {});
  const redlock = redlockOver([await borrowNode(client)], PATIENT);
  await (await redlock.acquire(['warm'], once)).release();
  proxy.holdRequests();
  const acquiring = redlock.acquire(['k'], { ...once, ttl: 60_000 });
  proxy.cut();
  proxy.heal();
  await (await acquiring).release();
  expect(await countLocks(looker)).toBe(0);
});

async function commandCountOf(command: string): Promise<number> {
  return (await commandCounts())[command] ?? 0;
}

describe('a store', () => {
  test('a store grants locks again after its server has restarted', async () => {
    const node = await openNode();
    const redlock = redlockOn(node);
    await server.kill();
    await until(async () =>
      redlock.acquire(['k'], once).then(
        () => false,
        (error: Error) => error.message.includes('not connected'),
      ),
    );
    await server.start();
    await until(() =>
      redlock.acquire(['k'], once).then(
        (lock) => lock.release().then(() => true),
        () => false,
      ),
    );
    // The record of the lock is written by its acquire and by its release.
    expect(await commandCountOf('set')).toBe(2);
  });

  test.each([
    ['a dead connection', {}],
    ['a dead connection with a commandTimeout', { commandTimeout: 3_000 }],
  ])('a store replaces %s, on which no packets arrive any more', async (_what, options) => {
    const proxy = await startTcpProxy(server);
    ends.push(() => proxy.close());
    const node = await openNode({ host: proxy.host, port: proxy.port, ...options });
    const hasty = hastyRedlockOn(node);
    proxy.blackHole();
    await expect(hasty.acquire(['k'], once)).rejects.toThrow('no answer');
    // TCP alone would notice the dead connection after minutes.
    await until(() =>
      hasty.acquire(['k'], once).then(
        () => false,
        (error: Error) => error.message.includes('not connected'),
      ),
    );
    proxy.heal();
    await until(() =>
      redlockOn(node)
        .acquire(['k'], once)
        .then(
          (lock) => lock.release().then(() => true),
          () => false,
        ),
    );
  });

  test('a closed store rejects pending and later calls of `connect()` over a passed-in client', async () => {
    const client = new Redis({ host: '127.0.0.1', port: 1, retryStrategy: () => 20 });
    client.on('error', () => undefined);
    ends.push(() => client.disconnect());
    const node = new RedisStore(client, false, newFleet());
    const connecting = node.connect();
    await node.close();
    const closed = { name: 'ClosedStoreError', message: 'the store was closed before it was connected' };
    await expect(connecting).rejects.toMatchObject(closed);
    await expect(node.connect()).rejects.toMatchObject(closed);
  });

  test('a closed store adds no listeners to a passed-in client', async () => {
    const client = server.client();
    const listeners = client.listenerCount('ready');
    const node = new RedisStore(client, false, newFleet());
    await node.close();
    await expect(node.connect()).rejects.toMatchObject({ name: 'ClosedStoreError' });
    expect(client.listenerCount('ready')).toBe(listeners);
  });

  test('a closed store rejects pending and later calls of `connect()` over its own connection', async () => {
    const proxy = await startTcpProxy(server);
    ends.push(() => proxy.close());
    proxy.blackHole();
    const node = new RedisStore(openClient(proxy.url), true, newFleet());
    const connecting = node.connect();
    await node.close();
    await expect(connecting).rejects.toMatchObject({ name: 'ClosedStoreError' });
    await expect(node.connect()).rejects.toMatchObject({ name: 'ClosedStoreError' });
  });

  test('a store uses a client that is passed in, and never closes it', async () => {
    const client = server.client();
    const node = await borrowNode(client);
    const listeners = client.listenerCount('ready');
    await (await redlockOn(node).acquire(['k'], once)).release();
    await node.close();
    await expect(client.ping()).resolves.toBe('PONG');
    expect(client.listenerCount('ready')).toBe(listeners - 1);
    expect(client.listenerCount('error')).toBe(1);
  });

  test('a store connects a lazy client that is passed in', async () => {
    const node = await borrowNode(new Redis(server.url, { lazyConnect: true }));
    const lock = await redlockOn(node).acquire(['k'], once);
    expect(lock.isHeld()).toBe(true);
    await lock.release();
  });

  test('a store works with a client of ioredis 6', async () => {
    const client = new Redis6(server.url);
    const node = await borrowNode(client as unknown as Redis);
    const lock = await redlockOn(node).acquire(['k'], once);
    await expect(redlockOn(node).acquire(['k'], once)).rejects.toBeInstanceOf(LockHeldError);
    await lock.release();
    await expect(countLocks(looker)).resolves.toBe(0);
  });

  test.each([
    ['redis://user:secret@localhost:7000/3', 'localhost:7000/3'],
    ['rediss://:secret@example.com', 'example.com:6379'],
    [{ host: 'h', port: 1, password: 'secret' }, 'h:1'],
    [{ path: '/tmp/redis.sock' }, '/tmp/redis.sock'],
    [{ sentinels: [{ host: 's', port: 2 }], name: 'main' }, 'sentinel:main via s:2'],
  ])('a store has a name without credentials: %j gives %s', (target, name) => {
    expect(new RedisStore(openClient(target), true, newFleet()).name).toBe(name);
  });

  test.each([
    [['redis://user:secret@a:7000', 'redis://b:7001'], 'cluster a:7000'],
    [[{ host: 'a', port: 7000, password: 'secret' }], 'cluster a:7000'],
    [[7000], 'cluster localhost:7000'],
  ])('a store of a Cluster has a name without credentials: %j gives %s', (startupNodes, name) => {
    const cluster = new Cluster(startupNodes, { lazyConnect: true });
    expect(new RedisStore(cluster, false, newFleet()).name).toBe(name);
  });

  test('each store has a unique name, even if several stores have the same address', () => {
    const group = { sentinels: [{ host: 's' }], name: 'main' };
    const nodes = [group, group, 'redis://h', 'redis://h', 'redis://h'];
    const fleet = newFleet();
    expect(nodes.map((node) => new RedisStore(openClient(node), true, fleet).name)).toEqual([
      'sentinel:main via s:26379',
      'sentinel:main via s:26379 (2)',
      'h:6379',
      'h:6379 (2)',
      'h:6379 (3)',
    ]);
  });
});

test('an acquire reports that a lock without an expiry never ends by itself', async () => {
  await looker.set('lock:{k}', recordOf('somebody'));
  const error = await redlockOn(await openNode())
    .acquire(['k'], once)
    .catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ code: 'LOCK_HELD', owner: 'somebody', retryAfter: Infinity });
  expect((error as Error).message).toContain('without an expiry');
});
