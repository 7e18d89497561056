import 'reflect-metadata';
import { describe, expect, test } from '@jest/globals';
import { type INestApplication, Injectable, type Type } from '@nestjs/common';
import { ModuleRef } from '@nestjs/core';
import { Cron } from '@nestjs/schedule';
import {
  defineLocks,
  InjectLockService,
  Leader,
  LockService,
  RedlockModule,
  type RedlockModuleOptions,
  WithLock,
} from '../../lib/index.js';
import { LogLines } from '../support/log-lines.js';
import { startApp, startPlainApp } from '../support/nest-app.js';

const locks = defineLocks({
  'order:settle': {
    key: (id: number) => `order:${id}`,
    ttl: 30_000,
    team: 'payments',
    about: 'one at a time',
  },
  'tenant:report': { key: (tenant: string) => `report:${tenant}`, permits: 5 },
  'clean-up': { key: 'clean-up' },
});

async function start(
  options: Partial<RedlockModuleOptions>,
  ...providers: readonly Type[]
): Promise<{ app: INestApplication; service: LockService; lines: LogLines }> {
  const lines = new LogLines();
  const app = await startApp(
    { providers: [...providers] },
    { nodes: 'memory', ...options },
    { logger: lines },
  );
  return { app, lines, service: app.get(LockService) };
}

describe('`strict`', () => {
  @Injectable()
  class Plain {
    @WithLock('report')
    async report(): Promise<void> {}

    @WithLock((id: number) => `order:${id}`)
    async settle(_id: number): Promise<void> {}

    @WithLock('clean-up')
    async cleanUp(): Promise<void> {}
  }

  const foreign = defineLocks({ foreign: { key: 'foreign' } });

  @Injectable()
  class Foreign {
    @WithLock.of(foreign.foreign)
    async run(): Promise<void> {}
  }

  test('`strict` refuses all decorators without a declared lock at start-up, in one error', async () => {
    await expect(start({ locks, strict: true }, Plain, Foreign)).rejects.toMatchObject({
      code: 'LOCK_NOT_DECLARED',
      message:
        '`strict` allows only declared locks, and these are not declared: @WithLock of Plain.report ("report"); @WithLock of ' +
        'Plain.settle (a key function); @WithLock of Plain.cleanUp ("clean-up", which is the key of locks["clean-up"]); @WithLock ' +
        'of Foreign.run ("foreign" of another `defineLocks`). Declare each lock with `defineLocks`, in the `locks` of the ' +
        'module, and lock with `@WithLock.of(locks[name])` or `acquire(locks[name], ...)`',
    });
  });

  test.each<[string, (service: LockService) => Promise<unknown>]>([
    ['`acquire` with a plain key', (service) => service.acquire('report')],
    ['`tryAcquire` with a plain key', (service) => service.tryAcquire('report')],
    ['`withLock` with a plain key', (service) => service.withLock('report', () => 1)],
    [
      '`acquire` with a declared lock that the module does not have',
      (service) => service.acquire(foreign.foreign),
    ],
  ])('`strict` refuses a call of %s', async (_what, call) => {
    const { service } = await start({ locks, strict: true });
    await expect(call(service)).rejects.toMatchObject({ code: 'LOCK_NOT_DECLARED' });
  });

  test('with `strict`, a method with an undeclared lock rejects and does not call `onBusy`', async () => {
    @Injectable()
    class Late {
      @WithLock('late', { onBusy: 'skip' })
      async skip(): Promise<void> {}

      @WithLock('late', { onBusy: () => 'instead' })
      async instead(): Promise<string> {
        return 'run';
      }
    }
    const { app } = await start({ locks, strict: true });
    const late = await app.get(ModuleRef).create(Late);
    await expect(late.skip()).rejects.toMatchObject({ code: 'LOCK_NOT_DECLARED' });
    await expect(late.instead()).rejects.toMatchObject({ code: 'LOCK_NOT_DECLARED' });
  });

  test('`strict` does not affect leaders, `inspect` or `forceRelease`', async () => {
    @Injectable()
    class Consumer {
      @Leader('consumer')
      async lead(): Promise<void> {}
    }
    const { service } = await start({ locks, strict: true }, Consumer);
    expect(service.leaders().map(({ name }) => name)).toEqual(['consumer']);
    await expect(service.inspect('any')).resolves.toMatchObject({ held: false });
    await expect(service.forceRelease('any')).resolves.toBe(false);
  });

  test('forRoot throws if `strict` is set without `locks`', () => {
    expect(() => RedlockModule.forRoot({ nodes: 'memory', strict: true })).toThrow(
      '`strict` refuses locks that `locks` does not declare: set `locks` to the result of `defineLocks`',
    );
  });

  test('`strict` of one module instance does not refuse undeclared locks of another instance', async () => {
    @Injectable()
    class Both {
      constructor(
        readonly main: LockService,
        @InjectLockService('billing') readonly billing: LockService,
      ) {}

      @WithLock('plain', { instance: 'billing' })
      async plain(): Promise<string> {
        return 'run';
      }
    }
    const app = await startPlainApp({
      imports: [
        RedlockModule.forRoot({ nodes: 'memory', locks, strict: true }),
        RedlockModule.forRoot({ nodes: 'memory', name: 'billing' }),
      ],
      providers: [Both],
    });
    const both = app.get(Both);
    await expect(both.plain()).resolves.toBe('run');
    await expect(both.main.acquire('plain')).rejects.toMatchObject({ code: 'LOCK_NOT_DECLARED' });
  });
});

describe('a lock of a named module', () => {
  const ofBilling = defineLocks({
    invoice: { key: (id: number) => `invoice:${id}`, instance: 'billing' },
    other: { key: 'other' },
  });

  @Injectable()
  class Invoices {
    constructor(
      readonly main: LockService,
      @InjectLockService('billing') readonly billing: LockService,
    ) {}

    @WithLock.of(ofBilling.invoice)
    async make(_id: number): Promise<boolean> {
      return (await this.billing.inspect('invoice:1')).held;
    }
  }

  test('a declared lock can be acquired only through the module that its `instance` names', async () => {
    const options = { nodes: 'memory', locks: ofBilling, strict: true } as const;
    const app = await startPlainApp({
      imports: [RedlockModule.forRoot(options), RedlockModule.forRoot({ ...options, name: 'billing' })],
      providers: [Invoices],
    });
    const invoices = app.get(Invoices);
    await expect(invoices.make(1)).resolves.toBe(true);
    await using lock = await invoices.billing.acquire(ofBilling.invoice, 1);
    expect(lock.keys).toEqual(['invoice:1']);
    await expect(invoices.main.acquire(ofBilling.invoice, 1)).rejects.toThrow(
      new TypeError(
        '"invoice" is declared for the module \'billing\', but the call went to the module without a name, where the lock would exclude ' +
          "no other caller. Inject `@InjectLockService('billing')`, or change the `instance` of the declaration",
      ),
    );
    await expect(invoices.billing.acquire(ofBilling.other)).rejects.toThrow('Inject the `LockService`');
    expect(invoices.main.declared().map(({ name }) => name)).toEqual(['other']);
    expect(invoices.billing.declared().map(({ name }) => name)).toEqual(['invoice']);
  });
});

describe('overrides', () => {
  @Injectable()
  class Orders {
    @WithLock.of(locks['order:settle'], { retry: false })
    async settle<T>(_id: number, task: () => Promise<T> | T): Promise<T> {
      return task();
    }

    @WithLock.of(locks['order:settle'], { retry: false, onBusy: () => 'instead' })
    async settleInstead(_id: number): Promise<string> {
      return 'settled';
    }
  }

  test('`overrides` apply to decorated methods and to LockService', async () => {
    const overrides = {
      'order:settle': { ttl: 60_000, onBusy: 'skip' },
      'tenant:report': { permits: 1 },
    } as const;
    const { app, service } = await start({ locks, overrides }, Orders);
    const orders = app.get(Orders);
    await orders.settle(1, async () => {
      expect((await service.inspect('order:1')).remaining).toBeGreaterThan(30_000);
      await expect(orders.settle(1, () => 2)).resolves.toBeUndefined();
      // The override replaces the `onBusy` of the decorator.
      await expect(orders.settleInstead(1)).resolves.toBeUndefined();
    });
    await using lock = await service.acquire(locks['order:settle'], 2);
    expect(lock.remaining()).toBeGreaterThan(30_000);
    await using report = await service.acquire(locks['tenant:report'], 'acme');
    expect(report.slot).toBe(0);
    await expect(service.tryAcquire(locks['tenant:report'], 'acme')).resolves.toBeNull();
  });

  test('the result of `declared()` contains the values of `overrides`', async () => {
    const overrides = { 'order:settle': { ttl: 60_000, onBusy: undefined } };
    const { service } = await start({ locks, overrides, defaults: { ttl: 20_000 } });
    const common = {
      renew: true,
      minHold: 0,
      reentrant: false,
      onLost: 'throw',
      release: 'afterMethod',
      onBusy: 'throw',
      oncePerTick: false,
    };
    expect(service.declared()).toEqual([
      {
        ...common,
        name: 'order:settle',
        team: 'payments',
        about: 'one at a time',
        patterns: ['order:*'],
        mode: 'exclusive',
        ttl: 60_000,
        overridden: ['ttl'],
      },
      {
        ...common,
        name: 'tenant:report',
        patterns: ['report:*'],
        mode: 'permits',
        permits: 5,
        ttl: 20_000,
        overridden: [],
      },
      {
        ...common,
        name: 'clean-up',
        keys: ['clean-up'],
        patterns: ['clean-up'],
        mode: 'exclusive',
        ttl: 20_000,
        overridden: [],
      },
    ]);
  });

  test('start-up refuses an override with a ttl that is longer than `restartGuard`', async () => {
    const nodes = ['redis://127.0.0.1:1', 'redis://127.0.0.1:2', 'redis://127.0.0.1:3'];
    const options = { nodes, restartGuard: 40_000, locks };
    const message =
      'The declared lock "order:settle": Expected `ttl` to be at most the `restartGuard` of 40000 ms (set `restartGuard` to ' +
      'the largest ttl of all processes), got 60000';
    await expect(start({ ...options, overrides: { 'order:settle': { ttl: 60_000 } } })).rejects.toThrow(
      new RangeError(message),
    );
  });

  test.each<[string, unknown, string]>([
    [
      'a misspelt name of a lock',
      { 'order:setle': {} },
      '`overrides` has "order:setle", which `locks` does not declare. Did you mean "order:settle"?',
    ],
    [
      'an unknown name of a lock',
      { x: {} },
      '`overrides` has "x", which `locks` does not declare. Did you mean "order:settle", "tenant:report", "clean-up"?',
    ],
    [
      'an option that cannot be overridden',
      { 'clean-up': { minHold: 5 } },
      '"clean-up" in `overrides`: Unknown option `minHold` in `overrides`. Only `ttl`, `permits`, ' +
        '`onBusy` can be overridden. Change `minHold` where the lock is declared',
    ],
    [
      'an invalid value',
      { 'clean-up': { ttl: 5 } },
      '"clean-up" in `overrides`: Expected `ttl` to be a whole number of milliseconds, at least 10, got 5',
    ],
    [
      'permits for a lock that is exclusive',
      { 'clean-up': { permits: 2 } },
      '"clean-up" in `overrides`: Expected no `permits`, got 2, because the lock is declared without ' +
        '`permits`. An override must not admit several holders to such a lock: declare the lock with `permits`',
    ],
    [
      'a string in place of the object',
      'ttl',
      "Expected `overrides` to be an object with options under the names of declared locks, got 'ttl'",
    ],
    [
      'an array in place of the object',
      [],
      'Expected `overrides` to be an object with options under the names of declared locks, got []',
    ],
    [
      'an array for a lock',
      { 'clean-up': [] },
      '"clean-up" in `overrides`: Expected the options of `overrides` to be an object, got []',
    ],
    [
      'a string for a lock',
      { 'clean-up': 'skip' },
      '"clean-up" in `overrides`: Expected the options of `overrides` to be an object, got a string',
    ],
  ])('forRoot refuses `overrides` with %s', (_what, overrides, message) => {
    const options = { nodes: 'memory', locks, overrides } as RedlockModuleOptions;
    expect(() => RedlockModule.forRoot(options)).toThrow(message);
  });

  test('start-up refuses invalid `overrides` from the factory of the options', async () => {
    const useFactory = (): RedlockModuleOptions => ({ nodes: 'memory', locks, overrides: { nothing: {} } });
    await expect(startPlainApp({ imports: [RedlockModule.forRootAsync({ useFactory })] })).rejects.toThrow(
      '`overrides` has "nothing"',
    );
  });
});

describe('two policies for one key', () => {
  test('start-up refuses two declared locks with the same key', async () => {
    const twice = defineLocks({
      a: { key: 'report' },
      b: { key: ['report'], ttl: 5_000 },
      c: { key: 'other' },
    });
    await expect(start({ locks: twice })).rejects.toThrow(
      'Two policies for one key: "report": the declared lock "a" and the declared lock "b". Declare the lock once, and use ' +
        'it in both places with `@WithLock.of`. Only readers (`mode: "shared"`) and writers of one key may have different policies',
    );
  });

  test('start-up refuses a decorator with the key of a declared lock', async () => {
    @Injectable()
    class Cleaner {
      @WithLock('clean-up')
      async run(): Promise<void> {}
    }
    await expect(start({ locks }, Cleaner)).rejects.toThrow(
      'Two policies for one key: "clean-up": the declared lock "clean-up" and @WithLock of Cleaner.run. Declare',
    );
  });

  describe('when a decorator of a base class has the key of a declared lock', () => {
    @Injectable()
    class Base {
      @WithLock('clean-up')
      async run(): Promise<void> {}
    }
    @Injectable()
    class Declared extends Base {
      @WithLock.of(locks['clean-up'])
      override async run(): Promise<void> {}
    }
    @Injectable()
    class Unlocked extends Base {
      override async run(): Promise<void> {}
    }
    @Injectable()
    class Inherited extends Base {}
    @Injectable()
    class Twice extends Declared {}

    test.each<[Type]>([[Declared], [Unlocked], [Twice]])(
      'start-up accepts a subclass that overrides the decorated method: %p',
      async (of) => {
        await expect(start({ locks }, of)).resolves.toBeDefined();
        await expect(start({ locks, strict: true }, of)).resolves.toBeDefined();
      },
    );

    test('start-up refuses a subclass that inherits the decorated method', async () => {
      await expect(start({ locks }, Inherited)).rejects.toThrow('@WithLock of Base.run');
      await expect(start({ locks, strict: true }, Inherited)).rejects.toThrow('@WithLock of Base.run');
    });

    test('`strict` refuses the call when an overriding method calls the decorated base method', async () => {
      @Injectable()
      class Calls extends Base {
        override async run(): Promise<void> {
          await super.run();
        }
      }
      const { app } = await start({ locks, strict: true }, Calls);
      await expect(app.get(Calls).run()).rejects.toMatchObject({ code: 'LOCK_NOT_DECLARED' });
    });
  });

  test('start-up accepts a declared reader and writer with the same key, but refuses a second writer', async () => {
    const both = defineLocks({ read: { key: 'catalog', mode: 'shared' }, write: { key: 'catalog' } });
    await expect(start({ locks: both })).resolves.toBeDefined();
    const third = defineLocks({ also: { key: 'catalog', ttl: 1_000 } });
    await expect(start({ locks: { ...both, ...third } })).rejects.toThrow(
      '"catalog": the declared lock "write" and the declared lock "also"',
    );
  });

  test('start-up accepts two decorators with the same key if no declared lock has that key', async () => {
    @Injectable()
    class Plain {
      @WithLock('same')
      async one(): Promise<void> {}

      @WithLock('same', { ttl: 1_000 })
      async two(): Promise<void> {}
    }
    await expect(start({ locks }, Plain)).resolves.toBeDefined();
  });

  test('a call logs a warning once for each pair of declared locks that resolve to the same key', async () => {
    const same = defineLocks({
      settle: { key: (id: number) => `order:${id}` },
      refund: { key: (id: number) => `order:${id}`, ttl: 5_000 },
      read: { key: (id: number) => `order:${id}`, mode: 'shared' },
      fixed: { key: 'order:7' },
      apart: { key: (id: number) => `apart:${id}` },
    });
    const { service, lines } = await start({ locks: same });
    const lock = async (which: 'settle' | 'refund' | 'read' | 'apart', id: number): Promise<void> => {
      await (await service.acquire(same[which], id)).release();
    };
    await lock('settle', 1);
    await lock('apart', 1);
    await lock('read', 1);
    await lock('settle', 2);
    expect(lines.of('warn').filter((line) => line.includes('policies'))).toEqual([]);
    await lock('refund', 2);
    await lock('settle', 2);
    await lock('refund', 2);
    await lock('settle', 7);
    expect(lines.of('warn').filter((line) => line.includes('policies'))).toEqual([
      'Two policies for one key: "order:2" is locked as the declared lock "refund" and as the declared lock "settle". If both ' +
        'are the same lock, declare it once and use it in both places; if not, give one of them another key.',
      expect.stringContaining(
        '"order:7" is locked as the declared lock "fixed" and as the declared lock "settle"',
      ),
    ]);
  });
});

test('start-up refuses a declared shared lock to which a default `minHold` applies', async () => {
  const read = defineLocks({ read: { key: 'catalog', mode: 'shared' } });
  await expect(start({ locks: read, defaults: { minHold: 1_000 } })).rejects.toThrow(
    /^The declared lock "read": .*`minHold`/,
  );
  const own = defineLocks({ read: { key: 'catalog', mode: 'shared', minHold: 0 } });
  await expect(start({ locks: own, defaults: { minHold: 1_000 } })).resolves.toBeDefined();
});

test('the error about a lock upgrade names the declared lock', async () => {
  const both = defineLocks({ read: { key: 'catalog', mode: 'shared' }, write: { key: 'catalog' } });
  const { service } = await start({ locks: both });
  await service.withLock(both.read, async () => {
    await expect(service.acquire(both.write)).rejects.toMatchObject({
      code: 'LOCK_UPGRADE',
      message: expect.stringMatching(/^"catalog" \(write\) is not locked: /),
    });
  });
});

describe("`release: 'afterCommit'` without a transaction hook", () => {
  const kept = defineLocks({ kept: { key: 'kept', release: 'afterCommit' } });

  test("a call with `release: 'afterCommit'` rejects if there is no transaction hook", async () => {
    const { service } = await start({ locks: kept });
    expect(service.declared()).toMatchObject([{ name: 'kept', release: 'afterCommit' }]);
    await expect(service.withLock(kept.kept, () => undefined)).rejects.toThrow(
      'needs `RedlockModule.forRoot({ inTransaction',
    );
  });

  test("start-up fails if a method uses `release: 'afterCommit'` and there is no transaction hook", async () => {
    @Injectable()
    class Keeper {
      @WithLock.of(kept.kept)
      async run(): Promise<void> {}
    }
    await expect(start({ locks: kept }, Keeper)).rejects.toThrow(
      /^The declared lock "kept": `release: 'afterCommit'` needs/,
    );
  });
});

test.each<[string, unknown, string]>([
  ['an array of locks', [locks['clean-up']], 'got the lock "clean-up" under "0"'],
  [
    'a definition without `defineLocks`',
    { a: { key: 'a' } },
    'Expected `locks["a"]` to be a lock that `defineLocks` returned',
  ],
  ['a single lock', locks['clean-up'], 'Expected `locks` to be the result of `defineLocks`'],
  [
    'a lock under another name',
    { tidy: locks['clean-up'] },
    'Expected `locks` to have each lock under its own name, got the lock "clean-up" under "tidy"',
  ],
])('forRoot refuses %s in `locks`', (_what, given, message) => {
  const options = { nodes: 'memory', locks: given } as RedlockModuleOptions;
  expect(() => RedlockModule.forRoot(options)).toThrow(message);
});

test('start-up refuses a declared `oncePerTick` lock on a method without @Cron', async () => {
  const ticking = defineLocks({ tick: { key: 'tick', oncePerTick: true } });
  @Injectable()
  class Unscheduled {
    @WithLock.of(ticking.tick)
    async run(): Promise<void> {}
  }
  @Injectable()
  class Scheduled {
    @Cron('0 0 1 1 *')
    @WithLock.of(ticking.tick)
    async run(): Promise<void> {}
  }
  await expect(start({ locks: ticking }, Unscheduled)).rejects.toThrow(
    'Expected `oncePerTick` in @WithLock on Unscheduled.run to be for a method with @Cron',
  );
  await expect(start({ locks: ticking }, Scheduled)).resolves.toBeDefined();
});
