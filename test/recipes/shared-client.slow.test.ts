import 'reflect-metadata';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { BullModule, getQueueToken, Processor, WorkerHost } from '@nestjs/bullmq';
import { CACHE_MANAGER } from '@nestjs/cache-manager';
import type { INestApplication } from '@nestjs/common';
import { type Job, Queue, Worker } from 'bullmq';
import type { Cache } from 'cache-manager';
import { Redis } from 'ioredis';
import { currentLock, LockService, LockUnavailableError, WithLock } from '../../lib/index.js';
import { startApp, startPlainApp } from '../support/nest-app.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { renewed } from '../support/renewed.js';
import { until } from '../support/until.js';
import { SharedRedisModule } from './shared-client.js';

@Processor('orders')
class Orders extends WorkerHost {
  @WithLock((job: Job<number>) => `order:${job.data}`)
  override async process(_job: Job<number>): Promise<string> {
    return String(currentLock()?.keys);
  }
}

// This block closes its application in `afterAll`. The clean-up of the test file stops the server later.
describe('one client for locks, queues and the cache', () => {
  let server: RedisServer;
  let looker: Redis;
  let app: INestApplication;

  beforeAll(async () => {
    server = await startRedis();
    looker = server.client();
    process.env['REDIS_URL'] = server.url;
    app = await startPlainApp({
      imports: [SharedRedisModule, BullModule.registerQueue({ name: 'orders' })],
      providers: [Orders],
    });
  });
  afterAll(() => {
    delete process.env['REDIS_URL'];
  });

  const connections = async (): Promise<number> =>
    String(await looker.client('LIST'))
      .trim()
      .split('\n').length - 1;

  test('an application with one shared client needs three connections: the client, one for Pub/Sub, one for the worker', async () => {
    const queue = app.get<Queue>(getQueueToken('orders'));
    const { id = '' } = await queue.add('settle', 7);
    await until(async () => (await queue.getJobState(id)) === 'completed');
    expect((await queue.getJob(id))?.returnvalue).toBe('order:7');

    // A waiter needs a connection for messages.
    const locks = app.get(LockService);
    const held = await locks.acquire('k');
    const waiting = locks.acquire('k');
    await until(async () => (await looker.exists('lock:{k}:q')) === 1);
    await held.release();
    await (await waiting).release();
    // The waiter may get its lock before its connection for messages is open.
    await until(async () => (await connections()) >= 3);
    await expect(connections()).resolves.toBe(3);
  });

  test('locks and jobs on a shared client remain when the cache is cleared', async () => {
    const cache = app.get<Cache>(CACHE_MANAGER);
    const lock = await app.get(LockService).acquire('held');
    await cache.set('price', 7, 30_000);
    await cache.set('name', { of: 'book' });
    await expect(Promise.all([cache.get('price'), cache.get('name')])).resolves.toEqual([7, { of: 'book' }]);
    expect(await looker.pttl('cache:price')).toBeGreaterThan(10_000);
    await cache.del('price');
    await cache.clear();
    await expect(Promise.all([cache.get('price'), cache.get('name')])).resolves.toEqual([
      undefined,
      undefined,
    ]);
    expect(lock.isHeld()).toBe(true);
    // Redis can renew only a lock that it still has.
    await renewed(looker, 'lock:{held}');
    await lock.release();
    expect(await looker.exists('bull:orders:meta')).toBe(1);
  });

  test('a shared client is closed after the locks, the queues and the cache', async () => {
    const client = app.get(Redis);
    const lock = await app.get(LockService).acquire('never released');
    const cache = app.get<Cache>(CACHE_MANAGER);
    let step = 'none';
    const work = app.get(LockService).withLock('working', async () => {
      step = 'begun';
      await until(() => step === 'closing');
      await cache.set('late', 'cached');
      return cache.get('late');
    });
    await until(() => step === 'begun');
    const closed = app.close();
    step = 'closing';
    await expect(work).resolves.toBe('cached');
    await closed;
    expect(client.status).toBe('end');
    expect(lock.isHeld()).toBe(false);
    await expect(until(async () => (await connections()) === 0)).resolves.toBeUndefined();
  });
});

describe('a client that must not be shared', () => {
  test('BullMQ refuses a client with a `keyPrefix`', async () => {
    const client = (await startRedis()).client({ keyPrefix: 'app:', maxRetriesPerRequest: null });
    expect(() => new Queue('orders', { connection: client })).toThrow('does not support ioredis prefixes');
  });

  test('a worker of BullMQ refuses a client with a limit of retries per command', async () => {
    // The worker leaves a duplicate of the client open. By default the duplicate would reconnect again and again.
    const client = (await startRedis()).client({ retryStrategy: () => null });
    expect(() => new Worker('orders', null, { connection: client })).toThrow(
      'maxRetriesPerRequest must be null',
    );
  });

  test('locks are unavailable on a client that has subscribed to a channel', async () => {
    const client = (await startRedis()).client();
    await client.subscribe('news');
    const app = await startApp({}, { nodes: client });
    await expect(app.get(LockService).tryAcquire('k')).rejects.toBeInstanceOf(LockUnavailableError);
    await app.close();
  });
});
