import { setTimeout as delay } from 'node:timers/promises';
import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { createClient, RESP_TYPES } from 'redis';
import { LockService, LockUnavailableError } from '../../../../lib/index.js';
import { NO_RETRY } from '../../../../lib/core/lock-options.js';
import { nodeRedis, storeOver } from '../../../support/clients.js';
import { heldKeys, newFleet, redlockOver } from '../../../support/core.js';
import { cleanUpAfterTests } from '../../../support/leftovers.js';
import { startApp } from '../../../support/nest-app.js';
import { PATIENT } from '../../../support/patience.js';
import { type RedisServer, startRedis } from '../../../support/redis-server.js';
import { until } from '../../../support/until.js';
import { NODE_REDIS_RIGHTS, RIGHTS } from '../../../variants/acl-rights.js';

// Behaviour that differs between clients of node-redis and of ioredis.

const once = { retry: false } as const;
const terms = { ttl: 60_000, retry: NO_RETRY, renew: false, signals: [] };

let server: RedisServer;
let looker: Redis;
beforeAll(async () => {
  server = await startRedis({ args: ['--appendonly', 'yes'] });
  looker = server.client();
});

describe('a node-redis client that is passed in', () => {
  test('a node-redis client serves locks only while it is open, and otherwise the error says that the client is not open', async () => {
    const client = createClient({ url: server.url });
    client.on('error', () => undefined);
    const locks = (await startApp({}, { nodes: client }, { logger: SILENT })).get(LockService);
    await expect(locks.acquire('k', once)).rejects.toThrow(
      'the client in `nodes` is not open; connect it before the module starts',
    );
    await client.connect();
    await until(async () => (await locks.tryAcquire('k').catch(() => null)) !== null);
    client.destroy();
    await expect(locks.acquire('l', once)).rejects.toThrow('the client in `nodes` is not open');
  });

  test('a passed-in node-redis client stays open when the module shuts down, and keeps no listeners of the library', async () => {
    const client = nodeRedis(server.url);
    await until(() => client.isReady);
    const before = client.eventNames().map((name) => client.listenerCount(name));
    const app = await startApp({}, { nodes: client });
    await (await app.get(LockService).acquire('k2', once)).release();
    const taken = await app.get(LockService).acquire('k3', once);
    const waiting = app.get(LockService).acquire('k3', { retry: { timeout: 60_000, delay: 30_000 } });
    await until(async () => (await looker.zcard('lock:{k3}:q')) === 1);
    await taken.release();
    await (await waiting).release();
    await app.close();
    expect(client.eventNames().map((name) => client.listenerCount(name))).toEqual(before);
    await expect(client.ping()).resolves.toBe('PONG');
    await until(async () => !String(await looker.client('LIST')).includes('nestjs-redlock-messages'));
  });

  test.each([
    ['RESP2', { RESP: 2 as const }],
    ['RESP3', { RESP: 3 as const }],
    [
      'Buffers in place of strings',
      { commandOptions: { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } } },
    ],
    ['no offline queue', { disableOfflineQueue: true }],
    ['a keyPrefix', { keyPrefix: 'own:' }],
  ])(
    'a store reads, lists and waits for locks over node-redis with %s, and warns that a server restart can lose locks',
    async (what, options) => {
      const fleet = newFleet();
      const node = storeOver(nodeRedis(server.url, options), fleet);
      await node.connect();
      expect(fleet.warnings).toEqual([
        expect.stringContaining('set appendonly to yes and appendfsync to always'),
      ]);
      const redlock = redlockOver([node], PATIENT);
      const key = `key of ${what}`;
      const lock = await redlock.acquire([key], terms);
      await expect(node.read([key])).resolves.toMatchObject([
        { mode: 'exclusive', holders: [{ owner: 'me' }] },
      ]);
      const pages: string[] = [];
      for await (const page of node.scan(key)) pages.push(...page);
      expect(pages).toEqual([key]);
      const prefix = what === 'a keyPrefix' ? 'own:' : '';
      await expect(looker.exists(`${prefix}lock:{${key}}`)).resolves.toBe(1);
      const retry = { timeout: 60_000, attempts: Infinity, delay: 30_000, jitter: 0 };
      const waiting = redlock.acquire([key], { ...terms, retry });
      await until(async () => (await looker.zcard(`${prefix}lock:{${key}}:q`)) === 1);
      await looker.script('FLUSH');
      await lock.release();
      await (await waiting).release();
      expect(await heldKeys(looker)).not.toContain(`${prefix}lock:{${key}}`);
      await redlock.close();
    },
  );

  test('a node-redis client needs no Redis rights except the rights in docs/choosing-nodes.md', async () => {
    await looker.call('ACL', 'SETUSER', 'few', 'reset', 'on', '>secret', ...RIGHTS, ...NODE_REDIS_RIGHTS);
    await looker.call('ACL', 'LOG', 'RESET');
    const client = nodeRedis(server.url, { username: 'few', password: 'secret' });
    const locks = (await startApp({}, { nodes: client })).get(LockService);
    const taken = await locks.acquire('few', once);
    const waiting = locks.acquire('few', { retry: { timeout: 60_000, delay: 30_000 } });
    await until(async () => (await looker.zcard('lock:{few}:q')) === 1);
    // Wait for a PING, which checks the connection for messages.
    await until(async () => String(await looker.client('LIST')).includes('cmd=ping'));
    await taken.release();
    await (await waiting).release();
    await expect(looker.call('ACL', 'LOG')).resolves.toEqual([]);
  });

  test('over node-redis, an acquire rejects with the OOM error of the server, and a held lock can still be extended', async () => {
    const fleet = newFleet();
    const node = storeOver(nodeRedis(server.url), fleet);
    await node.connect();
    const redlock = redlockOver([node], PATIENT);
    const lock = await redlock.acquire(['oom'], terms);
    await looker.config('SET', 'maxmemory', 1);
    await expect(redlock.acquire(['oom 2'], terms)).rejects.toThrow('OOM');
    await expect(node.check(0)).resolves.toMatchObject({
      state: 'unfit',
      reason: expect.stringContaining('OOM'),
    });
    await lock.extend(120_000);
    await lock.release();
    await looker.config('SET', 'maxmemory', 0);
    await redlock.close();
  });
});

describe('an acquire in the queue of the client', () => {
  test('an acquire that waits in the queue of the client past its time limit stores nothing (S16)', async () => {
    const client = nodeRedis(server.url);
    const node = storeOver(client, newFleet());
    await until(() => client.isReady);
    await node.connect();
    const redlock = redlockOver([node], { nodeTimeout: 100 });
    await (await redlockOver([node], PATIENT).acquire(['known'], terms)).release();
    // The client pauses like this while a server is moved, or a connection is full.
    const { _pause: pause, _unpause: goOn } = client;
    pause.call(client);
    await expect(redlock.acquire(['late'], { ...terms, ttl: 1_000 })).rejects.toBeInstanceOf(
      LockUnavailableError,
    );
    // The deadline is on the server's clock, which the store only estimates. The delay exceeds the error of the estimate.
    await delay(200);
    goOn.call(client);
    await client.ping();
    await expect(looker.exists('lock:{late}')).resolves.toBe(0);
    await redlock.close();
  });
});

test('the module refuses a pool of node-redis clients, and the error names the clients that work', async () => {
  const { createClientPool } = await import('redis');
  const pool = createClientPool({ url: server.url });
  cleanUpAfterTests(async () => pool.destroy());
  await expect(startApp({}, { nodes: pool as never })).rejects.toThrow(
    'the result of `createClient` of node-redis 5 or 6',
  );
});

const SILENT = { log() {}, warn() {}, error() {} };
