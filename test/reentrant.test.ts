import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type { INestApplicationContext } from '@nestjs/common';
import type { Redis } from 'ioredis';
import { setTimeout as delay } from 'node:timers/promises';
import {
  currentLock,
  type LockHandle,
  LockHeldError,
  LockLostError,
  LockService,
  RedlockModule,
  WithLock,
} from '../lib/index.js';
import { countLocks } from './support/core.js';
import { PATIENT } from './support/patience.js';
import { DURABLE, type RedisServer, startRedis } from './support/redis-server.js';

// S18: re-entering keeps the fencing token, re-entering after a lapse throws, calls side by side do not join.

/** Milliseconds; no machine stands still for so long that a lock ends by itself. */
const TTL = 30_000;

const joining = { reentrant: true, retry: false, ttl: TTL } as const;

@Injectable()
class Service {
  inside = 0;
  mostInside = 0;

  @WithLock('k', joining)
  async outer<T>(task: () => Promise<T>): Promise<T> {
    return task();
  }

  @WithLock('k', joining)
  async inner(): Promise<number | undefined> {
    this.mostInside = Math.max(this.mostInside, ++this.inside);
    await delay(20);
    this.inside--;
    return currentLock('k')?.fencingToken;
  }

  @WithLock('k', { retry: false })
  async plain(): Promise<void> {}
}

let server: RedisServer;
let looker: Redis;
let app: INestApplicationContext;
let service: Service;
let locks: LockService;

beforeAll(async () => {
  server = await startRedis(DURABLE);
  looker = server.client();
});
afterAll(() => server.stop());
beforeEach(async () => {
  @Module({ imports: [RedlockModule.forRoot({ ...PATIENT, nodes: server.url })], providers: [Service] })
  class Root {}
  app = await NestFactory.createApplicationContext(Root, { logger: false });
  service = app.get(Service);
  locks = app.get(LockService);
});
afterEach(async () => {
  const left = await countLocks(looker);
  await app.close();
  if (left > 0) throw new Error(`${left} locks were left behind`);
});

/** Has the lock taken away, and lets it be noticed now and not at the next renewal. */
async function takeAway(lock: LockHandle): Promise<void> {
  await looker.del('lock:{k}:l');
  await expect(lock.extend()).rejects.toBeInstanceOf(LockLostError);
}

describe('a nested call joins the lock it is under (S18)', () => {
  test('with the same fencing token, and without asking Redis', async () => {
    await looker.config('RESETSTAT');
    const tokens = await service.outer(async () => [currentLock('k')?.fencingToken, await service.inner()]);
    expect(tokens[0]).toEqual(expect.any(Number));
    expect(tokens[1]).toBe(tokens[0]);
    expect(await looker.info('commandstats')).toMatch(/cmdstat_set:calls=2,/);
  });

  test('however deep it is nested, and several times one after the other', async () => {
    const inner = await service.outer(() =>
      service.outer(async () => {
        await service.inner();
        return service.inner();
      }),
    );
    expect(inner).toEqual(expect.any(Number));
  });

  test('and does not release it', async () => {
    await service.outer(async () => {
      await service.inner();
      expect(currentLock('k')?.isHeld()).toBe(true);
      await expect(countLocks(looker)).resolves.toBe(1);
      await expect(service.plain()).rejects.toBeInstanceOf(LockHeldError);
    });
  });

  test('through the service, too, whose handle releases nothing', async () => {
    await locks.withLock(['k', 'other'], joining, async (lock) => {
      const joined = await locks.acquire('k', joining);
      expect([joined.id, joined.fencingToken, joined.state]).toEqual([lock.id, lock.fencingToken, 'held']);
      await joined.extend(3 * TTL);
      expect(lock.remaining()).toBeGreaterThan(2 * TTL);
      await joined.release();
      lock.assertHeld();
      await using again = await locks.acquire('k', joining);
      expect(again.isHeld()).toBe(true);
    });
  });

  test('and has the maxHold of the call that acquired it', async () => {
    await locks.withLock('k', { maxHold: 1 }, async () => {
      await delay(5);
      const joined = await locks.acquire('k', { ...joining, maxHold: 60_000 });
      await expect(joined.extend()).rejects.toMatchObject({ code: 'MAX_HOLD_REACHED' });
      expect(joined.isHeld()).toBe(true);
    });
  });

  test('and is told of its loss by the same signal', async () => {
    const failure = service.outer(async () => {
      const outer = currentLock('k');
      await locks.withLock('k', { ...joining, onLost: 'ignore' }, async (joined) => {
        expect(joined.signal).toBe(outer?.signal);
        await takeAway(joined);
        expect(joined.isHeld()).toBe(false);
      });
    });
    await expect(failure).rejects.toBeInstanceOf(LockLostError);
  });
});

describe('a call does not join (S18)', () => {
  test('that runs side by side with another one that has joined', async () => {
    const results = await service.outer(() => Promise.allSettled([service.inner(), service.inner()]));
    expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
    expect((results[1] as PromiseRejectedResult).reason).toMatchObject({
      code: 'LOCK_HELD',
      heldByCaller: true,
    });
    expect(service.mostInside).toBe(1);
  });

  test('a lock that was lost: that is a LockLostError', async () => {
    const nested = service.outer(async () => {
      await takeAway(currentLock('k')!);
      return service.inner();
    });
    await expect(nested).rejects.toBeInstanceOf(LockLostError);
    expect(service.mostInside).toBe(0);
  });

  test('unless it says so, and is told that it waits for itself', async () => {
    const nested = service.outer(() => service.plain());
    await expect(nested).rejects.toMatchObject({ code: 'LOCK_HELD', heldByCaller: true });
    await expect(nested).rejects.toThrow('Set `reentrant` to join the lock that a call is under');
  });

  test('a lock that has only some of its keys', async () => {
    const nested = service.outer(() => locks.acquire(['k', 'other'], joining));
    await expect(nested).rejects.toBeInstanceOf(LockHeldError);
  });

  test('the lock of an unrelated call', async () => {
    const outer = service.outer(() => delay(50));
    await expect(service.inner()).rejects.toBeInstanceOf(LockHeldError);
    await outer;
  });

  test('the lock of a caller that has ended, but acquires one of its own', async () => {
    let end = (): void => undefined;
    const ended = new Promise<void>((resolve) => (end = resolve));
    let late: Promise<number | undefined> | undefined;
    const token = await service.outer(() => {
      late = ended.then(() => service.inner());
      return Promise.resolve(currentLock('k')?.fencingToken);
    });
    end();
    await expect(late).resolves.toBeGreaterThan(token ?? Infinity);
  });
});
