import 'reflect-metadata';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { type INestApplication, Injectable } from '@nestjs/common';
import type { Redis } from 'ioredis';
import { Registry } from 'prom-client';
import {
  currentLock,
  defineLocks,
  type LockEvent,
  LockHeldError,
  LockService,
  WithLock,
} from '../../lib/index.js';
import { collectLockMetrics } from '../../lib/metrics/index.js';
import { heldKeys } from '../support/core.js';
import { startApp } from '../support/nest-app.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';

const locks = defineLocks({
  'order:settle': {
    key: (id: number) => `order:${id}`,
    ttl: 30_000,
    retry: false,
    team: 'payments',
    about: 'one settlement at a time',
  },
  'tenant:report': { key: (tenant: string) => `report:${tenant}`, permits: 2, retry: false },
  'clean-up': { key: 'clean-up', onBusy: 'skip' },
  transfer: { key: (from: string, to: string) => [`account:${from}`, `account:${to}`], retry: false },
});

@Injectable()
class Orders {
  @WithLock.of(locks['order:settle'])
  async settle<T>(_id: number, task: () => Promise<T> | T): Promise<T> {
    return task();
  }

  @WithLock.of(locks['order:settle'], { onBusy: (error) => error.owner })
  async trySettle(_id: number): Promise<string> {
    return 'settled';
  }

  @WithLock.of(locks['clean-up'])
  async cleanUp(): Promise<string> {
    return 'clean';
  }
}

let redis: RedisServer;
let looker: Redis;
let apps: INestApplication[];
let service: LockService;
let others: LockService;
let orders: Orders;
const events: LockEvent[] = [];

beforeAll(async () => {
  redis = await startRedis();
  looker = redis.client();
  const providers = [Orders];
  const onEvent = (event: LockEvent): unknown => events.push(event);
  const options = { nodes: redis.url, locks, strict: true };
  apps = await Promise.all([
    startApp({ providers }, { ...options, owner: 'me', onEvent }),
    startApp({ providers }, { ...options, owner: 'them' }),
  ]);
  [service, others] = apps.map((app) => app.get(LockService)) as [LockService, LockService];
  orders = apps[0]!.get(Orders);
});
afterAll(async () => {
  await Promise.all(apps.map((app) => app.close()));
  await redis.stop();
});
afterEach(async () => {
  events.length = 0;
  const keys = await heldKeys(looker);
  await looker.flushall();
  if (keys.length > 0) throw new Error(`left behind: ${keys.join()}`);
});

describe('a declared lock', () => {
  test('a method with a declared lock uses the key and the options of the declaration', async () => {
    const lock = await orders.settle(42, () => currentLock());
    expect(lock?.keys).toEqual(['order:42']);
    await orders.settle(42, async () => {
      expect((await service.inspect(locks['order:settle'], 42)).remaining).toBeGreaterThan(20_000);
      await expect(orders.settle(43, () => 'another')).resolves.toBe('another');
      await expect(others.tryAcquire(locks['order:settle'], 42)).resolves.toBeNull();
    });
  });

  test('a declared lock can be acquired through the service with the arguments of its key', async () => {
    await using lock = await service.acquire(locks['order:settle'], 42);
    expect(lock.keys).toEqual(['order:42']);
    await expect(orders.settle(42, () => 1)).rejects.toThrow(LockHeldError);
    await expect(others.withLock(locks['order:settle'], 42, () => 1)).rejects.toThrow(LockHeldError);
    await expect(others.withLock(locks['order:settle'], 7, (held) => held.keys)).resolves.toEqual([
      'order:7',
    ]);
    await expect(others.forceRelease(locks['order:settle'], 42)).resolves.toBe(true);
  });

  test('a declared lock with several keys is acquired as one lock', async () => {
    await using lock = await service.acquire(locks.transfer, 'b', 'a');
    expect(lock.keys).toEqual(['account:a', 'account:b']);
  });

  test('a declared lock with two permits admits two holders', async () => {
    await using first = await service.acquire(locks['tenant:report'], 'acme');
    await using second = await others.acquire(locks['tenant:report'], 'acme');
    expect([first.slot, second.slot].toSorted()).toEqual([0, 1]);
    await expect(service.tryAcquire(locks['tenant:report'], 'acme')).resolves.toBeNull();
  });

  test('a call of `acquire` with a declared lock can pass `signal` and `retry`', async () => {
    await others.withLock(locks['order:settle'], 42, async () => {
      const options = { signal: AbortSignal.timeout(50), retry: { timeout: 20_000 } };
      const waiting = service.acquire(locks['order:settle'].for(42), options);
      await expect(waiting).rejects.toMatchObject({ name: 'TimeoutError' });
    });
  });

  test('the `onBusy` of a method applies when its declared lock is held', async () => {
    await others.withLock(locks['order:settle'], 42, () =>
      expect(orders.trySettle(42)).resolves.toBe('them'),
    );
  });

  test('a method is skipped while its declared lock is held, if the declaration has `onBusy: skip`', async () => {
    await others.withLock(locks['clean-up'], () => expect(orders.cleanUp()).resolves.toBeUndefined());
    await expect(orders.cleanUp()).resolves.toBe('clean');
  });

  test('events and errors contain the name of a declared lock', async () => {
    const settle = (): Promise<unknown> => orders.settle(42, () => 1).catch((thrown: unknown) => thrown);
    const error = await others.withLock(locks['order:settle'], 42, settle);
    expect(error).toBeInstanceOf(LockHeldError);
    expect(error).toMatchObject({ lock: 'order:settle', keys: ['order:42'] });
    expect((error as Error).message).toMatch(/^"order:42" \(order:settle\) is held by them/);
    expect(events).toMatchObject([
      { type: 'refused', label: 'order:settle', keys: ['order:42'], method: 'Orders.settle', error },
    ]);
  });

  test('the error of a lost declared lock contains the name of the lock', async () => {
    const lock = await service.acquire(locks['order:settle'], 42);
    const { signal } = lock;
    await service.forceRelease(locks['order:settle'], 42);
    expect(signal.reason).toMatchObject({
      lock: 'order:settle',
      message: expect.stringMatching(
        /^The lock on "order:42" \(order:settle\) is lost: it was released by force/,
      ),
    });
  });

  test.each([
    ['ttl', 'It is an option of the declaration: change `ttl` in `defineLocks`'],
    ['reentrnt', 'Did you mean `reentrant`?'],
    ['timeout', 'It belongs in `retry`: `retry: { timeout: ... }`'],
  ])('a call of `acquire` with a declared lock rejects for the option `%s`', async (name, remedy) => {
    await expect(service.acquire(locks['order:settle'].for(42), { [name]: 5 })).rejects.toThrow(
      `Unknown option \`${name}\` in \`acquire\`. ${remedy}`,
    );
  });

  test('metrics contain the name of a declared lock', async () => {
    const registry = new Registry();
    const stop = collectLockMetrics({ registry });
    await orders.settle(42, () => 1);
    await service.withLock(locks['order:settle'], 43, () => 1);
    const [metric] = await registry
      .getMetricsAsJSON()
      .then((all) => all.filter(({ name }) => name === 'redlock_acquired_total'));
    expect(metric).toMatchObject({
      values: [{ value: 2, labels: { lock: 'order:settle', mode: 'exclusive' } }],
    });
    stop();
  });
});
