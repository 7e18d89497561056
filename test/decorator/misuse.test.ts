import 'reflect-metadata';
import { describe, expect, jest, test } from '@jest/globals';
import { EventEmitter } from 'node:events';
import { interceptorToken } from '../../lib/decorator/interceptor-injection.js';
import { InjectLockService, Leader, LockService, OnlyLeader, WithLock } from '../../lib/index.js';
import { startApp } from '../support/nest-app.js';

/** The error of a call that must fail, synchronously or later. */
async function failureOf(call: () => unknown): Promise<unknown> {
  try {
    await call();
  } catch (error) {
    return error;
  }
  throw new Error('the call did not fail');
}

class Orders {
  @WithLock('orders')
  async settle(_order?: unknown): Promise<void> {}

  @OnlyLeader('orders')
  async sweep(): Promise<void> {}
}

describe('a locked method without its object', () => {
  test('rejects with the way to keep the object when only the method is passed on', async () => {
    const { settle, sweep } = Orders.prototype;
    expect(await failureOf(() => Promise.all([1].map(settle)))).toMatchObject({
      code: 'LOCK_NOT_INJECTED',
      message: expect.stringMatching(
        /^Orders\.settle has @WithLock, but was called without its object .*`this` was undefined.*\(\.\.\.args\) => orders\.settle\(\.\.\.args\)/,
      ),
    });
    expect(await failureOf(() => Reflect.apply(sweep, 7, []))).toMatchObject({
      message: expect.stringMatching(/^Orders\.sweep has @OnlyLeader, but was called without its object/),
    });
  });

  test('names the object that calls it when an emitter has the method as a listener', async () => {
    const emitter = new EventEmitter({ captureRejections: true });
    emitter.on('order', Orders.prototype.settle);
    const told = new Promise((resolve) => emitter.on('error', resolve));
    emitter.emit('order');
    expect(await told).toMatchObject({ message: expect.stringContaining('`this` was an EventEmitter') });
  });
});

describe('a locked method that is called too early', () => {
  class Early {
    readonly began: Promise<void>;

    constructor() {
      this.began = this.load();
    }

    @WithLock('early')
    async load(): Promise<void> {}
  }

  class Derived extends Early {}

  test.each([Early, Derived])('rejects with a later moment when a constructor calls it: %p', async (Made) => {
    expect(await failureOf(() => new Made().began)).toMatchObject({
      code: 'LOCK_NOT_INJECTED',
      message: expect.stringMatching(/^Early\.load has @WithLock.*in the constructor.*`onModuleInit`/),
    });
  });

  test('names the factory of another provider as a possible caller when no constructor calls it', async () => {
    const { message } = (await failureOf(() => new Orders().settle())) as Error;
    expect(message).toMatch(/Nest did not create.*factory of another provider.*`onModuleInit`/);
    expect(message).not.toContain('constructor');
  });
});

describe('an async key function', () => {
  const later = async (): Promise<string> => Promise.reject(new Error('no such order'));
  class Later {
    @(WithLock(later as never) as MethodDecorator)
    async run(): Promise<void> {}

    @(WithLock((() => ['a', later()]) as never) as MethodDecorator)
    async list(): Promise<void> {}
  }

  // A rejection that nobody handles would make this test fail.
  test('rejects with the remedy, and its own rejection is handled', async () => {
    const app = await startApp({ providers: [Later] });
    const remedy =
      /^Expected the key of @WithLock on Later\.\w+ to be a string .*got a Promise\..*cannot be `async`/;
    await expect(app.get(Later).run()).rejects.toThrow(remedy);
    await expect(app.get(Later).list()).rejects.toThrow(remedy);
    const locks = app.get(LockService);
    await expect(failureOf(() => locks.acquire(later() as never))).resolves.toMatchObject({
      message: expect.stringMatching(/^Expected `key` .*got a Promise/),
    });
  });
});

describe('two copies of the package', () => {
  class Ours {
    @WithLock('key', { instance: 'billing' })
    async run(): Promise<void> {}
  }

  test('a locked method rejects with the way to find the copies when its interceptor is of another copy', async () => {
    jest.resetModules();
    const { LockInterceptor } = await import('../../lib/decorator/lock.interceptor.js');
    const other = new LockInterceptor({} as never, {} as never);
    const app = await startApp({
      providers: [Ours, { provide: interceptorToken('billing'), useValue: other }],
    });

    await expect(app.get(Ours).run()).rejects.toThrow(
      /^Ours\.run has @WithLock.*another copy of nestjs-redlock.*`npm ls nestjs-redlock`/,
    );
  });
});

describe('a decorator without parentheses', () => {
  const method = Object.getOwnPropertyDescriptor(Orders.prototype, 'settle');

  test.each([
    ['WithLock', WithLock, "@WithLock('key')"],
    ['WithLock.of', WithLock.of, '@WithLock.of(locks[name])'],
    ['Leader', Leader, "@Leader('name')"],
    ['OnlyLeader', OnlyLeader, "@OnlyLeader('name')"],
  ])('throws with the way to write it on a method: %s', (name, decorator, written) => {
    const misused = new TypeError(
      `@${name} of Orders.settle has no parentheses, so it does nothing. Write \`${written}\``,
    );
    expect(() => Reflect.apply(decorator, undefined, [Orders.prototype, 'settle', method])).toThrow(misused);
    expect(() => Reflect.apply(decorator, undefined, [Orders, 'settle', method])).toThrow(misused);
  });

  test('throws with the way to write it on a class', () => {
    const bare = (): unknown => Reflect.apply(WithLock as never, undefined, [Orders]);
    expect(bare).toThrow(/^@WithLock of Orders has no parentheses/);
  });

  test('throws with the way to write it when the compiler applies it as a standard decorator', () => {
    const context = { kind: 'method', name: 'settle', static: false };
    const bare = (): unknown =>
      Reflect.apply(WithLock as never, undefined, [Orders.prototype.settle, context]);
    expect(bare).toThrow(/^@WithLock of settle has no parentheses/);
  });

  test('throws with the way to write it on a parameter and a property of LockService', () => {
    expect(() => Reflect.apply(InjectLockService, undefined, [Orders, undefined, 0])).toThrow(
      /^@InjectLockService of Orders has no parentheses.*`@InjectLockService\('billing'\)`/,
    );
    expect(() => Reflect.apply(InjectLockService, undefined, [Orders.prototype, 'locks'])).toThrow(
      /^@InjectLockService of Orders\.locks has no parentheses/,
    );
  });

  test('takes a key function and options as before', () => {
    const applied = (): unknown => WithLock(() => 'key', { ttl: 1_000 });
    expect(applied).not.toThrow();
  });
});

describe('a standard decorator', () => {
  const context = { kind: 'method', name: 'settle', static: false };

  test.each([
    ['@WithLock', WithLock('key')],
    ['@Leader', Leader('name')],
    ['@OnlyLeader', OnlyLeader('name')],
  ])('is refused with the option of the compiler: %s', (name, decorator) => {
    const { settle } = Orders.prototype;
    expect(() => Reflect.apply(decorator, undefined, [settle, context])).toThrow(
      new TypeError(
        `${name} of settle was compiled as a standard decorator, and the decorators of NestJS are those of ` +
          '`experimentalDecorators`. Set `experimentalDecorators` and `emitDecoratorMetadata` in the `compilerOptions` of ' +
          'tsconfig.json; for SWC, `legacyDecorator` and `decoratorMetadata` in `jsc.transform`',
      ),
    );
  });
});
