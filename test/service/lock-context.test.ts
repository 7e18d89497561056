import 'reflect-metadata';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Injectable, type INestApplication } from '@nestjs/common';
import { AsyncLocalStorage } from 'node:async_hooks';
import {
  currentLock,
  type LockHandle,
  LockLostError,
  LockService,
  outside,
  WithLock,
} from '../../lib/index.js';
import { collectGarbage } from '../support/collect-garbage.js';
import { countLocks } from '../support/core.js';
import { startApp } from '../support/nest-app.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { FakeTransactions } from '../support/transactions.js';
import { until } from '../support/until.js';

// Rule S30: the context of a lock ends with the method and its result. A pool or a batch loader that was made under the
// lock and outlives it is then outside of every lock.

/** Milliseconds. No lock expires by accident, even if the machine stalls for a moment. */
const TTL = 30_000;
const joining = { reentrant: true, retry: false, ttl: TTL } as const;

/** Runs jobs in the asynchronous context in which it was made, as a pool or a batch loader does. */
class Worker {
  readonly run = AsyncLocalStorage.snapshot();
}

@Injectable()
class Service {
  @WithLock('k', joining)
  async locked<T>(task: () => T | Promise<T>): Promise<T> {
    return task();
  }

  @WithLock('k', joining)
  async *steps<T>(task: () => T): AsyncGenerator<T> {
    yield task();
    yield task();
  }
}

let server: RedisServer;
let app: INestApplication;
let service: Service;
let locks: LockService;

beforeAll(async () => {
  server = await startRedis();
});
afterAll(() => server.stop());
beforeEach(async () => {
  app = await startApp({ providers: [Service] }, { nodes: server.url });
  service = app.get(Service);
  locks = app.get(LockService);
});
afterEach(async () => {
  await app.close();
  const left = await countLocks(server.client());
  await server.client().flushall();
  if (left > 0) throw new Error(`${left} locks were left behind`);
});

/** Removes the lock from the server. The call of `extend` notices the loss at once, before the next renewal. */
async function takeAway(lock: LockHandle): Promise<void> {
  await server.client().del('lock:{k}');
  await expect(lock.extend()).rejects.toBeInstanceOf(LockLostError);
}

describe('a worker that was made under a lock, after the end of the method', () => {
  test('a worker is under no lock', async () => {
    const worker = await service.locked(() => new Worker());
    expect(worker.run(() => [currentLock(), locks.current()])).toEqual([undefined, undefined]);
  });

  test('a job of a worker acquires a new lock, and other calls wait for it', async () => {
    const [worker, first] = await service.locked(() => [new Worker(), currentLock()!.id]);
    await worker.run(() =>
      service.locked(async () => {
        expect(currentLock()?.id).not.toBe(first);
        await expect(outside(() => locks.tryAcquire('k'))).resolves.toBeNull();
      }),
    );
  });

  test('each job of a worker acquires a new lock when the lock of the method was lost', async () => {
    let worker!: Worker;
    const lost = service.locked(async () => {
      worker = new Worker();
      await takeAway(currentLock()!);
    });
    await expect(lost).rejects.toBeInstanceOf(LockLostError);
    for (let job = 0; job < 3; job++)
      await expect(worker.run(() => service.locked(() => currentLock()?.isHeld()))).resolves.toBe(true);
  });

  test('a job of a worker does not join a lock that only a nested call still keeps', async () => {
    let worker!: Worker;
    let end = (): void => undefined;
    let nested!: Promise<void>;
    await service.locked(() => {
      worker = new Worker();
      nested = service.locked(() => new Promise<void>((resolve) => (end = resolve)));
    });
    await expect(worker.run(() => service.locked(() => 'joined'))).rejects.toMatchObject({
      code: 'LOCK_HELD',
      heldByCaller: false,
    });
    end();
    await nested;
  });

  test('a worker is under the lock until the result of the method has ended', async () => {
    const steps = service.steps(() => new Worker());
    const { value: worker } = (await steps.next()) as { value: Worker };
    expect(worker.run(() => currentLock()?.isHeld())).toBe(true);
    await steps.return(undefined);
    expect(worker.run(() => currentLock())).toBeUndefined();
  });

  test('a worker sees the lock of the method around it', async () => {
    await locks.withLock('outer', { ttl: TTL }, async () => {
      const worker = await service.locked(() => new Worker());
      expect(worker.run(() => currentLock()?.keys)).toEqual(['outer']);
    });
  });

  test('during a shutdown, a job of a worker acquires no new lock', async () => {
    const worker = await service.locked(() => new Worker());
    let end = (): void => undefined;
    const running = locks.withLock('other', () => new Promise<void>((resolve) => (end = resolve)));
    await until(async () => (await countLocks(server.client())) === 1);
    const closed = app.close();
    await expect(worker.run(() => service.locked(() => 'ran'))).rejects.toMatchObject({
      code: 'LOCK_UNAVAILABLE',
    });
    end();
    await Promise.all([running, closed]);
  });
});

describe('a lock that is kept until the commit', () => {
  test('a job joins the lock in the transaction that keeps it, and no later', async () => {
    const transactions = new FakeTransactions();
    const other = await startApp({}, { nodes: server.url, ...transactions.hooks });
    const kept = { ...joining, release: 'afterCommit' } as const;
    const lock = (): Promise<string> => other.get(LockService).withLock('k', kept, ({ id }) => id);
    let worker!: Worker;
    const [first, within] = await transactions.run(async () => {
      const id = await other.get(LockService).withLock('k', kept, (handle) => {
        worker = new Worker();
        return handle.id;
      });
      expect(worker.run(() => currentLock())).toBeUndefined();
      return [id, await worker.run(lock)];
    });
    expect(within).toBe(first);
    await until(async () => (await countLocks(server.client())) === 0);
    await expect(worker.run(lock)).resolves.not.toBe(first);
    await other.close();
  });
});

describe('outside', () => {
  test('`outside` leaves all locks, and keeps the other contexts', async () => {
    const request = new AsyncLocalStorage<string>();
    const seen = await request.run('request 1', () =>
      locks.withLock('outer', { ttl: TTL }, () =>
        service.locked(() => outside(() => [currentLock(), locks.current('outer'), request.getStore()])),
      ),
    );
    expect(seen).toEqual([undefined, undefined, 'request 1']);
  });

  test('`outside` returns what its task returns, and throws what its task throws', async () => {
    expect(outside(() => 7)).toBe(7);
    expect(() => outside(() => JSON.parse('{') as unknown)).toThrow(SyntaxError);
    await expect(service.locked(() => outside(async () => currentLock()))).resolves.toBeUndefined();
  });

  test('the calling code is under its lock again after `outside`', async () => {
    await service.locked(() => {
      outside(() => undefined);
      expect(currentLock()?.keys).toEqual(['k']);
    });
  });

  test('a job of a worker that was made in `outside` waits for the lock while the method runs', async () => {
    await service.locked(async () => {
      const [within, without] = [new Worker(), outside(() => new Worker())];
      await expect(within.run(() => service.locked(() => 'joined'))).resolves.toBe('joined');
      await expect(without.run(() => service.locked(() => 'joined'))).rejects.toMatchObject({
        code: 'LOCK_HELD',
        heldByCaller: false,
      });
    });
  });

  test('a lock that is acquired in `outside` has a context of its own', async () => {
    await service.locked(() =>
      outside(() =>
        locks.withLock('other', async () => {
          expect([currentLock()?.keys, currentLock('k')]).toEqual([['other'], undefined]);
        }),
      ),
    );
  });
});

describe('a method that starts its own next run', () => {
  /**
   * Makes `count` runs, each of which `start`s the next one, and returns the number of earlier locks that are still in
   * memory.
   */
  async function remembered(count: number, start: (next: () => void) => void): Promise<number> {
    const earlier: WeakRef<LockHandle>[] = [];
    let alive = Infinity;
    await new Promise<void>((resolve, reject) => {
      const next = (): void => void run(earlier.length).catch(reject);
      const run = (number: number): Promise<void> =>
        locks.withLock(`run ${number}`, { ttl: TTL }, async (lock) => {
          earlier.push(new WeakRef(lock));
          if (earlier.length < count) return start(next);
          // The previous run may still be about to end.
          await until(() => {
            collectGarbage();
            alive = earlier.filter((each) => each.deref() !== undefined).length;
            return alive <= 3;
          }, 2_000).catch(() => undefined);
          resolve();
        });
      next();
    });
    return alive;
  }

  test.each<[string, (next: () => void) => void]>([
    ['at once', (next) => next()],
    ['after its end', (next) => void setImmediate(next)],
    ['by a timer', (next) => void setTimeout(next, 1)],
  ])('earlier runs are not kept in memory when each run starts the next one %s', async (_name, start) => {
    await expect(remembered(30, start)).resolves.toBeLessThanOrEqual(3);
  });
});
