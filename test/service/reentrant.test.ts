import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type { INestApplicationContext } from '@nestjs/common';
import type { Redis } from 'ioredis';
import { AsyncLocalStorage } from 'node:async_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import {
  currentLock,
  type LockHandle,
  LockHeldError,
  LockLostError,
  LockService,
  RedlockModule,
  WithLock,
} from '../../lib/index.js';
import { RedlockTestingModule } from '../../lib/testing/index.js';
import { countLocks, recordOf } from '../support/core.js';
import { startPlainApp } from '../support/nest-app.js';
import { PATIENT } from '../support/patience.js';
import { DURABLE, type RedisServer, startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';

// Rule S18: a nested call that joins a lock has the same fencing token. It throws when the lock has lapsed. Concurrent
// calls do not join.

/** Milliseconds. No lock expires by accident, even if the machine stalls for a moment. */
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

  @WithLock('k', joining)
  async *steps(tasks: readonly (() => unknown)[]): AsyncGenerator<void> {
    for (const [step, task] of tasks.entries()) {
      if (step === tasks.length - 1) await task();
      else void task();
      yield;
    }
  }

  @WithLock('k', { retry: false, ttl: TTL })
  async plain(): Promise<void> {}
}

/** A test opens the gate when the waiting code may continue. */
class Gate {
  open!: () => void;
  readonly opened = new Promise<void>((resolve) => (this.open = resolve));
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
  await looker.flushall();
  if (left > 0) throw new Error(`${left} locks were left behind`);
});

/** Removes the lock from the server. The call of `extend` notices the loss at once, before the next renewal. */
async function takeAway(lock: LockHandle): Promise<void> {
  await looker.del('lock:{k}');
  await expect(lock.extend()).rejects.toBeInstanceOf(LockLostError);
}

describe('a nested call that joins the lock of its caller (S18)', () => {
  test("a nested call that joins a lock gets the lock's fencing token, without a request to Redis", async () => {
    await looker.config('RESETSTAT');
    const tokens = await service.outer(async () => [currentLock('k')?.fencingToken, await service.inner()]);
    expect(tokens[0]).toEqual(expect.any(Number));
    expect(tokens[1]).toBe(tokens[0]);
    expect(await looker.info('commandstats')).toMatch(/cmdstat_set:calls=2,/);
  });

  test('nested calls join the outer lock at any depth, and several times in a row', async () => {
    const inner = await service.outer(() =>
      service.outer(async () => {
        await service.inner();
        return service.inner();
      }),
    );
    expect(inner).toEqual(expect.any(Number));
  });

  test('a nested call that has joined a lock does not release that lock when it ends', async () => {
    await service.outer(async () => {
      await service.inner();
      expect(currentLock('k')?.isHeld()).toBe(true);
      await expect(countLocks(looker)).resolves.toBe(1);
      await expect(service.plain()).rejects.toBeInstanceOf(LockHeldError);
    });
  });

  test('a nested `LockService.acquire` joins the outer lock, and the joined handle does not release that lock', async () => {
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

  test('a joined call cannot exceed the `maxHold` of the call that acquired the lock', async () => {
    await locks.withLock('k', { maxHold: 1 }, async () => {
      await delay(5);
      const joined = await locks.acquire('k', { ...joining, maxHold: 60_000 });
      await expect(joined.extend()).rejects.toMatchObject({ code: 'MAX_HOLD_REACHED' });
      expect(joined.isHeld()).toBe(true);
    });
  });

  test('a nested call that joins a lock gets the signal of that lock', async () => {
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

describe('a call that cannot join (S18)', () => {
  test('a nested call is refused while another nested call has joined the lock', async () => {
    const results = await service.outer(() => Promise.allSettled([service.inner(), service.inner()]));
    expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
    expect((results[1] as PromiseRejectedResult).reason).toMatchObject({
      code: 'LOCK_HELD',
      heldByCaller: true,
    });
    expect(service.mostInside).toBe(1);
  });

  test('a nested call rejects with LockLostError when the lock of its caller is lost', async () => {
    const nested = service.outer(async () => {
      await takeAway(currentLock('k')!);
      return service.inner();
    });
    await expect(nested).rejects.toBeInstanceOf(LockLostError);
    expect(service.mostInside).toBe(0);
  });

  test('a nested call without `reentrant` is refused with `heldByCaller: true`', async () => {
    const nested = service.outer(() => service.plain());
    await expect(nested).rejects.toMatchObject({ code: 'LOCK_HELD', heldByCaller: true });
    await expect(nested).rejects.toThrow('Set `reentrant` to join the held lock');
  });

  test("a nested call is refused when it needs a key that its caller's lock does not include", async () => {
    const nested = service.outer(() => locks.acquire(['k', 'other'], joining));
    await expect(nested).rejects.toBeInstanceOf(LockHeldError);
  });

  test('a call is refused while an unrelated call holds the lock', async () => {
    const outer = service.outer(() => delay(50));
    await expect(service.inner()).rejects.toBeInstanceOf(LockHeldError);
    await outer;
  });

  describe('beside another call that has joined the lock', () => {
    /** Runs `task` under a lock that a nested call has joined. Both calls end with a LockLostError. */
    async function besideSibling(task: (lock: LockHandle) => Promise<void>): Promise<void> {
      const gate = new Gate();
      const outer = service.outer(async () => {
        const sibling = locks.withLock('k', joining, () => gate.opened);
        sibling.catch(() => undefined); // the test checks it below
        await task(currentLock('k')!);
        gate.open();
        await expect(sibling).rejects.toBeInstanceOf(LockLostError);
      });
      await expect(outer).rejects.toBeInstanceOf(LockLostError);
      expect(service.mostInside).toBe(0);
    }

    test('a nested call rejects with LockLostError when the lock is lost', async () => {
      await besideSibling(async (lock) => {
        await takeAway(lock);
        await expect(service.inner()).rejects.toBeInstanceOf(LockLostError);
      });
    });

    test('a nested call rejects and reports the loss of the outer lock when nobody has noticed that loss yet', async () => {
      await besideSibling(async (lock) => {
        const { signal } = lock;
        await looker.del('lock:{k}');
        await expect(service.inner()).rejects.toThrow(
          'a nested call could acquire its keys, so the lock had already ended',
        );
        expect([lock.isHeld(), signal.aborted]).toEqual([false, true]);
        await expect(countLocks(looker)).resolves.toBe(0);
      });
    });

    test('a nested call rejects with LockLostError when another holder gets the lock while the call waits', async () => {
      await besideSibling(async (lock) => {
        const waiting = locks.withLock('k', { ...joining, retry: { timeout: 60_000 } }, () => 'never');
        waiting.catch(() => undefined); // the test checks it below
        await until(async () => (await looker.exists('lock:{k}:q')) === 1);
        await looker.set('lock:{k}', recordOf('them', 'f'.repeat(32)), 'PX', 90_000);
        await expect(lock.extend()).rejects.toBeInstanceOf(LockLostError);
        await expect(waiting).rejects.toBeInstanceOf(LockLostError);
      });
      await looker.del('lock:{k}');
    });
  });

  test('a call in the context of a lost lock acquires a new lock when the outer call has ended', async () => {
    let late: (() => Promise<unknown>) | undefined;
    const outer = service.outer(async () => {
      late = AsyncLocalStorage.bind(() => service.inner());
      await takeAway(currentLock('k')!);
      await expect(late()).rejects.toBeInstanceOf(LockLostError);
    });
    await expect(outer).rejects.toBeInstanceOf(LockLostError);
    await expect(late?.()).resolves.toEqual(expect.any(Number));
  });

  test('a nested call is refused while a joined call runs, even if that call began in the context of an ended nested call', async () => {
    const gate = new Gate();
    await service.outer(async () => {
      const begin = await locks.withLock('k', joining, () =>
        AsyncLocalStorage.bind(() => locks.withLock('k', joining, () => gate.opened)),
      );
      const late = begin();
      await expect(service.inner()).rejects.toMatchObject({ code: 'LOCK_HELD', heldByCaller: true });
      gate.open();
      await late;
    });
  });

  test('a nested call is refused while a call that joined in an earlier step of the same generator still runs', async () => {
    const gate = new Gate();
    const steps = service.steps([
      () => locks.withLock('k', joining, () => gate.opened),
      () => locks.acquire('k', joining),
    ]);
    await steps.next();
    await expect(steps.next()).rejects.toMatchObject({ code: 'LOCK_HELD', heldByCaller: true });
    gate.open();
    await until(async () => (await countLocks(looker)) === 0);
  });

  test('a nested call acquires a new lock when its caller has ended', async () => {
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

describe('a nested call that is not awaited', () => {
  /** True if another process can acquire the lock. */
  const isFree = async (): Promise<boolean> => {
    const lock = await others.get(LockService).tryAcquire('k');
    await lock?.release();
    return lock !== null;
  };

  let others: INestApplicationContext;
  beforeEach(async () => {
    others = await startPlainApp({ imports: [RedlockModule.forRoot({ ...PATIENT, nodes: server.url })] });
  });
  afterEach(() => others.close());

  test('a nested call that nobody awaits keeps the lock until the call ends, and then releases it', async () => {
    const gate = new Gate();
    let nested: Promise<unknown> | undefined;
    const token = await service.outer(async () => {
      nested = locks.withLock('k', joining, async (joined) => {
        await gate.opened;
        return [joined.fencingToken, joined.isHeld(), currentLock('k')?.isHeld()];
      });
      return currentLock('k')?.fencingToken;
    });
    await expect(isFree()).resolves.toBe(false);
    gate.open();
    await expect(nested).resolves.toEqual([token, true, true]);
    await expect(isFree()).resolves.toBe(true);
  });

  test('a nested call that nobody awaits never runs beside another holder', async () => {
    let inside = 0;
    let most = 0;
    const alone = async (): Promise<void> => {
      most = Math.max(most, ++inside);
      await delay(5);
      inside--;
    };
    const nested: Promise<void>[] = [];
    const options = { ttl: TTL, retry: { timeout: 60_000 } };
    const begin = (): Promise<void> =>
      locks.withLock('k', options, () => void nested.push(locks.withLock('k', joining, alone)));
    const rival = others.get(LockService);
    for (let run = 0; run < 20; run++) await Promise.all([begin(), rival.withLock('k', options, alone)]);
    await Promise.all(nested);
    expect([nested.length, most]).toEqual([20, 1]);
  });

  test('a nested call that nobody awaits keeps the lock until a call that it started has ended', async () => {
    const gate = new Gate();
    let innermost: Promise<unknown> | undefined;
    let ended = false;
    const token = await service.outer(async () => {
      void service
        .outer(async () => {
          innermost = locks.withLock('k', joining, async (joined) => {
            await gate.opened;
            return [joined.fencingToken, joined.isHeld()];
          });
        })
        .then(() => (ended = true));
      return currentLock('k')?.fencingToken;
    });
    await until(() => ended);
    await expect(isFree()).resolves.toBe(false);
    gate.open();
    await expect(innermost).resolves.toEqual([token, true]);
    await expect(isFree()).resolves.toBe(true);
  });

  test('a nested call sees a manual release of the outer lock as a loss', async () => {
    const gate = new Gate();
    const result = await service.outer(async () => {
      const nested = locks.withLock('k', joining, () => gate.opened);
      const lock = currentLock('k')!;
      const { signal } = lock;
      await lock.release();
      const reason = 'the outer call released it while a nested call still used it';
      expect((signal.reason as Error).message).toContain(reason);
      gate.open();
      await expect(nested).rejects.toThrow(reason);
      await expect(isFree()).resolves.toBe(true);
      return 'result';
    });
    // The caller that released the lock does not see a loss.
    expect(result).toBe('result');
  });

  test.each([
    ['the outer call', <T>(task: () => Promise<T>) => service.outer(task)],
    [
      'an outer call that has joined a lock',
      <T>(task: () => Promise<T>) => service.outer(() => service.outer(task)),
    ],
  ])('a joined handle that is not released before the end of %s loses its lock', async (_name, run) => {
    const lock = await run(() => locks.acquire('k', joining));
    const { signal } = lock;
    expect([lock.isHeld(), signal.aborted]).toEqual([false, true]);
    expect(signal.reason).toBeInstanceOf(LockLostError);
    await expect(isFree()).resolves.toBe(true);
    await lock.release();
  });

  test('a nested `acquire` returns a handle of a lost lock when the grant arrives after the outer call has ended', async () => {
    // The outer call ends at once, before the nodes in memory answer.
    const imports = [RedlockTestingModule.forRoot()];
    const testing = await startPlainApp({ imports });
    const inMemory = testing.get(LockService);
    let acquiring: Promise<LockHandle> | undefined;
    await inMemory.withLock('k', () => void (acquiring = inMemory.acquire('k', joining)));
    const { signal } = await acquiring!;
    expect(signal.reason).toBeInstanceOf(LockLostError);
    await expect(inMemory.withLock('k', { retry: false }, () => 'free')).resolves.toBe('free');
    await testing.close();
  });

  test('a nested call that nobody awaits delays the shutdown until the call ends', async () => {
    const gate = new Gate();
    let nested: Promise<unknown> | undefined;
    await service.outer(async () => {
      nested = locks.withLock('k', joining, async (joined) => {
        await gate.opened;
        return joined.isHeld();
      });
    });
    const closing = app.close();
    // The application refuses new calls by now.
    await until(() =>
      locks.tryAcquire('other').then(
        async (lock) => (await lock?.release(), false),
        () => true,
      ),
    );
    gate.open();
    await expect(nested).resolves.toBe(true);
    await closing;
    await expect(isFree()).resolves.toBe(true);
  });
});
