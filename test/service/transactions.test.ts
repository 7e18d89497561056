import { AsyncLocalStorage } from 'node:async_hooks';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { type DynamicModule, type INestApplication, Injectable, type Provider } from '@nestjs/common';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { setImmediate } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import {
  currentLock,
  type LockEvent,
  type LockHandle,
  LockHeldError,
  LockLostError,
  LockService,
  LockUnavailableError,
  RedlockModule,
  type RedlockModuleOptions,
  WithLock,
} from '../../lib/index.js';
import { bundled } from '../support/bundle.js';
import { heldKeys } from '../support/core.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { LogLines } from '../support/log-lines.js';
import { startApp } from '../support/nest-app.js';
import { DURABLE, type RedisServer, startRedis } from '../support/redis-server.js';
import { renewed } from '../support/renewed.js';
import { FakeTransactions, Step } from '../support/transactions.js';
import { until } from '../support/until.js';

const kept = { release: 'afterCommit', ttl: 12_000 } as const;
const joining = { ...kept, reentrant: true } as const;
const oneAttempt = { retry: false } as const;

@Injectable()
class Orders {
  @WithLock('order', kept)
  async pay(task: () => unknown = () => undefined): Promise<LockHandle> {
    await task();
    return currentLock()!;
  }

  @WithLock('order', { ...kept, maxHold: 100, ttl: 2_400 })
  async payBriefly(): Promise<LockHandle> {
    return currentLock()!;
  }

  @WithLock('order', joining)
  async add(task: () => unknown = () => undefined): Promise<LockHandle> {
    await task();
    return currentLock()!;
  }

  @WithLock('order', { mode: 'shared', ...kept })
  async read(): Promise<void> {}

  @WithLock('order', kept)
  async print(): Promise<Readable> {
    return Readable.from(['a', 'b']);
  }
}

@Injectable()
class Plain {
  constructor(private readonly locks: LockService) {}

  @WithLock('plain')
  async run(): Promise<void> {}

  @WithLock('plain', { reentrant: true })
  async nested(): Promise<void> {
    await this.locks.withLock('plain', { reentrant: true }, () => undefined);
  }
}

let redis: RedisServer;
let looker: Redis;
beforeAll(async () => {
  redis = await startRedis(DURABLE);
  looker = redis.client();
});
afterAll(() => redis.stop());

let app: INestApplication;
let orders: Orders;
let plain: Plain;
let locks: LockService;
let database: FakeTransactions;
let lines: LogLines;
let events: LockEvent[];

async function start(options: Partial<RedlockModuleOptions> = {}): Promise<void> {
  database = new FakeTransactions();
  await startWith([Orders, Plain], { ...database.hooks, ...options });
}

/** An application without `afterTransaction`: it gets no notice when a transaction ends. */
async function startWithoutEnds(): Promise<void> {
  database = new FakeTransactions();
  await startWith([Plain], { inTransaction: database.hooks.inTransaction });
}

async function startWith(
  providers: Provider[],
  options: Partial<RedlockModuleOptions>,
  imports: DynamicModule[] = [],
): Promise<void> {
  lines = new LogLines();
  events = [];
  const onEvent = (event: LockEvent): void => void events.push(event);
  app = await startApp({ imports, providers }, { nodes: redis.url, onEvent, ...options }, { logger: lines });
  if (providers.includes(Orders)) orders = app.get(Orders);
  plain = app.get(Plain);
  locks = app.get(LockService);
}

const isHeld = async (key = 'order'): Promise<boolean> => (await heldKeys(looker)).includes(`lock:{${key}}`);
const isFree = async (): Promise<boolean> => !(await isHeld());

afterEach(async () => {
  await app.close();
  await looker.flushall();
});

describe("release: 'afterCommit'", () => {
  beforeEach(() => start());

  test('`afterCommit` keeps the lock after the method has returned, and releases the lock at the commit', async () => {
    const held = await database.run(async () => {
      const lock = await orders.pay();
      return [lock.isHeld(), await isHeld()];
    });
    expect(held).toEqual([true, true]);
    await until(isFree);
    expect(events.map(({ type }) => type)).toEqual(['acquired', 'released']);
    expect(lines.lines).toEqual([]);
  });

  test('`afterCommit` releases the lock when the transaction is rolled back', async () => {
    const rolledBack = database.run(async () => {
      await orders.pay();
      expect(await isHeld()).toBe(true);
      throw new Error('rolled back');
    });
    await expect(rolledBack).rejects.toThrow('rolled back');
    await until(isFree);
  });

  test('`afterCommit` keeps the lock when the method threw, because its caller may still commit', async () => {
    await database.run(async () => {
      const failing = orders.pay(() => Promise.reject(new Error('own')));
      await expect(failing).rejects.toThrow('own');
      expect(await isHeld()).toBe(true);
    });
    await until(isFree);
  });

  test('`afterCommit` releases the lock at the end of a method outside of a transaction', async () => {
    await orders.pay();
    expect(await isHeld()).toBe(false);
  });

  test('`afterCommit` releases the lock at the end of a method that begins its own transaction', async () => {
    await orders.pay(() => database.run(async () => expect(await isHeld()).toBe(true)));
    expect(await isHeld()).toBe(false);
    expect(lines.lines).toEqual([]);
  });

  test('`afterCommit` keeps the lock of a `withLock` task until the commit', async () => {
    await database.run(async () => {
      await locks.withLock('order', kept, () => undefined);
      expect(await isHeld()).toBe(true);
    });
    await until(isFree);
  });

  test('`afterCommit` keeps the lock until the end of the outermost transaction, not of a savepoint', async () => {
    await database.run(async () => {
      await database.run(() => orders.pay());
      expect(await isHeld()).toBe(true);
    });
    await until(isFree);
  });

  test('a lock with `afterCommit` is renewed until the commit', async () => {
    await database.run(async () => {
      const lock = await orders.pay();
      await renewed(looker, 'lock:{order}');
      expect(lock.isHeld()).toBe(true);
    });
  });

  test('a lock with `afterCommit` excludes other callers until the commit, and then the next caller acquires without a poll', async () => {
    const steps: string[] = [];
    let waited = Infinity;
    const next = new Step();
    const paid = database.run(async () => {
      await orders.pay();
      const asked = performance.now();
      // With a limit of attempts, a waiter in the queue that gets no message sleeps for the whole delay, or for the ttl.
      const retry = { timeout: 60_000, attempts: 1_000, delay: 60_000 };
      const waiting = locks.withLock('order', { retry }, () => void steps.push('next holder'));
      void waiting.then(() => (waited = performance.now() - asked)).then(next.done);
      await until(async () => (await looker.exists('lock:{order}:q')) === 1);
      steps.push('commit');
    });
    await paid;
    await next.reached;
    expect(steps).toEqual(['commit', 'next holder']);
    // The lock of the transaction had two thirds of its ttl left at least.
    expect(waited).toBeLessThan((2 / 3) * kept.ttl - 500);
  });

  test('`afterCommit` keeps the lock of a method that returns a stream when the stream ends before the transaction', async () => {
    await database.run(async () => {
      await expect(text(await orders.print())).resolves.toBe('ab');
      expect(await isHeld()).toBe(true);
    });
    await until(isFree);
  });

  test('`afterCommit` releases the lock at the end of the method when the transaction ends earlier', async () => {
    const [running, goOn] = [new Step(), new Step()];
    let paid: Promise<unknown> | undefined;
    await database.run(async () => {
      paid = orders.pay(() => (running.done(), goOn.reached));
      await running.reached;
    });
    expect(await isHeld()).toBe(true);
    goOn.done();
    await paid;
    expect(await isHeld()).toBe(false);
  });

  test('`afterCommit` releases the lock at the end of the method when the transaction ends during the wait for the lock', async () => {
    const other = await locks.acquire('order');
    let paid: Promise<unknown> | undefined;
    await database.run(async () => {
      paid = orders.pay();
      await until(async () => (await looker.exists('lock:{order}:q')) === 1);
    });
    await other.release();
    await paid;
    expect(await isHeld()).toBe(false);
  });

  test('after a lock is lost, the commit does not release the lock of the next holder', async () => {
    const outside = AsyncLocalStorage.snapshot();
    const next = await database.run(async () => {
      const lock = await orders.pay();
      await locks.forceRelease('order');
      expect(lock.signal.reason).toBeInstanceOf(LockLostError);
      expect(() => lock.assertHeld()).toThrow(LockLostError);
      return outside(() => locks.acquire('order'));
    });
    expect(events.map(({ type }) => type)).toEqual(['acquired', 'lost', 'force-released', 'acquired']);
    expect(lines.of('warn')).toEqual([expect.stringMatching(/^The lock on "order" is lost/)]);
    expect(next.isHeld()).toBe(true);
    expect(await isHeld()).toBe(true);
    await next.release();
  });

  test('a method rejects when its lock was lost before the method returned, so that nothing is committed', async () => {
    const paid = database.run(() => orders.pay(() => locks.forceRelease('order')));
    await expect(paid).rejects.toBeInstanceOf(LockLostError);
  });

  test('a lock with `afterCommit` is lost after `maxHold` when the transaction does not end', async () => {
    await database.run(async () => {
      const lock = await orders.payBriefly();
      await until(() => lock.state === 'lost');
      expect((lock.signal.reason as Error).message).toMatch(/its maxHold of 100 ms had passed/);
      await until(isFree);
    });
  });
});

describe('calls of one transaction', () => {
  beforeEach(() => start());

  test('a later `reentrant` call joins the lock that its transaction keeps', async () => {
    await database.run(async () => {
      const [first, second] = [await orders.add(), await orders.add()];
      expect(second.fencingToken).toBe(first.fencingToken);
      expect(await isHeld()).toBe(true);
    });
    await until(isFree);
    expect(events.map(({ type }) => type)).toEqual(['acquired', 'released']);
  });

  test('a call does not join the lock of another transaction', async () => {
    const outside = AsyncLocalStorage.snapshot();
    await database.run(async () => {
      await orders.add();
      const other = outside(() => locks.withLock('order', { ...joining, ...oneAttempt }, () => undefined));
      await expect(other).rejects.toMatchObject({ code: 'LOCK_HELD', heldByCaller: false });
    });
    await until(isFree);
    const [first, second] = [await database.run(() => orders.add()), await database.run(() => orders.add())];
    expect(second.fencingToken).toBeGreaterThan(first.fencingToken);
  });

  test('a call does not join the lock of a concurrent call in the same transaction', async () => {
    const [running, goOn] = [new Step(), new Step()];
    await database.run(async () => {
      const first = orders.add(() => (running.done(), goOn.reached));
      await running.reached;
      const beside = locks.withLock('order', { ...joining, ...oneAttempt }, () => undefined);
      await expect(beside).rejects.toBeInstanceOf(LockHeldError);
      goOn.done();
      await first;
    });
  });

  test('a later call in the same transaction is refused with `heldByCaller: true` when `reentrant` is not set', async () => {
    await database.run(async () => {
      await orders.pay();
      const again = locks.withLock('order', { ...kept, ...oneAttempt }, () => undefined);
      await expect(again).rejects.toMatchObject({ heldByCaller: true });
    });
  });

  test('a concurrent call in the same transaction is refused with `heldByCaller: true` when `reentrant` is not set', async () => {
    await database.run(async () => {
      const pay = (): Promise<void> =>
        locks.withLock('order', { ...kept, retry: { timeout: 2_000 } }, () => undefined);
      const [first, second] = await Promise.allSettled([pay(), pay()]);
      expect(first.status).toBe('fulfilled');
      expect(second).toMatchObject({ status: 'rejected', reason: { heldByCaller: true } });
    });
  });

  test('a later call cannot upgrade the shared lock that its transaction keeps', async () => {
    await database.run(async () => {
      await orders.read();
      await expect(orders.pay()).rejects.toMatchObject({ code: 'LOCK_UPGRADE' });
    });
  });

  test('a call that tries to join a lost lock rejects with LockLostError', async () => {
    await database.run(async () => {
      await orders.add();
      await locks.forceRelease('order');
      await expect(orders.add()).rejects.toBeInstanceOf(LockLostError);
    });
  });

  test('a joined call that outlives the transaction keeps the lock until the call has ended', async () => {
    const [running, goOn] = [new Step(), new Step()];
    let late: Promise<unknown> | undefined;
    await database.run(async () => {
      await orders.add();
      late = orders.add(() => (running.done(), goOn.reached));
      await running.reached;
    });
    expect(await isHeld()).toBe(true);
    goOn.done();
    await late;
    await until(isFree);
  });
});

describe('a shutdown', () => {
  test('a shutdown waits for the transaction of a method that has returned, and lets the transaction acquire further locks', async () => {
    await start();
    // A signal such as SIGTERM shuts the application down, and no code of the transaction.
    const outside = AsyncLocalStorage.snapshot();
    let closing: Promise<void> | undefined;
    await database.run(async () => {
      const lock = await orders.pay();
      closing = outside(() => app.close());
      // The shutdown has begun when calls outside of a transaction are refused.
      const refused = (): Promise<boolean> =>
        outside(() => locks.withLock('other', oneAttempt, () => false)).catch(
          (error: unknown) => error instanceof LockUnavailableError,
        );
      await until(refused);
      await expect(locks.withLock('other', kept, (other) => other.isHeld())).resolves.toBe(true);
      expect(lock.isHeld()).toBe(true);
      expect(await isHeld()).toBe(true);
    });
    await closing;
    expect(await isHeld()).toBe(false);
    expect(lines.lines).toEqual([]);
  });

  test('a shutdown does not wait longer than `shutdownTimeout` for a transaction, and leaves the lock to its ttl', async () => {
    await start({ shutdownTimeout: 50 });
    const outside = AsyncLocalStorage.snapshot();
    await database.run(async () => {
      const { signal } = await orders.pay();
      await outside(() => app.close());
      expect((signal.reason as Error).message).toContain(
        'the application shut down before the transaction around its method had ended',
      );
      expect(await isHeld()).toBe(true);
    });
    expect(lines.of('warn')).toEqual([expect.stringMatching(/^Shut down while .* locks on "order"\./)]);
    expect(await looker.pttl('lock:{order}')).toBeGreaterThan(0);
  });
});

test('the ttl ends the lock of a process that is killed before the commit', async () => {
  await start();
  const file = await bundled('test/fixtures/transaction-app.ts');
  const child = spawn(process.execPath, [file], {
    env: { ...process.env, NODE_OPTIONS: '', REDIS_URL: redis.url },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const forget = cleanUpAfterTests(async () => void child.kill('SIGKILL'));
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  expect(line).toBe('kept');
  expect(await isHeld()).toBe(true);
  child.kill('SIGKILL');
  await once(child, 'close');
  forget();
  const killed = performance.now();
  const next = await locks.acquire('order', { retry: { timeout: 60_000 } });
  expect(performance.now() - killed).toBeLessThan(30_000);
  await next.release();
});

describe('a lock with transaction hooks', () => {
  test('a lock that is released inside a transaction is logged with advice, once for each method', async () => {
    await start();
    await plain.run();
    expect(lines.lines).toEqual([]);
    await database.run(() => plain.run());
    await database.run(() => plain.run());
    expect(lines.of('warn')).toEqual([
      'Plain.run locks "plain" inside an open transaction. If the lock is released before the commit, the next holder does not ' +
        'see the writes of this holder. Put the lock around the transaction: `@WithLock` above `@Transactional`, on the ' +
        "method that begins the transaction; or give `@WithLock` the option `release: 'afterCommit'`.",
    ]);
    await database.run(() => plain.nested());
    expect(lines.of('warn')).toHaveLength(2);
  });

  test('a lock that LockService acquires inside a transaction is logged once for each label', async () => {
    await startWithoutEnds();
    await database.run(async () => {
      await using lock = await locks.acquire('a:1');
      await locks.tryAcquire('a:2');
      await locks.withLock('a:3', { label: 'rows' }, () => lock);
    });
    expect(lines.of('warn')).toEqual([
      'LockService (label "other") locks "a:1" inside an open transaction. If the lock is released before the commit, the next ' +
        'holder does not see the writes of this holder. Acquire the lock before the transaction begins, and release it after ' +
        "the commit; or use `withLock` with `release: 'afterCommit'`, and give the module `afterTransaction`.",
      expect.stringMatching(/^LockService \(label "rows"\) locks "a:3"/),
    ]);
  });

  test('`inTransaction` is called when a lock is acquired, and not when a nested call joins the lock', async () => {
    await startWithoutEnds();
    await database.run(async () => undefined);
    expect(database.asked).toBe(0);
    await plain.nested();
    expect(database.asked).toBe(1);
  });

  test.each([
    [
      'throws',
      () => {
        throw new Error('no context');
      },
      /`inTransaction` failed: no context\./,
    ],
    [
      'returns a Promise',
      () => Promise.resolve(true),
      /`inTransaction` failed: expected `inTransaction` to return .*, got a Promise\./,
    ],
    [
      'returns a string',
      () => 'yes',
      /`inTransaction` failed: expected `inTransaction` to return .*, got string\./,
    ],
  ])('a lock is acquired when `inTransaction` %s, and the failure is logged once', async (_, hook, told) => {
    await start({ inTransaction: hook as () => object });
    await plain.run();
    await plain.nested();
    expect(lines.of('error')).toEqual([expect.stringMatching(told)]);
    expect(lines.of('warn')).toEqual([]);
    expect(events.filter(({ type }) => type === 'acquired')).toHaveLength(2);
    // The end of the transaction is unknown, so a lock with `afterCommit` is refused with an error.
    await expect(orders.pay()).rejects.toBeInstanceOf(Error);
    expect(await isHeld()).toBe(false);
  });

  test('a lock with `afterCommit` is refused when `afterTransaction` throws', async () => {
    const afterTransaction = (): void => {
      throw new Error('no hooks');
    };
    await start({ inTransaction: () => true, afterTransaction });
    await expect(orders.pay()).rejects.toThrow('no hooks');
    expect(events).toEqual([]);
  });
});

test.each([
  ['a Promise that rejects', () => Promise.reject(new Error('no hooks'))],
  ['a Promise', () => Promise.resolve()],
  ['a thenable', () => ({ then: () => undefined })],
])('nothing is locked when `afterTransaction` returns %s', async (_, afterTransaction) => {
  await start({ inTransaction: () => true, afterTransaction });
  await expect(orders.pay()).rejects.toThrow(
    new TypeError(
      'expected `afterTransaction` to return nothing, got a Promise, which nobody would await. Register the callback ' +
        'synchronously, and write `void` before a Promise whose rejection is handled',
    ),
  );
  // Jest fails the test when a rejection stays unhandled for a turn of the event loop.
  await setImmediate();
  expect(await isHeld()).toBe(false);
  expect(events).toEqual([]);
});

describe('when `inTransaction` returns only true or false', () => {
  test('with a boolean `inTransaction` a lock is kept until the commit, but a later call cannot join the lock', async () => {
    const fake = new FakeTransactions();
    await start({
      inTransaction: () => fake.hooks.inTransaction() !== undefined,
      afterTransaction: fake.hooks.afterTransaction,
    });
    await fake.run(async () => {
      await orders.add();
      expect(await isHeld()).toBe(true);
      const again = locks.withLock('order', { ...joining, ...oneAttempt }, () => undefined);
      await expect(again).rejects.toBeInstanceOf(LockHeldError);
    });
    await until(isFree);
  });
});

describe("`release: 'afterCommit'` in the defaults of the module", () => {
  test('`afterCommit` in the defaults applies to locked methods, and not to handles from `acquire`', async () => {
    await start({ defaults: { release: 'afterCommit' } });
    await database.run(async () => {
      await plain.run();
      expect(await isHeld('plain')).toBe(true);
      const lock = await locks.acquire('handle');
      await lock.release();
      expect(await isHeld('handle')).toBe(false);
    });
    await until(async () => !(await isHeld('plain')));
    expect(lines.of('warn')).toEqual([expect.stringMatching(/^LockService/)]);
  });
});

test('a call in an ended transaction releases its lock when the call ends, and only one warning is logged', async () => {
  const ends: (() => void)[] = [];
  const transaction = {};
  await start({ inTransaction: () => transaction, afterTransaction: (callback) => void ends.push(callback) });
  await orders.add();
  expect(await isHeld()).toBe(true);
  for (const end of ends) end();
  await until(isFree);
  for (let time = 0; time < 2; time++) {
    await orders.add();
    expect(await isHeld()).toBe(false);
  }
  await plain.run();
  expect(ends).toHaveLength(1);
  expect(lines.of('warn')).toEqual([
    'Orders.add locks "order" in a transaction that has already ended, so the lock is released when its method or callback ends. Await the call ' +
      'inside the transaction; or, if the call is in a new transaction, let `inTransaction` return a different object for ' +
      'each transaction.',
  ]);
});

const NEEDS = "`release: 'afterCommit'` needs `RedlockModule.forRoot({ inTransaction, afterTransaction })`";

describe('without a transaction hook', () => {
  test("start-up refuses `release: 'afterCommit'` without transaction hooks, also on a method of a base class", async () => {
    class MoreOrders extends Orders {}
    for (const provider of [Orders, { provide: MoreOrders, useFactory: () => new MoreOrders() }])
      await expect(startWith([provider, Plain], {})).rejects.toThrow(`@WithLock of Orders.pay: ${NEEDS}`);
    await startWithoutEnds();
  });

  test("a method with `instance: 'other'` is checked against the transaction hooks of that module instance", async () => {
    class Elsewhere {
      @WithLock('order', { release: 'afterCommit', instance: 'other' })
      async pay(): Promise<void> {}
    }
    Injectable()(Elsewhere);
    const imports = [
      RedlockModule.forRoot({ name: 'other', nodes: 'memory', ...new FakeTransactions().hooks }),
    ];
    await startWith([Elsewhere, Plain], {}, imports);
    await expect(app.get(Elsewhere).pay()).resolves.toBeUndefined();
  });

  test("`withLock` with `release: 'afterCommit'` rejects when the module has no `afterTransaction`", async () => {
    await startWithoutEnds();
    await expect(locks.withLock('order', kept, () => undefined)).rejects.toThrow(
      new RegExp(`^${escaped(NEEDS)}`),
    );
    await expect(locks.withLock('order', {}, () => 1)).resolves.toBe(1);
  });
});

const escaped = (words: string): string => words.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&');
