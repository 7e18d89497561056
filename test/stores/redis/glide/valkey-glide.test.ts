import { beforeAll, expect, test } from '@jest/globals';
import type { GlideClient } from '@valkey/valkey-glide';
import type { Redis } from 'ioredis';
import { LockService, LockUnavailableError } from '../../../../lib/index.js';
import { NO_RETRY } from '../../../../lib/core/lock-options.js';
import { RedlockModule } from '../../../../lib/module/redlock.module.js';
import { glide, storeOver } from '../../../support/clients.js';
import { countLocks, newFleet, redlockOver } from '../../../support/core.js';
import { startApp } from '../../../support/nest-app.js';
import { PATIENT } from '../../../support/patience.js';
import { type RedisServer, startRedis } from '../../../support/redis-server.js';
import { until } from '../../../support/until.js';
import { GLIDE_RIGHTS, RIGHTS } from '../../../variants/acl-rights.js';

// Behaviour that differs between clients of Valkey GLIDE and of ioredis.

const once = { retry: false } as const;
const terms = { ttl: 60_000, retry: NO_RETRY, renew: false, signals: [] };
/** A waiter with these options polls late. If it gets its lock sooner, a message has woken it. */
const IN_TURN = { ttl: 60_000, retry: { timeout: 60_000, delay: 30_000 } };

let server: RedisServer;
let looker: Redis;
beforeAll(async () => {
  server = await startRedis();
  looker = server.client();
});

async function locksOver(client: GlideClient) {
  const app = await startApp({}, { nodes: client, restartGuard: false });
  return { app, locks: app.get(LockService) };
}

test('a message wakes a waiter, and the module leaves the client open and closes its connection for messages', async () => {
  const client = await glide(server);
  const { app, locks } = await locksOver(client);
  const taken = await locks.acquire('turn', once);
  const waiting = locks.acquire('turn', IN_TURN);
  await until(async () => (await looker.zcard('lock:{turn}:q')) === 1);
  const start = performance.now();
  await taken.release();
  const next = await waiting;
  expect(performance.now() - start).toBeLessThan(IN_TURN.retry.delay / 2);
  expect(next.fencingToken).toBeGreaterThan(taken.fencingToken);
  await next.release();
  await app.close();
  await expect(client.ping()).resolves.toBe('PONG');
  await until(async () => !String(await looker.client('LIST')).includes('nestjs-redlock-messages'));
  await expect(countLocks(looker)).resolves.toBe(0);
});

test('the rights in docs/choosing-nodes.md suffice for a client of GLIDE, and without the right to `client|info` the error names it', async () => {
  await looker.call('ACL', 'SETUSER', 'locks', 'on', '>secret', ...RIGHTS, ...GLIDE_RIGHTS);
  await looker.call('ACL', 'LOG', 'RESET');
  const credentials = { username: 'locks', password: 'secret' };
  const { app, locks } = await locksOver(await glide(server, { credentials }));
  const taken = await locks.acquire('limited', once);
  const waiting = locks.acquire('limited', IN_TURN);
  await until(async () => (await looker.zcard('lock:{limited}:q')) === 1);
  await taken.release();
  await (await waiting).release();
  expect((await locks.checkNodes()).nodes.map(({ state }) => state)).toEqual(['voting']);
  expect(await looker.call('ACL', 'LOG')).toEqual([]);
  await app.close();
  await looker.call('ACL', 'SETUSER', 'locks', '-client|info');
  const store = storeOver(await glide(server, { credentials }), newFleet());
  await expect(store.connect()).rejects.toThrow('client|info');
  await store.close();
});

test('a replaced connection is reported as lost and ready before its first answer', async () => {
  const told: string[] = [];
  const store = storeOver(await glide(server), {
    ...newFleet(),
    nodeLost: () => told.push('lost'),
    nodeReady: () => told.push('ready'),
  });
  await store.connect();
  const redlock = redlockOver([store], PATIENT);
  await looker.client('KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
  await until(async () => {
    // GLIDE may notice the end of its connection only by this request.
    const lock = await redlock.acquire(['replaced'], terms).catch(() => undefined);
    if (lock) told.push('acquired');
    await lock?.release();
    return lock !== undefined;
  });
  expect(told.slice(-3)).toEqual(['lost', 'ready', 'acquired']);
  await redlock.close();
});

test('locks are refused while the server is away, and granted again when it is back, with the client of GLIDE as it is', async () => {
  const away = await startRedis();
  const { app, locks } = await locksOver(await glide(away));
  await (await locks.acquire('k', once)).release();
  await away.kill();
  await expect(locks.acquire('k', once)).rejects.toBeInstanceOf(LockUnavailableError);
  await away.restart();
  await until(() =>
    locks.acquire('k', once).then(
      (lock) => lock.release().then(() => true),
      () => false,
    ),
  );
  await app.close();
});

test('locks are listed beside a key of another program that is no text', async () => {
  const { app, locks } = await locksOver(await glide(server));
  const foreign = Buffer.from([...Buffer.from('lock:{'), 0xff, ...Buffer.from('}')]);
  await looker.set(foreign, Buffer.from([0xfe]));
  const lock = await locks.acquire('beside', once);
  const listed: string[] = [];
  for await (const { key } of locks.list()) listed.push(key);
  expect(listed).toContain('beside');
  await lock.release();
  await looker.del(foreign);
  await app.close();
});

test('the error of a closed client of GLIDE says that the client is not open', async () => {
  const client = await glide(server);
  const { app, locks } = await locksOver(client);
  client.close();
  await expect(locks.acquire('closed', once)).rejects.toThrow('the client in `nodes` is not open');
  await app.close();
});

test('a client of GLIDE 1, which cannot subscribe, is refused with the supported clients', () => {
  const old = { customCommand: async () => null, exec: async () => null };
  expect(() => RedlockModule.forRoot({ nodes: old as never })).toThrow(
    'a client of another package or version; give a `Redis` or `Cluster` of ioredis or iovalkey',
  );
});
