import 'reflect-metadata';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import {
  type INestApplication,
  Injectable,
  type LoggerService,
  Module,
  Scope,
  type Type,
} from '@nestjs/common';
import { Cron, CronExpression, Interval, ScheduleModule, SchedulerRegistry, Timeout } from '@nestjs/schedule';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import {
  LOCK_SKIPPED_CHANNEL,
  LockHeldError,
  LockService,
  type LockSkippedEvent,
  RedlockModule,
  WithLock,
} from '../../../lib/index.js';
import { startApp, startPlainApp } from '../../support/nest-app.js';

/** The last tick of this schedule is long ago, and the next one is far away. So all direct calls are for one tick. */
const YEARLY = '0 0 0 1 1 *';
const NEW_YEAR = Date.UTC(new Date().getUTCFullYear(), 0, 1);

/** Keeps the log lines of the decorator. */
class SkipLog implements LoggerService {
  readonly lines: string[] = [];
  readonly errors: unknown[] = [];

  log(): void {}
  warn(): void {}

  error(message: unknown): void {
    this.errors.push(message);
  }

  debug(message: string, context: string): void {
    this.lines.push(`${context}: ${message}`);
  }
}

let events: LockSkippedEvent[];
let log: SkipLog;
const listener = (event: unknown): void => void events.push(event as LockSkippedEvent);

beforeEach(() => {
  events = [];
  log = new SkipLog();
  subscribe(LOCK_SKIPPED_CHANNEL, listener);
});
afterEach(() => {
  unsubscribe(LOCK_SKIPPED_CHANNEL, listener);
});

async function start<T>(service: Type<T>): Promise<{ readonly app: INestApplication; readonly service: T }> {
  const app = await startApp({ imports: [ScheduleModule.forRoot()], providers: [service] });
  app.useLogger(log);
  return { app, service: app.get(service) };
}

/** Resolves to the error with which the start-up fails. */
async function refusal(...providers: Type[]): Promise<unknown> {
  return startApp({ imports: [ScheduleModule.forRoot()], providers }).catch((error: unknown) => error);
}

describe('the option `oncePerTick`', () => {
  @Injectable()
  class Above {
    @Cron(YEARLY, { timeZone: 'UTC' })
    @WithLock('k', { oncePerTick: true })
    async run(): Promise<string | undefined> {
      return 'ran';
    }
  }

  @Injectable()
  class Below {
    @WithLock('k', { oncePerTick: true })
    @Cron(YEARLY, { utcOffset: 0, name: 'below' })
    async run(): Promise<string | undefined> {
      return 'ran';
    }
  }

  /** A decorator of another library, which copies no metadata of the method. */
  function Wrapped(): MethodDecorator {
    return (_target, _name, descriptor: PropertyDescriptor) => {
      const method = descriptor.value as (...args: unknown[]) => unknown;
      descriptor.value = function (this: unknown, ...args: unknown[]) {
        return method.apply(this, args);
      };
    };
  }

  @Injectable()
  class Between {
    @Cron(YEARLY, { timeZone: 'UTC' })
    @Wrapped()
    @WithLock('k', { oncePerTick: true })
    async run(): Promise<string | undefined> {
      return 'ran';
    }
  }

  @Injectable()
  class Inherited extends Above {}

  test.each<[string, Type<Above>]>([
    ['below @Cron', Above],
    ['above @Cron', Below],
    ["below @Cron and another library's decorator", Between],
    ['in a base class', Inherited],
  ])('`oncePerTick` runs a tick once with @WithLock %s', async (_position, type) => {
    const { service } = await start(type);
    await expect(service.run()).resolves.toBe('ran');
    await expect(service.run()).resolves.toBeUndefined();
    expect(events).toEqual([
      {
        method: `${type === Inherited ? 'Above' : type.name}.run`,
        keys: ['k'],
        label: 'k',
        mode: 'exclusive',
        reason: 'tick-ran',
        owner: expect.any(String),
        tick: NEW_YEAR,
      },
    ]);
  });

  test('a job with `oncePerTick` runs once when it fires several times for one tick', async () => {
    let runs = 0;
    @Injectable()
    class Task {
      @Cron(CronExpression.EVERY_YEAR, { name: 'task' })
      @WithLock('fired', { oncePerTick: true })
      async run(): Promise<void> {
        runs++;
      }
    }
    const { app } = await start(Task);
    const job = app.get(SchedulerRegistry).getCronJob('task');
    await Promise.all([job.fireOnTick(), job.fireOnTick()]);
    await job.fireOnTick();
    await app.close();
    expect(runs).toBe(1);
    expect(log.errors).toEqual([]);
  });

  test('`oncePerTick` keeps separate ticks for methods that lock the same key, and does not affect LockService', async () => {
    @Injectable()
    class Both {
      @Cron(YEARLY)
      @WithLock('shared', { oncePerTick: true })
      async one(): Promise<string | undefined> {
        return 'one';
      }

      @Interval(3_600_000)
      @WithLock('shared', { oncePerTick: true })
      async two(): Promise<string | undefined> {
        return 'two';
      }
    }
    const { app, service } = await start(Both);
    const results = [await service.one(), await service.two(), await service.one(), await service.two()];
    expect(results).toEqual(['one', 'two', undefined, undefined]);
    await expect(app.get(LockService).withLock('shared', () => 'three')).resolves.toBe('three');
  });

  test('`oncePerTick` does not run a tick again after its run threw', async () => {
    @Injectable()
    class Failing {
      @Cron(YEARLY)
      @WithLock('failing', { oncePerTick: true })
      async run(): Promise<void> {
        throw new Error('mine');
      }
    }
    const { service } = await start(Failing);
    await expect(service.run()).rejects.toThrow('mine');
    await expect(service.run()).resolves.toBeUndefined();
  });

  test('a repeated tick obeys an explicit `onBusy`, and its error says that the tick has run', async () => {
    @Injectable()
    class Choosy {
      @Cron(YEARLY, { timeZone: 'UTC' })
      @WithLock('choosy', { oncePerTick: true, onBusy: 'throw' })
      async loud(): Promise<void> {}

      @Cron(YEARLY)
      @WithLock('function', { oncePerTick: true, onBusy: ({ ranTick }) => `tick ${ranTick !== undefined}` })
      async told(): Promise<unknown> {
        return 'ran';
      }
    }
    const { service } = await start(Choosy);
    await service.loud();
    const error = await service.loud().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LockHeldError);
    const tick = `the tick of ${new Date(NEW_YEAR).toISOString()}`;
    expect((error as Error).message).toMatch(/^"choosy" is not locked: \S+:\d+ has already run /);
    expect((error as Error).message).toContain(tick);
    expect([await service.told(), await service.told()]).toEqual(['ran', 'tick true']);
    expect(events).toEqual([]);
  });

  test('`oncePerTick` uses the module instance that the option `instance` names', async () => {
    @Injectable()
    class Named {
      @Cron(YEARLY)
      @WithLock('named', { oncePerTick: true, instance: 'billing' })
      async run(): Promise<string | undefined> {
        return 'ran';
      }
    }
    const imports = [ScheduleModule.forRoot(), RedlockModule.forRoot({ name: 'billing', nodes: 'memory' })];
    const app = await startPlainApp({ imports, providers: [Named] });
    expect([await app.get(Named).run(), await app.get(Named).run()]).toEqual(['ran', undefined]);
  });

  test('`oncePerTick` follows the new schedule of a job whose schedule was changed', async () => {
    const { app, service } = await start(Below);
    const job = app.get(SchedulerRegistry).getCronJob('below');
    await service.run();
    job.cronTime = new (job.cronTime.constructor as new (source: string) => typeof job.cronTime)(
      '* * * * * *',
    );
    await expect(service.run()).resolves.toBe('ran');
  });

  test('`oncePerTick` does not limit direct calls when the application has no scheduler', async () => {
    const app = await startApp({ providers: [Above] });
    expect([await app.get(Above).run(), await app.get(Above).run()]).toEqual(['ran', 'ran']);
  });

  test('the start-up fails when a method with `oncePerTick` has neither @Cron nor @Interval', async () => {
    @Injectable()
    class Plain {
      @WithLock('plain', { oncePerTick: true })
      async work(): Promise<void> {}
    }
    @Injectable()
    class Once {
      @Timeout(60_000)
      @WithLock('timeout', { oncePerTick: true })
      async work(): Promise<void> {}
    }
    @Injectable({ scope: Scope.REQUEST })
    class PerRequest {
      @WithLock('request', { oncePerTick: true })
      async work(): Promise<void> {}
    }
    await expect(refusal(Plain)).resolves.toEqual(
      new TypeError(
        'Expected `oncePerTick` in @WithLock on Plain.work to be for a method with @Cron or @Interval of ' +
          '@nestjs/schedule, got a method with neither of them. In a job that code adds to the SchedulerRegistry, call ' +
          '`LockService.oncePerTick` with its schedule; elsewhere use `minHold`, a little less than the time between two runs',
      ),
    );
    await expect(refusal(Once)).resolves.toMatchObject({
      message: expect.stringMatching(
        /on Once.work to be .* with @Timeout, .* Use `minHold` instead, a little less/,
      ),
    });
    await expect(refusal(PerRequest)).resolves.toBeInstanceOf(TypeError);
  });

  describe('on methods in two classes of the same name', () => {
    /** Returns a new class each time, as if two files each had a class with this name. */
    function taskOf(
      key: string | (() => string),
      more: { instance?: string } = {},
    ): Type<{ run(): Promise<string | undefined> }> {
      @Injectable()
      class Task {
        @Cron(YEARLY)
        @WithLock(key, { oncePerTick: true, ...more })
        async run(): Promise<string | undefined> {
          return 'ran';
        }
      }
      return Task;
    }

    /** Resolves to the result of a call of each class. */
    async function runs(app: INestApplication, ...tasks: ReturnType<typeof taskOf>[]): Promise<unknown> {
      return Promise.all(tasks.map((task) => app.get(task).run()));
    }

    test.each<[string, string | (() => string), string | (() => string)]>([
      ['the same key', 'same', 'same'],
      ['keys from functions', () => 'same', () => 'same'],
      ['a fixed key and a key from a function', 'same', () => 'same'],
    ])('the start-up fails if methods of two classes of the same name lock %s', async (_name, one, other) => {
      // Only the message is compared, because Jest cannot print a started application.
      expect(((await refusal(taskOf(one), taskOf(other))) as Error).message).toBe(
        'Two classes are named Task, and `run` of both has `oncePerTick` with the same key, or with a key function. ' +
          'A tick is identified by class, method and key, so each class would skip ticks that the other has run. ' +
          'Rename one of the classes, or lock a different fixed key in each',
      );
    });

    test('two classes of the same name have separate ticks when they lock different keys', async () => {
      const tasks = [taskOf('a'), taskOf('b')];
      const app = await startApp({ imports: [ScheduleModule.forRoot()], providers: tasks });
      await expect(runs(app, ...tasks)).resolves.toEqual(['ran', 'ran']);
    });

    test('two classes of the same name have separate ticks when they use different module instances', async () => {
      const tasks = [taskOf('same'), taskOf('same', { instance: 'billing' })];
      const imports = [ScheduleModule.forRoot(), RedlockModule.forRoot({ name: 'billing', nodes: 'memory' })];
      const app = await startApp({ imports, providers: tasks });
      await expect(runs(app, ...tasks)).resolves.toEqual(['ran', 'ran']);
    });

    test('a tick runs once when two modules provide the same class', async () => {
      const task = taskOf('same');
      @Module({ providers: [task] })
      class Feature {}
      const app = await startApp({ imports: [ScheduleModule.forRoot(), Feature], providers: [task] });
      await expect(runs(app, task, task)).resolves.toEqual(['ran', undefined]);
    });
  });

  test('a call of an unscheduled method rejects when another decorator hid `oncePerTick` at start-up', async () => {
    @Injectable()
    class Hidden {
      @Wrapped()
      @WithLock('hidden', { oncePerTick: true })
      async work(): Promise<void> {}
    }
    const { service } = await start(Hidden);
    await expect(service.work()).rejects.toThrow('Expected `oncePerTick` in @WithLock on Hidden.work');
  });
});

describe('a skipped call', () => {
  @Injectable()
  class Task {
    @WithLock('task', { onBusy: 'skip' })
    async run(): Promise<string | undefined> {
      return 'ran';
    }

    @Interval(3_600_000)
    @WithLock('interval', { oncePerTick: true })
    async hourly(): Promise<void> {}

    @Cron(YEARLY, { timeZone: 'UTC' })
    @WithLock('cron', { oncePerTick: true })
    async yearly(): Promise<void> {}
  }

  test('a skipped call is published on the diagnostics channel and logged at level debug', async () => {
    const { app, service } = await start(Task);
    const lock = await app.get(LockService).acquire('task', { ttl: 60_000 });
    await expect(service.run()).resolves.toBeUndefined();
    await lock.release();
    for (let call = 0; call < 2; call++) {
      await service.hourly();
      await service.yearly();
    }
    const owner: unknown = expect.any(String);
    expect(events).toEqual([
      {
        method: 'Task.run',
        keys: ['task'],
        label: 'task',
        mode: 'exclusive',
        reason: 'held',
        owner,
        retryAfter: expect.any(Number),
      },
      {
        method: 'Task.hourly',
        keys: ['interval'],
        label: 'interval',
        mode: 'exclusive',
        reason: 'tick-ran',
        owner,
        tick: 0,
      },
      {
        method: 'Task.yearly',
        keys: ['cron'],
        label: 'cron',
        mode: 'exclusive',
        reason: 'tick-ran',
        owner,
        tick: NEW_YEAR,
      },
    ]);
    expect(log.lines).toEqual([
      expect.stringMatching(/^WithLock: Task.run skipped: "task" is held by \S+:\d+ for \d+ ms more$/),
      expect.stringMatching(/^WithLock: Task.hourly skipped: \S+:\d+ has already run this interval$/),
      expect.stringMatching(/^WithLock: Task.yearly skipped: \S+:\d+ has already run the tick of \S+Z$/),
    ]);
  });

  test('a call after the shutdown is skipped with the reason "shutdown", and resolves to undefined', async () => {
    const { app, service } = await start(Task);
    await app.close();
    await expect(service.run()).resolves.toBeUndefined();
    await expect(service.yearly()).resolves.toBeUndefined();
    expect(events.map(({ reason }) => reason)).toEqual(['shutdown', 'shutdown']);
    expect(log.lines).toContain('WithLock: Task.run skipped: the application is shutting down');
  });
});
