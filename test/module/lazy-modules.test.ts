import 'reflect-metadata';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { type INestApplication, Injectable, Module, Scope } from '@nestjs/common';
import { LazyModuleLoader, type ModuleRef } from '@nestjs/core';
import { once } from 'node:events';
import {
  defineLocks,
  Leader,
  type LeaderTerm,
  LockService,
  OnlyLeader,
  RedlockModule,
  WithLock,
} from '../../lib/index.js';
import { startPlainApp } from '../support/nest-app.js';
import { until } from '../support/until.js';

let app: INestApplication;

async function start(options: Partial<Parameters<typeof RedlockModule.forRoot>[0]> = {}): Promise<void> {
  app = await startPlainApp({ imports: [RedlockModule.forRoot({ nodes: 'memory', ...options })] });
}

/** Loads a module with these providers. */
function load(...providers: NonNullable<Parameters<typeof Module>[0]['providers']>): Promise<ModuleRef> {
  @Module({ providers })
  class LazyModule {}
  return app.get(LazyModuleLoader).load(() => LazyModule);
}

class Chief {
  terms = 0;

  @Leader('chief')
  async lead({ signal }: LeaderTerm): Promise<void> {
    this.terms++;
    await once(signal, 'abort');
  }

  @OnlyLeader('chief')
  async task(): Promise<string | undefined> {
    return 'done';
  }
}

beforeEach(() => start());
afterEach(() => app.close());

test.each([
  ['a class', Chief],
  ['a factory', { provide: Chief, useFactory: async () => new Chief() }],
  ['a value', { provide: Chief, useValue: new Chief() }],
])('a leader of a module that is loaded later leads (provided by %s)', async (_name, provider) => {
  const chief = (await load(provider)).get(Chief);
  await until(() => app.get(LockService).leader('chief').isLeader());
  expect(chief.terms).toBe(1);
  await expect(chief.task()).resolves.toBe('done');
  // A further module does not start the campaign of a leader that has resigned.
  await app.get(LockService).leader('chief').resign();
  await load({ provide: 'another', useValue: {} });
  await new Promise(setImmediate);
  expect(app.get(LockService).leader('chief').isLeader()).toBe(false);
});

test('modules that are loaded at the same time get their leaders', async () => {
  class Second {
    terms = 0;
    @Leader('second')
    async lead({ signal }: LeaderTerm): Promise<void> {
      this.terms++;
      await once(signal, 'abort');
    }
  }
  let open!: () => void;
  const gate = new Promise<void>((resolve) => (open = resolve));
  const slow = load(Second, { provide: 'slow', useFactory: () => gate });
  await load(Chief);
  open();
  const second = (await slow).get(Second);
  await until(() => second.terms === 1);
  expect(app.get(LockService).leader('second').isLeader()).toBe(true);
});

test('an object of a factory in a module that is loaded later can lock', async () => {
  class Orders {
    @WithLock('orders')
    async settle(): Promise<string> {
      return 'settled';
    }
  }
  const loaded = await load({ provide: Orders, useFactory: () => new Orders() });
  await expect(loaded.get(Orders).settle()).resolves.toBe('settled');
});

test('loading fails with the mistakes that would make the start fail', async () => {
  class Needs {
    @OnlyLeader('nobody')
    async task(): Promise<void> {}
  }
  await expect(load(Needs)).rejects.toMatchObject({ code: 'NO_LEADER' });

  class Other {
    @Leader('chief')
    async lead(): Promise<void> {}
  }
  await load(Chief);
  await expect(load(Other)).rejects.toThrow('another method of this application has @Leader with that name');

  @Injectable({ scope: Scope.REQUEST })
  class Scoped {
    @Leader('scoped')
    async lead(): Promise<void> {}
  }
  await expect(load(Scoped)).rejects.toThrow('the class is request-scoped or transient');

  class Ticking {
    @WithLock('tick', { oncePerTick: true })
    async tick(): Promise<void> {}
  }
  await expect(load(Ticking)).rejects.toThrow('to be for a method with @Cron or @Interval');

  class Keeping {
    @WithLock('kept', { release: 'afterCommit' })
    async keep(): Promise<void> {}
  }
  await expect(load(Keeping)).rejects.toThrow('afterTransaction');
});

test('loading fails for a second RedlockModule', async () => {
  @Module({ imports: [RedlockModule.forRoot({ nodes: 'memory' })] })
  class Twin {}
  await expect(app.get(LazyModuleLoader).load(() => Twin)).rejects.toThrow(
    'RedlockModule is configured twice',
  );
});

test('loading checks the declared locks', async () => {
  await app.close();
  const locks = defineLocks({ report: { key: 'report', ttl: 1_000 } });
  await start({ locks, strict: true });
  class Undeclared {
    @WithLock('other')
    async other(): Promise<void> {}
  }
  class Long {
    @WithLock.of(locks.report)
    async report(): Promise<string> {
      return 'reported';
    }
  }
  await expect(load(Undeclared)).rejects.toMatchObject({ code: 'LOCK_NOT_DECLARED' });
  await expect((await load(Long)).get(Long).report()).resolves.toBe('reported');
});

test('an object of two open applications can lock after one of them has closed', async () => {
  class Shared {
    @WithLock('shared')
    async run(): Promise<string> {
      return 'ran';
    }
  }
  const shared = new Shared();
  const providers = [{ provide: Shared, useValue: shared }];
  const imports = (): [ReturnType<typeof RedlockModule.forRoot>] => [
    RedlockModule.forRoot({ nodes: 'memory' }),
  ];
  const apps: INestApplication[] = [];
  for (let each = 0; each < 3; each++) apps.push(await startPlainApp({ imports: imports(), providers }));
  for (const each of [0, 2, 1]) {
    await expect(shared.run()).resolves.toBe('ran');
    await apps[each]?.close();
  }
  await expect(shared.run()).rejects.toThrow('the application is shutting down');
  const next = await startPlainApp({ imports: imports(), providers });
  await expect(shared.run()).resolves.toBe('ran');
  await next.close();
});
