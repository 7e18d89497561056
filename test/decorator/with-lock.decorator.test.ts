import 'reflect-metadata';
import { describe, expect, test } from '@jest/globals';
import { SetMetadata } from '@nestjs/common';
import { Observable, of } from 'rxjs';
import { RedlockError, WithLock, type WithLockOptions } from '../../lib/index.js';

const MARK = Symbol('mark');

/** Applies decorators to a method as the compiler does: the last one first. */
function decorate(target: object, name: string, ...decorators: readonly MethodDecorator[]): void {
  const descriptor = Object.getOwnPropertyDescriptor(target, name)!;
  for (const decorator of decorators.toReversed()) decorator(target, name, descriptor);
  Object.defineProperty(target, name, descriptor);
}

/** Calls the decorator with arguments that the compiler would refuse. */
function lockUnchecked(key: unknown, options?: unknown): MethodDecorator {
  const decorator: unknown = Reflect.apply(WithLock, undefined, [key, options]);
  return decorator as MethodDecorator;
}

class Sample {
  run(_first: number, _second: string): Promise<void> {
    return Promise.resolve();
  }
}

describe('a locked method', () => {
  test('a locked method has all metadata of decorators below @WithLock, and keeps its name and length', () => {
    class Service {
      @WithLock('key')
      @SetMetadata('string key', 1)
      @SetMetadata(MARK as unknown as string, { deep: true })
      async run(_first: number, _second: string): Promise<void> {}
    }
    const { run } = Service.prototype;
    expect(Reflect.getOwnMetadataKeys(run)).toEqual(expect.arrayContaining(['string key', MARK]));
    expect(Reflect.getMetadata('string key', run)).toBe(1);
    expect(Reflect.getMetadata(MARK, run)).toEqual({ deep: true });
    expect(run.name).toBe('run');
    expect(run).toHaveLength(2);
  });

  test('a locked method has the metadata of decorators above @WithLock', () => {
    class Service {
      @SetMetadata(MARK as unknown as string, 'above')
      @WithLock('key')
      async run(): Promise<void> {}
    }
    expect(Reflect.getMetadata(MARK, Service.prototype.run)).toBe('above');
  });

  test('a decorator above @WithLock adds no metadata to the undecorated function', () => {
    const { run } = Sample.prototype;
    class Derived extends Sample {}
    Object.defineProperty(Derived.prototype, 'run', { value: run, writable: true, configurable: true });
    decorate(Derived.prototype, 'run', SetMetadata('above', 1), lockUnchecked('key'));
    expect(Reflect.getMetadata('above', Derived.prototype.run)).toBe(1);
    expect(Reflect.hasMetadata('above', run)).toBe(false);
  });

  test('a locked method keeps its property descriptor except for the function', () => {
    class Service extends Sample {
      override async run(): Promise<void> {}
    }
    const before = Object.getOwnPropertyDescriptor(Service.prototype, 'run')!;
    decorate(Service.prototype, 'run', lockUnchecked('key'));
    const after = Object.getOwnPropertyDescriptor(Service.prototype, 'run')!;
    expect({ ...after, value: undefined }).toEqual({ ...before, value: undefined });
    expect(after.value).not.toBe(before.value);
  });
});

describe('an object that Nest did not create', () => {
  class Service {
    @WithLock('key')
    async run(): Promise<string> {
      return 'never';
    }

    @WithLock('key')
    watch(): Observable<number> {
      return of(1);
    }
  }

  test('on an object that Nest did not create, a locked method rejects with advice and does not run', async () => {
    const error = await new Service().run().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(RedlockError);
    expect(error).toMatchObject({
      code: 'LOCK_NOT_INJECTED',
      message: expect.stringMatching(/^Service\.run has @WithLock.*Nest did not create.*inject it/),
    });
  });

  test('a locked method that is called without `this` rejects with LOCK_NOT_INJECTED', async () => {
    const { run } = Service.prototype;
    await expect(Reflect.apply(run, undefined, [])).rejects.toMatchObject({ code: 'LOCK_NOT_INJECTED' });
    await expect(Reflect.apply(run, null, [])).rejects.toMatchObject({ code: 'LOCK_NOT_INJECTED' });
    await expect(Reflect.apply(run, 7, [])).rejects.toMatchObject({ code: 'LOCK_NOT_INJECTED' });
  });

  test('on an object that Nest did not create, a locked method that declares an Observable throws', () => {
    expect(() => new Service().watch()).toThrow(/Nest did not create/);
  });
});

describe('the class definition', () => {
  test('@WithLock on a getter throws at the class definition', () => {
    expect(() => {
      class Service {
        get value(): number {
          return 1;
        }
      }
      decorate(Service.prototype, 'value', lockUnchecked('key'));
    }).toThrow(
      new TypeError(
        '@WithLock works only on instance methods, and `value` is not an instance method. Write `async value() { ... }`',
      ),
    );
  });

  test('@WithLock on a static method throws at the class definition', () => {
    expect(() => {
      class Service {
        static async run(): Promise<void> {}
        async other(): Promise<void> {}
      }
      decorate(Service, 'run', lockUnchecked('key'));
    }).toThrow(
      new TypeError(
        '@WithLock works only on instance methods, and `run` is not an instance method. Remove `static`',
      ),
    );
  });

  test('@WithLock on a class throws at the class definition', () => {
    const onClass = (): void => void Reflect.apply(WithLock('key'), undefined, [Date]);
    expect(onClass).toThrow(
      new TypeError(
        '@WithLock works only on instance methods, and a class is not an instance method. ' +
          'Put `@WithLock` on each method that needs it',
      ),
    );
  });

  test('@WithLock on a property, such as an arrow function, throws with advice to write a method', () => {
    const property = lockUnchecked('key') as PropertyDecorator;
    expect(() => property(Sample.prototype, 'field')).toThrow(
      new TypeError(
        '@WithLock works only on instance methods, and `field` is not an instance method. ' +
          'Write `async field() { ... }` in place of `field = async () => { ... }`',
      ),
    );
  });
});

describe('the arguments of @WithLock', () => {
  const settleWith = (key: unknown, options?: unknown): void => {
    class Orders {
      async settle(): Promise<void> {}
    }
    decorate(Orders.prototype, 'settle', lockUnchecked(key, options));
  };
  const msRule = (option: string, least: number, got: string): string =>
    `Expected \`${option}\` to be a whole number of milliseconds, at least ${least}, got ${got}`;

  test.each<[unknown, ErrorConstructor, string]>([
    [{ ttl: -5 }, RangeError, msRule('ttl', 10, '-5')],
    [{ ttl: 9 }, RangeError, msRule('ttl', 10, '9')],
    [{ ttl: 10.5 }, RangeError, msRule('ttl', 10, '10.5')],
    [{ ttl: NaN }, RangeError, msRule('ttl', 10, 'NaN')],
    [{ ttl: '5s' }, TypeError, msRule('ttl', 10, "'5s'; write 5000 for 5 s")],
    [{ ttl: null }, TypeError, msRule('ttl', 10, 'null')],
    [
      { ttl: 2 ** 31 },
      RangeError,
      'Expected `ttl` to be a whole number of milliseconds, at least 10, at most 2147483647, got 2147483648',
    ],
    [
      { retry: true },
      TypeError,
      'Expected `retry` to be `false` or an object such as `{ timeout: 5000 }` or `{ attempts: 3 }`, got true',
    ],
    [
      { retry: null },
      TypeError,
      'Expected `retry` to be `false` or an object such as `{ timeout: 5000 }` or `{ attempts: 3 }`, got null',
    ],
    [{ retry: { timeout: 0 } }, RangeError, msRule('retry.timeout', 1, '0')],
    [{ retry: { delay: 0 } }, RangeError, msRule('retry.delay', 1, '0')],
    [{ retry: { jitter: -1 } }, RangeError, msRule('retry.jitter', 0, '-1')],
    [
      { retry: { attempts: 0 } },
      RangeError,
      'Expected `retry.attempts` to be a whole number, at least 1, got 0',
    ],
    [
      { retry: { tries: 3 } },
      TypeError,
      'Unknown option `tries` in `retry`. The options are `timeout`, `attempts`, `delay`, `jitter`',
    ],
    [{ renew: 'yes' }, TypeError, "Expected `renew` to be `true`, `false` or 'thread', got 'yes'"],
    [{ onBusy: 'wait' }, TypeError, "Expected `onBusy` to be 'throw', 'skip' or a function, got 'wait'"],
    [{ onLost: 'skip' }, TypeError, "Expected `onLost` to be 'throw' or 'ignore', got 'skip'"],
    [{ label: '' }, TypeError, "Expected `label` to be a string that is not empty, got ''"],
    [{ instance: '' }, TypeError, "Expected `instance` to be the `name` of a RedlockModule, got ''"],
    [{ instance: 1 }, TypeError, 'Expected `instance` to be the `name` of a RedlockModule, got 1'],
    [{ tll: 5_000 }, TypeError, 'Unknown option `tll` in `@WithLock`. Did you mean `ttl`?'],
    [
      { wait: 5_000 },
      TypeError,
      'Unknown option `wait` in `@WithLock`. The options are `ttl`, `retry`, `renew`, `maxBlocked`, `minHold`, `maxHold`, `reentrant`, `onLost`, `release`, `mode`, `permits`, `onBusy`, `oncePerTick`, `label`, `instance`',
    ],
    [
      { timeout: 5_000 },
      TypeError,
      'Unknown option `timeout` in `@WithLock`. It belongs in `retry`: `retry: { timeout: ... }`',
    ],
    [
      { nodeTimeout: 50 },
      TypeError,
      'Unknown option `nodeTimeout` in `@WithLock`. It is an option of `RedlockModule.forRoot`',
    ],
    [{ permits: 0 }, RangeError, 'Expected `permits` to be a whole number from 1 to 1000, got 0'],
    [
      { permits: 5, mode: 'shared' },
      TypeError,
      "Expected `permits` without a `mode`, got `permits: 5` with `mode: 'shared'`. Leave out one of them: a lock with permits is another kind of lock, without readers and writers",
    ],
    [
      { mode: 'shared', minHold: 1 },
      TypeError,
      "Expected no `minHold` with `mode: 'shared'`, got 1. A shared lock ends with its release; use an exclusive lock to keep runs a minimum time apart",
    ],
    [
      { mode: 'shared', oncePerTick: true },
      TypeError,
      "Expected `oncePerTick` with an exclusive lock, got `mode: 'shared'`. All holders of such a lock would run the tick: leave out one of the two options",
    ],
    [
      { permits: 3, oncePerTick: true },
      TypeError,
      'Expected `oncePerTick` with an exclusive lock, got `permits: 3`. All holders of such a lock would run the tick: leave out one of the two options',
    ],
    [null, TypeError, 'Expected the options of `@WithLock` to be an object, got null'],
    ['skip', TypeError, 'Expected the options of `@WithLock` to be an object, got a string'],
  ])('@WithLock throws at the class definition for the invalid options %j', (options, kind, message) => {
    const define = (): unknown => settleWith('key', options);
    expect(define).toThrow(kind);
    expect(define).toThrow(new Error(`@WithLock of Orders.settle: ${message}`));
  });

  test.each<[unknown, string]>([
    ['', "got ''"],
    ['}x', "got '}x'"],
    [undefined, 'got undefined'],
    [{ key: 1 }, 'got [Object]'],
  ])('@WithLock throws at the class definition for the invalid key %j', (key, got) => {
    const rule =
      '@WithLock of Orders.settle: Expected `key` to be a string that is not empty and does not begin with "}", or an array of such strings, ';
    expect(() => settleWith(key)).toThrow(new TypeError(rule + got));
  });

  test('@WithLock treats an undefined option as omitted', () => {
    const read = { ttl: undefined, retry: undefined, onBusy: undefined, instance: undefined };
    const readElsewhere = { signal: undefined, nodes: undefined };
    expect(() =>
      settleWith('key', { ...read, ...readElsewhere } as unknown as WithLockOptions),
    ).not.toThrow();
  });
});
