import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Injectable, Module } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import {
  currentLock,
  InjectLockService,
  LockHeldError,
  LockLostError,
  LockService,
  LockUnavailableError,
  RedlockModule,
  WithLock,
} from '../../lib/index.js';
import {
  expectLocked,
  RedlockTestingModule,
  type RedlockTestingOptions,
  TestLocks,
} from '../../lib/testing/index.js';
import { LogLines } from '../support/log-lines.js';

const opened: TestingModule[] = [];

afterEach(async () => {
  jest.useRealTimers();
  await Promise.all(opened.splice(0).map((module) => module.close()));
});

async function serviceOn(options: RedlockTestingOptions): Promise<LockService> {
  const module = await Test.createTestingModule({
    imports: [RedlockTestingModule.forRoot(options)],
  }).compile();
  opened.push(module);
  return module.get(LockService);
}

describe('TestLocks', () => {
  let locks: TestLocks;
  let service: LockService;

  beforeEach(async () => {
    locks = new TestLocks({ wait: false });
    service = await serviceOn({ locks });
  });

  test('locks of `TestLocks` exclude each other within one application and between two applications', async () => {
    const second = await serviceOn({ locks, owner: 'second' });
    const lock = await second.acquire('a');
    await expect(service.acquire('a')).rejects.toMatchObject({ code: 'LOCK_HELD', owner: 'second' });
    await expect(second.acquire('a')).rejects.toMatchObject({ code: 'LOCK_HELD', owner: 'second' });
    await lock.release();
    await (await service.acquire('a')).release();
  });

  test('`TestLocks` lets a caller wait for a held lock by default', async () => {
    const patient = new TestLocks();
    const waiting = await serviceOn({ locks: patient });
    const other = await patient.hold('a');
    const acquired = waiting.acquire('a', { retry: { timeout: 10_000, delay: 5 } });
    await other.release();
    await expect(acquired).resolves.toMatchObject({ state: 'held' });
  });

  test("`TestLocks` accepts `release: 'afterCommit'` without transaction hooks, and releases the lock when the method ends", async () => {
    class Orders {
      @WithLock('order', { release: 'afterCommit' })
      async pay(): Promise<void> {}
    }
    Injectable()(Orders);
    const imports = [RedlockTestingModule.forRoot({ locks })];
    const module = await Test.createTestingModule({ imports, providers: [Orders] }).compile();
    opened.push(await module.init());
    await expect(module.get(Orders).pay()).resolves.toBeUndefined();
    expectLocked(locks, 'order', { method: 'Orders.pay' });
    await (await service.acquire('order')).release();
  });

  test('with fake timers, a lock without renewal ends when its ttl has passed', async () => {
    jest.useFakeTimers();
    const lock = await service.acquire('a', { ttl: 10_000, renew: false });
    await jest.advanceTimersByTimeAsync(9_000);
    expect(lock.isHeld()).toBe(true);
    await jest.advanceTimersByTimeAsync(1_000);
    expect(lock.signal.aborted).toBe(true);
    await (await service.acquire('a')).release();
  });

  test('with fake timers, a lock is renewed beyond its ttl', async () => {
    jest.useFakeTimers();
    const lock = await service.acquire('a', { ttl: 10_000 });
    await jest.advanceTimersByTimeAsync(300_000);
    expect(lock.isHeld()).toBe(true);
    await expect(service.acquire('a')).rejects.toBeInstanceOf(LockHeldError);
    await lock.release();
  });

  describe('hold', () => {
    test('`hold` takes a lock as another process, until the lock is released', async () => {
      jest.useFakeTimers();
      const other = await locks.hold(['a', 'b'], { owner: 'instance-2' });
      await jest.advanceTimersByTimeAsync(60_000);
      await expect(service.acquire('b')).rejects.toMatchObject({ owner: 'instance-2' });
      await expect(service.tryAcquire('a')).resolves.toBeNull();
      await other.release();
      await (await service.acquire('a')).release();
      expect(locks.history.map(({ keys }) => keys)).toEqual([['a']]);
    });

    test('`hold` with a ttl holds a lock only until the ttl has passed', async () => {
      jest.useFakeTimers();
      await locks.hold('a', { ttl: 4_000 });
      await expect(service.acquire('a')).rejects.toMatchObject({ retryAfter: expect.closeTo(4_000, -2) });
      await jest.advanceTimersByTimeAsync(4_000);
      await (await service.acquire('a')).release();
    });

    test('`hold` rejects with `LockHeldError` for a held key', async () => {
      await service.acquire('a');
      await expect(locks.hold('a')).rejects.toBeInstanceOf(LockHeldError);
    });
  });

  describe('fail', () => {
    test('`fail` simulates that Redis is down', async () => {
      const back = locks.fail({ error: new Error('ECONNREFUSED') });
      const refusal = await service.acquire('a').catch((error: unknown) => error);
      expect(refusal).toBeInstanceOf(LockUnavailableError);
      expect((refusal as Error).message).toContain('ECONNREFUSED');
      back();
      await (await service.acquire('a')).release();
    });

    test('`fail` with a key affects only locks on that key', async () => {
      locks.fail({ key: 'a' });
      await expect(service.acquire(['a', 'b'])).rejects.toBeInstanceOf(LockUnavailableError);
      await (await service.acquire('b')).release();
    });

    test('a lock becomes unconfirmed when its renewals fail, and is lost at the end of its validity', async () => {
      jest.useFakeTimers();
      const lock = await service.acquire('a', { ttl: 9_000 });
      locks.fail({ on: 'extend' });
      await jest.advanceTimersByTimeAsync(3_100);
      expect(lock.state).toBe('unconfirmed');
      expect(lock.signal.aborted).toBe(false);
      await jest.advanceTimersByTimeAsync(6_000);
      expect(lock.signal.reason).toBeInstanceOf(LockLostError);
    });

    test('when the release fails, a key stays locked until the ttl has passed', async () => {
      jest.useFakeTimers();
      const lock = await service.acquire('a', { ttl: 5_000 });
      locks.fail({ on: 'release' });
      await lock.release();
      await expect(service.acquire('a')).rejects.toBeInstanceOf(LockHeldError);
      await jest.advanceTimersByTimeAsync(5_000);
      await (await service.acquire('a')).release();
    });
  });

  describe('delay', () => {
    test('`delay` delays the reply to `acquire`', async () => {
      jest.useFakeTimers();
      locks.delay(200, { on: 'acquire' });
      const before = Date.now();
      const acquired = service.acquire('a', { ttl: 10_000 });
      await jest.advanceTimersByTimeAsync(200);
      await (await acquired).release();
      expect(Date.now() - before).toBe(200);
    });

    test('`acquire` rejects if the delay exceeds the time limit of a node, and no key stays locked', async () => {
      jest.useFakeTimers();
      const end = locks.delay(2_000);
      const refusal = service.acquire('a', { ttl: 10_000 }).catch((error: unknown) => error);
      await jest.advanceTimersByTimeAsync(3_000);
      await expect(refusal).resolves.toBeInstanceOf(LockUnavailableError);
      end();
      await (await service.acquire('a')).release();
    });
  });

  test.each(['expire', 'lose'] as const)(
    '`%s` notifies the holder of a lock, and frees all keys of the lock',
    async (end) => {
      const lock = await service.acquire(['a', 'b']);
      const { signal } = lock;
      locks[end]('b');
      expect(signal.reason).toBeInstanceOf(LockLostError);
      expect(() => lock.assertHeld()).toThrow(LockLostError);
      const next = await service.acquire('a');
      expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
      await lock.release();
      expect(next.isHeld()).toBe(true);
      await next.release();
    },
  );

  test('`expire` ends a lock that `hold` has taken', async () => {
    await locks.hold('a');
    locks.expire('a');
    await expect(service.acquire('a')).resolves.toMatchObject({ state: 'held' });
  });

  test('`expire` frees a key that `minHold` keeps locked after the release', async () => {
    await (await service.acquire('a', { minHold: 60_000 })).release();
    await expect(service.acquire('a')).rejects.toBeInstanceOf(LockHeldError);
    locks.expire('a');
    await (await service.acquire('a')).release();
  });

  test('`withLock` rejects with `LockLostError` when its lock is lost', async () => {
    await expect(service.withLock('a', async () => locks.lose('a'))).rejects.toBeInstanceOf(LockLostError);
  });

  test('`expire` and `lose` end only the holder with the given id', async () => {
    const other = await locks.hold('a');
    for (const end of ['expire', 'lose'] as const) {
      expect(() => locks[end]('a', { id: 'another' })).toThrow(
        `Nobody holds "a" under the id 'another', so there is no lock to end. Held keys: "a" (${other.id})`,
      );
    }
    locks.expire('a', { id: other.id });
    const lock = await service.acquire('a');
    locks.lose('a', { id: lock.id });
    expect(lock.isHeld()).toBe(false);
  });

  test('`hold` takes permits, `expire` ends one permit by its id, and `lose` ends all permits', async () => {
    const others = [1, 2, 3].map(() => locks.hold('stripe', { permits: 5 }));
    const [first] = await Promise.all(others);
    for (let count = 0; count < 2; count++) await locks.hold('stripe', { permits: 5 });
    await expect(locks.hold('stripe', { permits: 5 })).rejects.toBeInstanceOf(LockHeldError);
    locks.expire('stripe', { id: first!.id });
    await locks.hold('stripe', { permits: 5 });
    await expect(service.acquire('stripe')).rejects.toBeInstanceOf(LockHeldError);
    locks.lose('stripe');
    await (await service.acquire('stripe')).release();
  });

  test('`hold` can take a shared lock, which excludes writers', async () => {
    const reading = await locks.hold('catalog', { mode: 'shared' });
    await locks.hold('catalog', { mode: 'shared' });
    await expect(service.acquire('catalog')).rejects.toBeInstanceOf(LockHeldError);
    await reading.release();
    await expect(service.acquire('catalog')).rejects.toBeInstanceOf(LockHeldError);
    locks.expire('catalog');
    await (await service.acquire('catalog')).release();
  });

  test('`expire` and `lose` throw for a free key', async () => {
    expect(() => locks.expire('a')).toThrow('Nobody holds "a", so there is no lock to end. Held keys: none');
    await service.acquire('b');
    expect(() => locks.lose('a')).toThrow('Held keys: "b"');
  });

  test('`reset` ends all locks and faults, and clears the history', async () => {
    const lock = await service.acquire('a');
    await locks.hold('b');
    locks.fail();
    locks.reset();
    expect(lock.isHeld()).toBe(false);
    expect(locks.history).toEqual([]);
    await (await service.acquire(['a', 'b'])).release();
  });

  test('`TestLocks` and `RedlockTestingModule` throw errors that name invalid options', async () => {
    const bad = (options: object): any => options;
    expect(() => new TestLocks(bad({ wait: 'no' }))).toThrow('`wait`');
    expect(() => new TestLocks(bad({ waits: true }))).toThrow('Unknown option `waits`');
    expect(() => locks.fail(bad({ on: 'renew' }))).toThrow(
      'Expected `on` to be acquire or extend or release',
    );
    expect(() => locks.delay(-1)).toThrow('`ms`');
    await expect(locks.hold('a', { ttl: 1 })).rejects.toThrow('`ttl`');
    await expect(locks.hold('')).rejects.toThrow('`key`');
    await expect(locks.hold('a', bad({ mode: 'permits' }))).rejects.toThrow(TypeError);
    await expect(locks.hold('a', { permits: 0 })).rejects.toThrow(RangeError);
    await expect(locks.hold('a', { permits: 1_001 })).rejects.toThrow('`permits`');
    await expect(locks.hold('a', { permits: 2, mode: 'shared' })).rejects.toThrow(TypeError);
    expect(() => locks.expire('a', bad({ ids: [] }))).toThrow('Unknown option `ids` in `expire`');
    expect(() => RedlockTestingModule.forRoot(bad({ locks: {} }))).toThrow(
      'Expected `locks` to be a `TestLocks`',
    );
    expect(() => RedlockTestingModule.forRoot({ defaults: { ttl: 1 } })).toThrow('`defaults.ttl`');
  });
});

describe('an application after TestLocks.override', () => {
  @Injectable()
  class Reports {
    constructor(
      readonly locks: LockService,
      @InjectLockService('billing') readonly billing: LockService,
    ) {}

    @WithLock('report', { ttl: 4_000, onBusy: 'skip' })
    async build(): Promise<number | undefined> {
      return currentLock()?.fencingToken;
    }

    @WithLock('report', { instance: 'billing' })
    async bill(): Promise<string> {
      return 'billed';
    }
  }

  // No server listens at these addresses.
  @Module({
    imports: [
      RedlockModule.forRoot({
        nodes: ['redis://127.0.0.1:1', 'redis://127.0.0.1:2', 'redis://127.0.0.1:3'],
        defaults: { onLost: 'ignore' },
      }),
      RedlockModule.forRoot({ name: 'billing', nodes: 'redis://127.0.0.1:1' }),
    ],
    providers: [Reports],
  })
  class AppModule {}

  test('after `TestLocks.override`, an application keeps the locks of each named instance separately in memory, and logs nothing', async () => {
    const log = new LogLines();
    const locks = new TestLocks();
    const builder = locks.override(Test.createTestingModule({ imports: [AppModule] }));
    const module = await builder.setLogger(log).compile();
    opened.push(await module.init());
    const reports = module.get(Reports);

    const token = await reports.build();
    expectLocked(locks, 'report', {
      method: 'Reports.build',
      label: 'report',
      fencingToken: token!,
      onLost: 'ignore',
    });
    const other = await locks.hold('report');
    await expect(reports.build()).resolves.toBeUndefined();
    await expect(reports.bill()).resolves.toBe('billed');
    await other.release();
    await locks.hold('report', { instance: 'billing' });
    await expect(reports.build()).resolves.toEqual(expect.any(Number));
    await expect(reports.billing.tryAcquire('report')).resolves.toBeNull();
    expect(log.lines).toEqual([]);
  });
});

describe('RedlockTestingModule', () => {
  test('`RedlockTestingModule` provides `TestLocks`, and takes the options of `RedlockModule`', async () => {
    const module = await Test.createTestingModule({
      imports: [RedlockTestingModule.forRoot({ owner: 'me', defaults: { ttl: 3_000 } })],
    }).compile();
    opened.push(module);
    const locks = module.get(TestLocks);
    await module.get(LockService).withLock('a', () => undefined);
    expect(expectLocked(locks, 'a', { ttl: 3_000 }).state).toBe('released');
  });

  test('`RedlockTestingModule` supports named instances', async () => {
    const locks = new TestLocks();
    @Injectable()
    class Both {
      constructor(
        readonly plain: LockService,
        @InjectLockService('billing') readonly billing: LockService,
      ) {}
    }
    const module = await Test.createTestingModule({
      imports: [
        RedlockTestingModule.forRoot({ locks }),
        RedlockTestingModule.forRoot({ locks, name: 'billing' }),
      ],
      providers: [Both],
    }).compile();
    opened.push(await module.init());
    const both = module.get(Both);
    await using one = await both.plain.acquire('a');
    await using two = await both.billing.acquire('a');
    expect([one.state, two.state]).toEqual(['held', 'held']);
    await expect(both.billing.tryAcquire('a')).resolves.toBeNull();
  });
});

describe('expectLocked', () => {
  @Injectable()
  class Orders {
    @WithLock((id: number) => [`order:${id}`, 'orders'], {
      ttl: 8_000,
      retry: { timeout: 3_000 },
      renew: false,
    })
    async settle(_id: number): Promise<void> {
      await this.archive();
    }

    @WithLock('orders', { reentrant: true, retry: false, label: 'archive' })
    async archive(): Promise<void> {}
  }

  let locks: TestLocks;
  let module: TestingModule;

  beforeEach(async () => {
    locks = new TestLocks();
    module = await Test.createTestingModule({
      imports: [RedlockTestingModule.forRoot({ locks })],
      providers: [Orders],
    }).compile();
    opened.push(module);
  });

  test('`expectLocked` finds a lock by its keys in any order and by its options', async () => {
    await module.get(Orders).settle(7);
    const settled = expectLocked(locks, ['orders', 'order:7'], {
      method: 'Orders.settle',
      label: 'Orders.settle',
      ttl: 8_000,
      retry: { timeout: 3_000 },
      renew: false,
      reentrant: false,
      state: 'released',
    });
    // The inner call joined the lock of the outer call, and has its token.
    const { fencingToken } = settled;
    expectLocked(locks, 'orders', { method: 'Orders.archive', label: 'archive', retry: false });
    expect(locks.history.map((record) => record.fencingToken)).toEqual([fencingToken, fencingToken]);
    await expect(Promise.resolve().then(() => expectLocked(locks, 'orders', {}).state)).resolves.toBe(
      'released',
    );
  });

  test.each([
    ['other keys', 'order:7', {}],
    ['another method', ['order:7', 'orders'], { method: 'Orders.archive' }],
    ['another ttl', ['order:7', 'orders'], { ttl: 9_000 }],
    ['another retry', ['order:7', 'orders'], { retry: false }],
    ['another timeout', ['order:7', 'orders'], { retry: { timeout: 2_000 } }],
    ['another token', ['order:7', 'orders'], { fencingToken: 1 }],
    ['another state', ['order:7', 'orders'], { state: 'lost' }],
  ] as const)(
    '`expectLocked` throws if the expected lock has %s, and the error lists the acquired locks',
    async (_what, key, expected) => {
      await module.get(Orders).settle(7);
      expect(() => expectLocked(locks, key, expected)).toThrow(
        /^Expected this lock:\n.*\nThese were acquired: \n.*order:7.*Orders\.settle.*ttl: 8000/s,
      );
    },
  );

  test('`expectLocked` ignores undefined options', async () => {
    await module.get(Orders).settle(7);
    const nothing = { ttl: undefined, state: undefined, onBusy: undefined };
    const expected = { ...nothing, retry: { timeout: 3_000, attempts: undefined } } as object;
    expect(expectLocked(locks, ['orders', 'order:7'], expected).method).toBe('Orders.settle');
  });

  test('`expectLocked` finds a lock of `LockService.withLock` during the task and afterwards', async () => {
    const service = module.get(LockService);
    await service.withLock('a', { label: 'import' }, (lock) => {
      const record = expectLocked(locks, 'a', {
        state: 'held',
        label: 'import',
        fencingToken: lock.fencingToken,
      });
      expect(record.method).toBeUndefined();
    });
    expectLocked(locks, 'a', { state: 'released' });
  });

  test('`expectLocked` throws an error that says that no lock was acquired, or names an unknown option', () => {
    expect(() => expectLocked(locks, 'a')).toThrow('These were acquired: none');
    expect(() => expectLocked(locks, 'a', { timeToLive: 1 } as object)).toThrow(
      'Unknown option `timeToLive`',
    );
  });
});
