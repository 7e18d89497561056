import 'reflect-metadata';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import KeyvRedis from '@keyv/redis';
import { BullModule, getQueueToken } from '@nestjs/bullmq';
import { CACHE_MANAGER, CacheModule } from '@nestjs/cache-manager';
import { type BeforeApplicationShutdown, Injectable, type OnApplicationShutdown } from '@nestjs/common';
import { Cron, ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import type { Queue } from 'bullmq';
import type { Cache } from 'cache-manager';
import { Redis } from 'ioredis';
import { Keyv } from 'keyv';
import type { Server } from 'node:http';
import { LockService, RedlockModule } from '../../lib/index.js';
import { startApp, startPlainApp } from '../support/nest-app.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { SharedRedisModule } from './shared-client.js';
import { OrdersProcessor } from './stop-first.js';

let order: string[] = [];

/**
 * Adds a mark to `order` when a phase of the shutdown begins. This class belongs to the root module, whose hooks Nest
 * calls first in each phase.
 */
@Injectable()
class Phases implements BeforeApplicationShutdown, OnApplicationShutdown {
  beforeApplicationShutdown(): void {
    order.push('# beforeApplicationShutdown');
  }

  onApplicationShutdown(): void {
    order.push('# onApplicationShutdown');
  }
}

@Injectable()
class Tasks {
  @Cron('0 0 1 1 *', { name: 'yearly' })
  run(): void {}
}

/** The processor of the recipe, without the hook that closes its worker first. */
class GreedyProcessor extends OrdersProcessor {
  override async onModuleDestroy(): Promise<void> {}
}
// @nestjs/bullmq looks for the metadata of `@Processor` on the class itself, not on its parent.
for (const key of Reflect.getMetadataKeys(OrdersProcessor) as string[])
  Reflect.defineMetadata(key, Reflect.getMetadata(key, OrdersProcessor), GreedyProcessor);

/** Adds `begun` to the order when the method is called, and `ended` when its call has ended. */
function watch<T extends object>(object: T, method: keyof T & string, begun: string, ended?: string): void {
  const original = object[method] as (...args: unknown[]) => unknown;
  const watched = async function (this: unknown, ...args: unknown[]): Promise<unknown> {
    order.push(begun);
    const result = await original.apply(this, args);
    if (ended !== undefined) order.push(ended);
    return result;
  };
  jest.spyOn(object, method as never).mockImplementation(watched as never);
}

// Each test closes its application itself. The clean-up of the test file stops the server later.
describe('the shutdown of an application', () => {
  let server: RedisServer;

  beforeEach(async () => {
    order = [];
    server = await startRedis();
    process.env['REDIS_URL'] = server.url;
    jest.spyOn(globalThis, 'fetch').mockImplementation(async () => {
      await new Promise((resolve) => setTimeout(resolve, 50));
      return new Response();
    });
  });
  afterEach(() => {
    delete process.env['REDIS_URL'];
    jest.restoreAllMocks();
  });

  test('the shutdown closes the sources of work first, and the shared client last', async () => {
    const app = await startPlainApp({
      imports: [SharedRedisModule, ScheduleModule.forRoot(), BullModule.registerQueue({ name: 'orders' })],
      providers: [OrdersProcessor, Phases, Tasks],
    });
    await app.listen(0, '127.0.0.1');
    watch(Keyv.prototype, 'disconnect', 'cache disconnects');
    watch(app.get(SchedulerRegistry).getCronJob('yearly'), 'stop', 'schedules stop');
    watch(
      RedlockModule.prototype,
      'beforeApplicationShutdown',
      'locks are refused',
      'locked methods have ended',
    );
    watch(app.get<Queue>(getQueueToken('orders')), 'close', 'queue closes');
    watch(
      RedlockModule.prototype,
      'onApplicationShutdown',
      'locks are released',
      'connections of locks are closed',
    );
    app.get(OrdersProcessor).worker.on('closed', () => order.push('worker closed'));
    (app.getHttpServer() as Server).on('close', () => order.push('HTTP server closed'));
    app.get(Redis).on('end', () => order.push('client closed'));

    await app.close();
    await until(() => order.includes('client closed'));
    expect(order).toEqual([
      'worker closed',
      'cache disconnects',
      '# beforeApplicationShutdown',
      'schedules stop',
      'locks are refused',
      'locked methods have ended',
      'HTTP server closed',
      '# onApplicationShutdown',
      'queue closes',
      'locks are released',
      'connections of locks are closed',
      'client closed',
    ]);
  });

  /**
   * Closes the application while a job and another locked method run. The other method ends when the worker has closed
   * or a job has failed.
   *
   * @returns the failure reasons of the jobs that had failed when the other method ended
   */
  async function failuresOf(Consumer: typeof OrdersProcessor): Promise<unknown[]> {
    const app = await startPlainApp({
      imports: [SharedRedisModule, BullModule.registerQueue({ name: 'orders' })],
      providers: [Consumer],
    });
    const queue = app.get<Queue>(getQueueToken('orders'));
    await queue.addBulk([1, 2, 3, 4, 5, 6, 7, 8].map((data) => ({ name: 'settle', data })));
    await until(async () => (await queue.getCompletedCount()) > 0);
    let ended = false;
    const task = app.get(LockService).withLock('long', () => until(() => ended));
    await until(async () => (await app.get(LockService).inspect('long')).held);
    let hasClosed = false;
    app.get(Consumer).worker.on('closed', () => (hasClosed = true));
    const closing = app.close();
    await until(async () => hasClosed || (await queue.getFailedCount()) > 0);
    const failed = await queue.getFailed();
    ended = true;
    await Promise.all([closing, task]);
    return failed.map(({ failedReason }) => failedReason);
  }

  test('no job fails during the shutdown when the worker closes in `onModuleDestroy`', async () => {
    await expect(failuresOf(OrdersProcessor)).resolves.toEqual([]);
  });

  test('jobs that a worker takes during the shutdown get no lock when the worker closes after `onModuleDestroy`', async () => {
    const failures = await failuresOf(GreedyProcessor);
    expect(failures.length).toBeGreaterThan(0);
    expect(
      new Set(failures.map((reason) => /the application is shutting down/.test(String(reason)))),
    ).toEqual(new Set([true]));
  });

  test('the shutdown disconnects a cache with its own connection, and a method that still runs reconnects the cache', async () => {
    const store = new KeyvRedis(server.url);
    const app = await startApp(
      { imports: [CacheModule.register({ isGlobal: true, stores: [store] })] },
      { nodes: server.url },
    );
    const cache = app.get<Cache>(CACHE_MANAGER);
    await cache.set('k', 7);
    watch(store, 'disconnect', 'cache disconnects');
    let begun = false;
    const task = app.get(LockService).withLock('work', async () => {
      begun = true;
      await until(() => order.includes('cache disconnects'));
      await until(() => !store.client.isOpen);
      return cache.get('k');
    });
    await until(() => begun);
    await app.close();
    await expect(task).resolves.toBe(7);
    expect(store.client.isOpen).toBe(true);
    await store.disconnect();
  });
});
