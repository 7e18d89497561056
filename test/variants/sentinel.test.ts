import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { INestApplication } from '@nestjs/common';
import type { Redis } from 'ioredis';
import { Redis as Redis6 } from 'ioredis-6';
import { LockService, LockUnavailableError } from '../../lib/index.js';
import { countLocks } from '../support/core.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { startApp } from '../support/nest-app.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';

const once = { retry: false } as const;

/** Milliseconds: a Sentinel that stood still for two seconds does nothing for thirty (its TILT mode). */
const PATIENCE = 90_000;

/** A master with a replica, and the Sentinel that watches them. */
interface Group {
  readonly master: RedisServer;
  readonly replica: RedisServer;
  readonly sentinel: RedisServer;
}

async function startGroup(): Promise<Group> {
  // Otherwise it waits five seconds for more replicas.
  const master = await startRedis({ args: ['--repl-diskless-sync-delay', '0'] });
  const replica = await startRedis({ args: ['--replicaof', master.host, String(master.port)] });
  const looker = master.client();
  await until(async () => (await looker.info('replication')).includes('state=online'));
  const sentinel = await startRedis({
    args: ['--sentinel'],
    config: [
      `sentinel monitor locks ${master.host} ${master.port} 1`,
      'sentinel down-after-milliseconds locks 500',
      'sentinel failover-timeout locks 2000',
      '',
    ].join('\n'),
  });
  // Until it has found the replica it cannot fail over.
  const watcher = sentinel.client();
  await until(
    async () => ((await watcher.call('SENTINEL', 'REPLICAS', 'locks')) as unknown[]).length === 1,
    PATIENCE,
  );
  return { master, replica, sentinel };
}

const ioredis6 = ({ sentinel: { host, port } }: Group): Redis6 =>
  new Redis6({ sentinels: [{ host, port }], name: 'locks' });

describe('a master that a Sentinel watches', () => {
  let group: Group;
  let client: Redis6;
  /** With ioredis 5, over a connection of ours; and with ioredis 6, over a client of the user's. */
  let apps: INestApplication[];
  let five: LockService;
  let six: LockService;

  beforeAll(async () => {
    group = await startGroup();
    const { host, port } = group.sentinel;
    client = ioredis6(group);
    // Left open, it would keep Jest from ending.
    cleanUpAfterTests(async () => client.disconnect());
    // The user listens to a client of the user's.
    client.on('error', () => undefined);
    apps = await Promise.all([
      startApp({}, { nodes: { sentinels: [{ host, port }], name: 'locks' } }),
      startApp({}, { nodes: client as unknown as Redis }),
    ]);
    [five, six] = apps.map((app) => app.get(LockService)) as [LockService, LockService];
  });
  afterAll(async () => {
    await Promise.all(apps.map((app) => app.close()));
  });

  test('locks, over ioredis 5 and 6', async () => {
    const lock = await five.acquire('key');
    await expect(six.tryAcquire('key')).resolves.toBeNull();
    await lock.release();
    await (await six.acquire('key', once)).release();
  });

  test('a master that dies: nothing is locked until the replica is master; what it has is still held then', async () => {
    const { master, replica } = group;
    const options = { ttl: PATIENCE };
    const held = await Promise.all([five.acquire('five', options), six.acquire('six', options)]);
    const looker = replica.client();
    await until(async () => (await countLocks(looker)) === 2);
    // The replica hears of the line, too.
    const waiting = six.acquire('five', { ...options, retry: { timeout: 2 * PATIENCE } });
    await until(async () => (await looker.zcard('lock:{five}:q')) === 1);
    await master.kill();
    await expect(five.tryAcquire('other')).rejects.toBeInstanceOf(LockUnavailableError);
    await expect(six.tryAcquire('other')).rejects.toBeInstanceOf(LockUnavailableError);

    for (const locks of [five, six]) {
      await until(
        () =>
          locks.acquire('other', once).then(
            (lock) => lock.release().then(() => true),
            () => false,
          ),
        PATIENCE,
      );
    }
    await expect(six.tryAcquire('five')).resolves.toBeNull();
    await expect(five.tryAcquire('six')).resolves.toBeNull();
    for (const lock of held) {
      await lock.extend();
      expect(lock.state).toBe('held');
      await lock.release();
    }
    const waited = await waiting;
    expect(waited.fencingToken).toBeGreaterThan(held[0]!.fencingToken);
    await waited.release();
    await expect(countLocks(looker)).resolves.toBe(0);
    const next = await five.acquire('six', once);
    expect(next.fencingToken).toBeGreaterThan(held[1]!.fencingToken);
    await next.release();
  });
});
