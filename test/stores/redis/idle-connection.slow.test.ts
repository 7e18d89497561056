import { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { Lease } from '../../../lib/core/lease.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { HeldLock } from '../../../lib/redlock/held-lock.js';
import { openClient } from '../../../lib/stores/redis/connection/connection.js';
import { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { acquireOn } from '../../support/ask-store.js';
import { countLocks, newFleet, redlockOver } from '../../support/core.js';
import { PATIENT } from '../../support/patience.js';
import { DURABLE, type RedisServer, startRedis } from '../../support/redis-server.js';
import { startTcpProxy, type TcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';

// A network forgets connections without traffic, as NATs and load balancers do.

/** Milliseconds after which the library counts a connection as idle, and a little more. */
const IDLE = 1_100;

/** The time limit of a node is a fifth of this ttl, which is enough for a new connection on a busy machine. */
const TTL = 30_000;

let server: RedisServer;
let looker: Redis;
let proxy: TcpProxy;
const stores: RedisStore[] = [];

beforeEach(async () => {
  server = await startRedis(DURABLE);
  looker = server.client();
  proxy = await startTcpProxy(server);
});
afterEach(async () => {
  await Promise.all(stores.splice(0).map((store) => store.close()));
  await proxy.close();
  await server.stop();
});

async function openStore(
  store = new RedisStore(openClient(proxy.url), true, newFleet()),
): Promise<RedisStore> {
  stores.push(store);
  await store.connect();
  return store;
}

function acquire(store: RedisStore, key: string): Promise<HeldLock> {
  const options = { ttl: TTL, retry: NO_RETRY, renew: false, signals: [] };
  return redlockOver([store], PATIENT).acquire([key], options);
}

/** Waits until the connection is idle, and forgets it. */
async function forget(): Promise<void> {
  await delay(IDLE);
  proxy.forgetConnections();
}

describe('a store after the network forgot its idle connection', () => {
  test('the only attempt of a call acquires the lock, on a new connection', async () => {
    const store = await openStore();
    await (await acquire(store, 'k')).release();
    await forget();
    const locks = await Promise.all([acquire(store, 'k'), acquire(store, 'l')]);
    await expect(countLocks(looker)).resolves.toBe(2);
    await Promise.all(locks.map((lock) => lock.release()));
  });

  test('each of two calls with different ttls acquires its lock', async () => {
    const store = await openStore();
    await (await acquire(store, 'k')).release();
    await forget();
    const redlock = redlockOver([store], PATIENT);
    const options = { retry: NO_RETRY, renew: false, signals: [] };
    // The requests of one turn of the event loop need two commands.
    const locks = await Promise.all([
      redlock.acquire(['k'], { ...options, ttl: TTL }),
      redlock.acquire(['l'], { ...options, ttl: 2 * TTL }),
    ]);
    await expect(countLocks(looker)).resolves.toBe(2);
    await Promise.all(locks.map((lock) => lock.release()));
  });

  test('a held lock is extended and released, and locks are read', async () => {
    const store = await openStore();
    const lock = await acquire(store, 'k');
    await forget();
    await lock.extend(TTL);
    await forget();
    await expect(store.read(['k'])).resolves.toMatchObject([{ holders: [{ owner: 'me' }] }]);
    await forget();
    await lock.release();
    await expect(countLocks(looker)).resolves.toBe(0);
  });

  test('no acquisition is sent after its attempt has ended (S15)', async () => {
    const store = await openStore();
    const giveUp = new AbortController();
    await forget();
    const options = { ttl: TTL, retry: NO_RETRY, renew: false, signals: [giveUp.signal] };
    const given = redlockOver([store], PATIENT).acquire(['k'], options);
    proxy.refuse();
    await until(() => !store.available);
    giveUp.abort(new Error('given up'));
    await expect(given).rejects.toThrow('given up');
    await looker.config('RESETSTAT');
    await proxy.accept();
    await until(() => store.available);
    await (await acquire(store, 'other')).release();
    await expect(looker.exists('lock:{k}')).resolves.toBe(0);
  });

  test('a node that is down is idle no longer, so that other nodes get no more time to answer (S3)', async () => {
    const store = await openStore();
    await until(() => store.idle);
    proxy.refuse();
    proxy.cut();
    await until(() => !store.idle);
    expect(store.available).toBe(false);
    await proxy.accept();
    await until(() => store.available && store.idle);
  });

  test('an acquisition fails at once when a busy connection is lost', async () => {
    const store = await openStore();
    let outcome: unknown;
    let began: number;
    do {
      began = performance.now();
      await (await acquire(store, 'k')).release();
      proxy.forgetConnections();
      outcome = await acquire(store, 'k').catch((error: unknown) => error);
      if (!(outcome instanceof Error)) await (outcome as HeldLock).release();
      // On a machine that stalls for a second, the connection was idle. Then the step is repeated.
    } while (!(outcome instanceof Error) && performance.now() - began > 1_000);
    expect(outcome).toMatchObject({
      message: expect.stringContaining('the connection was lost before the answer came'),
    });
  });

  test('a server that restarted meanwhile does not vote, even if it has kept the lease (S12)', async () => {
    const store = await openStore(new RedisStore(openClient(proxy.url), true, newFleet(true)));
    const guard = 3_000;
    await until(async () => (await store.check(guard)).state === 'voting');
    // The server learns the script, so that the next acquisition needs no answer.
    await (await acquire(store, 'other')).release();
    await delay(IDLE);
    proxy.dropReplies();
    const lease = new Lease(['k'], 'me', TTL);
    const answer = acquireOn(store, lease, { guard });
    await until(async () => (await looker.exists('lock:{k}')) === 1);
    await server.restart();
    proxy.heal();
    await expect(answer).rejects.toThrow('started or lost its data a short while ago');
  });
});

test('a restarted server does not vote, although a passed-in client has sent the acquisition again (S12)', async () => {
  const client = server.client({ port: proxy.port, retryStrategy: () => 20, maxRetriesPerRequest: null });
  client.on('error', () => undefined);
  const store = await openStore(new RedisStore(client, false, newFleet(true)));
  const guard = 3_000;
  await until(async () => (await store.check(guard)).state === 'voting');
  // The server learns the script, so that the client can send the next acquisition again.
  await (await acquire(store, 'other')).release();
  proxy.holdRequests();
  const answer = acquireOn(store, new Lease(['k'], 'me', 2 * TTL), { guard });
  const outcome = answer.catch((error: unknown) => error);
  proxy.cut();
  await server.restart();
  proxy.heal();
  expect(String(await outcome)).toContain('started or lost its data a short while ago');
  client.disconnect();
});

test('an application with its own client acquires the lock, and is advised to set `keepAlive`', async () => {
  const fleet = newFleet();
  const client = server.client({ port: proxy.port });
  const store = await openStore(new RedisStore(client, false, fleet));
  await (await acquire(store, 'k')).release();
  await forget();
  await (await acquire(store, 'k')).release();
  expect(fleet.warnings).toEqual([expect.stringContaining('set `keepAlive: 10_000`')]);
  client.disconnect();
});

test('an idle connection that is dead is replaced before anybody needs it', async () => {
  const lost = jest.fn();
  const store = await openStore(
    new RedisStore(openClient(proxy.url), true, { ...newFleet(), nodeLost: lost }),
  );
  proxy.forgetConnections();
  await until(() => lost.mock.calls.length > 0);
  await until(() => store.available);
  expect(lost).toHaveBeenCalledTimes(1);
});

test('every connection sends keep-alive probes after ten seconds', async () => {
  await looker.ping();
  const keepAlive = jest.spyOn(Socket.prototype, 'setKeepAlive');
  const store = await openStore();
  const waiter = { process: 'p'.repeat(16), mode: 'exclusive', number: 1, owner: 'me', keys: ['k'] } as const;
  const subscription = store.listen(waiter, () => undefined);
  await until(() => subscription.ready);
  expect(keepAlive.mock.calls).toEqual([
    [true, 10_000],
    [true, 10_000],
  ]);
  subscription.stop();
  keepAlive.mockRestore();
});
