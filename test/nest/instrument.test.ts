import 'reflect-metadata';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { type INestApplicationContext, Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Cron, Interval, ScheduleModule } from '@nestjs/schedule';
import {
  currentLock,
  defineLocks,
  Leader,
  type LeaderTerm,
  LockService,
  OnlyLeader,
  RedlockModule,
  WithLock,
} from '../../lib/index.js';
import { until } from '../support/until.js';

/**
 * Wraps an object as `@nestjs/observe` 0.3 does: each method is a bound function that has the metadata of
 * reflect-metadata, and no other property, of the method. An object with private members gets its own methods'
 * calls itself; any other object gets them as the Proxy.
 */
function instanceDecorator<T>(instance: T): T {
  if (typeof instance !== 'object' || instance === null || instance instanceof Map) return instance;
  const isPrivate = /(^|[^\w$])#[\w$]/.test(String(instance.constructor));
  return new Proxy(instance, {
    get(target, name, receiver) {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== 'function' || name === 'constructor' || /^\s*class\s/.test(String(value)))
        return value;
      const call = (...args: unknown[]): unknown => Reflect.apply(value, isPrivate ? target : receiver, args);
      const bound = call.bind(undefined);
      for (const key of Reflect.getMetadataKeys(value) as unknown[])
        Reflect.defineMetadata(key, Reflect.getMetadata(key, value), bound);
      return bound;
    },
  });
}

const declared = defineLocks({ report: { key: (id: number) => `report:${id}` } });

@Injectable()
class Tasks {
  readonly ran: string[] = [];
  resigned = false;

  constructor(readonly locks: LockService) {}

  @WithLock((id: number) => `order:${id}`)
  async settle(_id: number): Promise<unknown> {
    return [currentLock()?.keys, this.locks.current()?.keys];
  }

  @WithLock.of(declared.report)
  async report(_id: number): Promise<unknown> {
    return currentLock()?.keys;
  }

  @WithLock('rows')
  async *rows(): AsyncGenerator<unknown> {
    yield currentLock()?.keys;
  }

  @Cron('* * * * * *', { name: 'each second' })
  @WithLock('cron', { oncePerTick: true })
  async cron(): Promise<void> {
    this.ran.push('cron');
  }

  @WithLock('interval', { oncePerTick: true })
  @Interval(50)
  async interval(): Promise<void> {
    this.ran.push('interval');
  }

  @Leader('chief')
  async lead({ signal }: LeaderTerm): Promise<void> {
    this.ran.push('lead');
    await until(() => this.ran.includes('only') || signal.aborted);
    await this.locks.leader('chief').resign();
    this.resigned = true;
  }

  @OnlyLeader('chief')
  async only(): Promise<unknown> {
    this.ran.push('only');
    return currentLock()?.keys;
  }
}

let app: INestApplicationContext;
beforeEach(async () => {
  @Module({
    imports: [
      ScheduleModule.forRoot(),
      RedlockModule.forRootAsync({
        useFactory: () => ({ nodes: 'memory', locks: declared, shutdownTimeout: 3_600_000 }),
      }),
      RedlockModule.forRoot({ name: 'second', nodes: 'memory' }),
    ],
    providers: [Tasks],
  })
  class AppModule {}
  app = await NestFactory.createApplicationContext(AppModule, {
    logger: ['error'],
    instrument: { instanceDecorator },
  });
});
afterEach(() => app.close());

test('every decorator works on objects that monitoring has wrapped in proxies', async () => {
  const tasks = app.get(Tasks);
  await expect(tasks.settle(1)).resolves.toEqual([['order:1'], ['order:1']]);
  await expect(tasks.report(2)).resolves.toEqual(['report:2']);
  for await (const keys of tasks.rows()) expect(keys).toEqual(['rows']);
  await until(() => ['cron', 'interval', 'lead'].every((each) => tasks.ran.includes(each)));
  await expect(tasks.only()).resolves.toEqual(['leader:chief']);
  // A leader that resigns does not wait for itself.
  await until(() => tasks.resigned);
});

test('a method of a wrapped object that closes the application does not wait for itself', async () => {
  const closing = app.get(LockService).withLock('closing', () => app.close());
  await expect(closing).rejects.toThrow('the code under it closed the application');
});
