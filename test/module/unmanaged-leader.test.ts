import 'reflect-metadata';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import {
  type CanActivate,
  Controller,
  type INestApplication,
  Module,
  type Type,
  UseGuards,
} from '@nestjs/common';
import { LazyModuleLoader, ModuleRef } from '@nestjs/core';
import { once } from 'node:events';
import { Leader, type LeaderTerm, OnlyLeader, RedlockModule } from '../../lib/index.js';
import { LogLines } from '../support/log-lines.js';
import { startPlainApp } from '../support/nest-app.js';

class Chief {
  @Leader('chief')
  async lead({ signal }: LeaderTerm): Promise<void> {
    await once(signal, 'abort');
  }
}

class Guard extends Chief implements CanActivate {
  canActivate(): boolean {
    return true;
  }
}

const NEVER_LEADS = 'never leads: its object is not in the `providers` of a module';

let app: INestApplication;
let log: LogLines;

beforeEach(() => {
  log = new LogLines('Leader');
});
afterEach(() => app.close());

async function start(...more: Type[]): Promise<void> {
  app = await startPlainApp(
    { imports: [RedlockModule.forRoot({ nodes: 'memory' }), ...more] },
    { logger: log },
  );
}

const create = <T>(type: new () => T): Promise<T> => app.get(ModuleRef).create(type);

test('a leader that moduleRef.create() has made is warned of', async () => {
  await start();
  await create(Chief);
  expect(log.of('warn')).toEqual([expect.stringContaining(`@Leader("chief") of Chief.lead ${NEVER_LEADS}`)]);
});

test('a leader that Nest has made for a decorator is warned of at the start', async () => {
  @Controller()
  @UseGuards(Guard)
  class Route {}
  @Module({ controllers: [Route] })
  class Routes {}
  await start(Routes);
  expect(log.of('warn')).toEqual([expect.stringContaining(`@Leader("chief") of Guard.lead ${NEVER_LEADS}`)]);
});

test('no leader of a module is warned of, also when it is loaded later, or made a second time', async () => {
  class Other {
    @Leader('other')
    async lead({ signal }: LeaderTerm): Promise<void> {
      await once(signal, 'abort');
    }
  }
  class Third extends Other {
    @Leader('third')
    override async lead(term: LeaderTerm): Promise<void> {
      await super.lead(term);
    }
  }
  @Module({ providers: [Chief] })
  class Provided {}
  @Module({ providers: [Other, { provide: 'slow', useFactory: () => new Promise(setImmediate) }] })
  class Lazy {}
  await start(Provided);
  await app.get(LazyModuleLoader).load(() => Lazy);
  await create(Chief);
  await create(Other);
  expect(log.of('warn')).toEqual([]);
  await create(Third);
  expect(log.of('warn')).toEqual([expect.stringContaining('@Leader("third") of Third.lead')]);
});

test('a method with @OnlyLeader for which nobody leads rejects, when moduleRef.create() has made its object', async () => {
  class Needs {
    @OnlyLeader('nobody')
    async task(): Promise<void> {}
  }
  await start();
  const made = await create(Needs);
  await expect(made.task()).rejects.toMatchObject({
    code: 'NO_LEADER',
    message: expect.stringContaining('@OnlyLeader("nobody") of Needs.task'),
  });
});
