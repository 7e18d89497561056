import 'reflect-metadata';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import {
  Controller,
  Get,
  Inject,
  Injectable,
  type INestApplication,
  Module,
  Optional,
  Scope,
  type Type,
} from '@nestjs/common';
import { ContextIdFactory, LazyModuleLoader, ModuleRef } from '@nestjs/core';
import { inspect } from 'node:util';
import request from 'supertest';
import {
  currentLock,
  InjectLockService,
  LockHeldError,
  LockService,
  RedlockModule,
  WithLock,
} from '../../lib/index.js';
import { startApp, startPlainApp } from '../support/nest-app.js';

let app: INestApplication;
afterEach(() => app?.close());

const once = { retry: false } as const;

/** The keys of the lock around the running method. */
function heldKeys(): string[] {
  return [...(currentLock()?.keys ?? [])];
}

@Injectable()
class Plain {
  @WithLock('plain', once)
  async run(): Promise<string[]> {
    return heldKeys();
  }
}

/** Resolves to true if a call is refused while the key is held. */
async function excludes(key: string, call: () => Promise<unknown>): Promise<boolean> {
  const lock = await app.get(LockService).acquire(key);
  const error = await call().then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  await lock.release();
  return error instanceof LockHeldError;
}

describe('in every scope', () => {
  @Injectable({ scope: Scope.REQUEST })
  class PerRequest {
    @WithLock('request', once)
    async run(): Promise<string[]> {
      return heldKeys();
    }
  }
  @Injectable({ scope: Scope.TRANSIENT })
  class Transient {
    @WithLock('transient', once)
    async run(): Promise<string[]> {
      return heldKeys();
    }
  }
  @Injectable()
  class User {
    constructor(readonly transient: Transient) {}
  }
  @Controller()
  class RequestController {
    constructor(readonly service: PerRequest) {}

    @Get()
    @WithLock('controller', once)
    async run(): Promise<string[][]> {
      return [heldKeys(), await this.service.run()];
    }
  }

  test('a singleton runs under its lock', async () => {
    app = await startApp({ providers: [Plain] });
    await expect(app.get(Plain).run()).resolves.toEqual(['plain']);
    await expect(excludes('plain', () => app.get(Plain).run())).resolves.toBe(true);
  });

  test('a request-scoped provider from the container runs under its lock', async () => {
    app = await startApp({ providers: [PerRequest] });
    const instance = await app.resolve(PerRequest, ContextIdFactory.create());
    await expect(instance.run()).resolves.toEqual(['request']);
    await expect(excludes('request', () => instance.run())).resolves.toBe(true);
  });

  test('a transient provider runs under its lock, injected or resolved directly', async () => {
    app = await startApp({ providers: [Transient, User] });
    await expect(app.get(User).transient.run()).resolves.toEqual(['transient']);
    await expect((await app.resolve(Transient)).run()).resolves.toEqual(['transient']);
  });

  test('a controller that is request-scoped through its dependencies runs under its lock', async () => {
    app = await startApp({ controllers: [RequestController], providers: [PerRequest] });
    await request(app.getHttpServer())
      .get('/')
      .expect(200, [['controller'], ['request']]);
    await expect(
      excludes('request', () => app.resolve(RequestController).then((each) => each.run())),
    ).resolves.toBe(true);
  });

  test('an object made by moduleRef.create() runs under its lock', async () => {
    app = await startApp({});
    const made = await app.get(ModuleRef).create(Plain);
    await expect(made.run()).resolves.toEqual(['plain']);
  });
});

describe('instances that Nest holds but did not create', () => {
  test.each([
    ['useValue', { provide: 'service', useValue: new Plain() }],
    ['useFactory', { provide: 'service', useFactory: () => new Plain() }],
    ['an asynchronous useFactory', { provide: 'service', useFactory: async () => new Plain() }],
    ['a frozen useValue', { provide: 'service', useValue: Object.freeze(new Plain()) }],
    ['a Proxy from useFactory', { provide: 'service', useFactory: () => new Proxy(new Plain(), {}) }],
  ])('an instance that Nest did not create runs its methods under the lock: %s', async (_kind, provider) => {
    app = await startApp({ providers: [provider] });
    const service = app.get<Plain>('service');
    await expect(service.run()).resolves.toEqual(['plain']);
    await expect(excludes('plain', () => service.run())).resolves.toBe(true);
  });

  test('an instance from useFactory runs its methods under the lock already in onModuleInit', async () => {
    @Injectable()
    class Starter {
      result: unknown;
      constructor(@Inject('service') private readonly service: Plain) {}
      async onModuleInit(): Promise<void> {
        this.result = await this.service.run();
      }
    }
    app = await startApp({ providers: [Starter, { provide: 'service', useFactory: () => new Plain() }] });
    expect(app.get(Starter).result).toEqual(['plain']);
  });
});

test('an instance from a request-scoped factory rejects with advice to provide the class', async () => {
  app = await startApp({
    providers: [{ provide: 'service', scope: Scope.REQUEST, useFactory: () => new Plain() }],
  });
  const service = await app.resolve<Plain>('service');
  await expect(service.run()).rejects.toMatchObject({
    code: 'LOCK_NOT_INJECTED',
    message: expect.stringMatching(/Provide the class.*factory.*request-scoped/),
  });
});

test('a Proxy of an instance that Nest created runs the methods under the lock', async () => {
  app = await startApp({ providers: [Plain] });
  const wrapped = new Proxy(app.get(Plain), {});
  await expect(wrapped.run()).resolves.toEqual(['plain']);
});

test('a provider of a module that is loaded lazily runs under its lock', async () => {
  app = await startApp({ providers: [] });
  @Module({ providers: [Plain] })
  class Lazy {}
  const lazy = await app.get(LazyModuleLoader).load(() => Lazy);
  await expect(lazy.get(Plain).run()).resolves.toEqual(['plain']);
});

test('instances with locked methods look unchanged when they are printed, compared, copied or serialized', async () => {
  @Injectable()
  class Undecorated {
    readonly field = 1;
  }
  @Injectable()
  class Decorated {
    readonly field = 1;
    @WithLock('key')
    async run(): Promise<void> {}
  }
  app = await startApp({ providers: [Undecorated, Decorated] });
  const decorated = app.get(Decorated);
  expect(inspect(decorated)).toBe('Decorated { field: 1 }');
  expect(JSON.stringify(decorated)).toBe('{"field":1}');
  expect(Reflect.ownKeys(Object.assign({}, decorated))).toEqual(['field']);
  expect(Object.assign({}, decorated)).toStrictEqual(Object.assign({}, app.get(Undecorated)));
  const enumerable: string[] = [];
  for (const name in decorated) enumerable.push(name);
  expect(enumerable).toEqual(['field']);
});

describe('inheritance', () => {
  abstract class Base {
    @WithLock('base', once)
    async run(): Promise<string[]> {
      return heldKeys();
    }
  }
  const keysOfRun = async (service: Type<Base>): Promise<string[]> => {
    app = await startApp({ providers: [service] });
    const keys = await app.get(service).run();
    await expect(excludes(keys.at(-1) ?? 'nothing', () => app.get(service).run())).resolves.toBe(
      keys.length > 0,
    );
    return keys;
  };

  test('a decorated method of a base class is locked in the subclass', async () => {
    @Injectable()
    class Child extends Base {}
    await expect(keysOfRun(Child)).resolves.toEqual(['base']);
  });

  test('an override without @WithLock is not locked', async () => {
    @Injectable()
    class Child extends Base {
      override async run(): Promise<string[]> {
        return heldKeys();
      }
    }
    await expect(keysOfRun(Child)).resolves.toEqual([]);
  });

  test('an override without @WithLock is locked only during its super call', async () => {
    @Injectable()
    class Child extends Base {
      override async run(): Promise<string[]> {
        return [...heldKeys(), ...(await super.run())];
      }
    }
    await expect(keysOfRun(Child)).resolves.toEqual(['base']);
  });

  test('an override with @WithLock locks its own key, and its super call locks the key of the base class', async () => {
    @Injectable()
    class Child extends Base {
      @WithLock('child', once)
      override async run(): Promise<string[]> {
        return [...(await super.run()), ...heldKeys()];
      }
    }
    await expect(keysOfRun(Child)).resolves.toEqual(['base', 'child']);
  });

  test('an override with @WithLock is locked even if the method of the base class is not', async () => {
    class Undecorated {
      async run(): Promise<string[]> {
        return heldKeys();
      }
    }
    @Injectable()
    class Child extends Undecorated {
      @WithLock('child', once)
      override async run(): Promise<string[]> {
        return super.run();
      }
    }
    await expect(keysOfRun(Child)).resolves.toEqual(['child']);
  });

  test('a subclass gets its injected properties, whether declared before or after its locked methods', async () => {
    @Injectable()
    class Child extends Base {
      @Inject('first') readonly first!: string;

      @WithLock('child', once)
      async other(): Promise<string[]> {
        return heldKeys();
      }

      @Inject('second') readonly second!: string;
      @Optional() @Inject('missing') readonly missing?: string;
    }
    @Injectable()
    class Sibling extends Base {
      @Inject('first') readonly first!: string;
    }
    app = await startApp({
      providers: [Child, Sibling, { provide: 'first', useValue: 1 }, { provide: 'second', useValue: 2 }],
    });
    const child = app.get(Child);
    expect(child).toMatchObject({ first: 1, second: 2 });
    await expect(child.run()).resolves.toEqual(['base']);
    await expect(child.other()).resolves.toEqual(['child']);
    expect(app.get(Sibling).first).toBe(1);
    await expect(app.get(Sibling).run()).resolves.toEqual(['base']);
  });

  test('a base class and its subclass can use different instances of the module', async () => {
    @Injectable()
    class Child extends Base {
      @WithLock('child', { ...once, instance: 'other' })
      async other(): Promise<string[]> {
        return heldKeys();
      }
    }
    app = await startApp({
      imports: [RedlockModule.forRoot({ nodes: 'memory', name: 'other' })],
      providers: [Child],
    });
    await expect(app.get(Child).run()).resolves.toEqual(['base']);
    await expect(app.get(Child).other()).resolves.toEqual(['child']);
    await expect(excludes('child', () => app.get(Child).other())).resolves.toBe(false);
  });
});

test('concurrent calls with different keys on one object each hold their own lock', async () => {
  @Injectable()
  class Service {
    #calls = 0;
    readonly name = 'x';
    @WithLock(function (this: Service, id: number) {
      return `${this.name}:${id}`;
    }, once)
    async run(_id: number): Promise<[number, string[]]> {
      return [++this.#calls, heldKeys()];
    }
  }
  app = await startApp({ providers: [Service] });
  const service = app.get(Service);
  await expect(Promise.all([service.run(1), service.run(2)])).resolves.toEqual([
    [1, ['x:1']],
    [2, ['x:2']],
  ]);
});

test('a locked method can be spied on, replaced and restored', async () => {
  app = await startApp({ providers: [Plain] });
  const plain = app.get(Plain);
  const spy = jest.spyOn(plain, 'run');
  await expect(plain.run()).resolves.toEqual(['plain']);
  expect(spy).toHaveBeenCalledTimes(1);
  spy.mockImplementation(async () => ['replaced', ...heldKeys()]);
  await expect(plain.run()).resolves.toEqual(['replaced']);
  spy.mockRestore();
  await expect(plain.run()).resolves.toEqual(['plain']);
});

describe('a key function', () => {
  @Injectable()
  class Service {
    @WithLock((value: unknown) => value as string)
    async run(_value: unknown): Promise<string> {
      return 'never';
    }
    @WithLock(() => {
      throw new Error('no such order');
    })
    async failing(): Promise<string> {
      return 'never';
    }
  }
  test.each([[undefined], [null], [''], [7], [[]], [['a', '']], [{}]])(
    'a call of a locked method rejects with a TypeError when the key function returns %p',
    async (value) => {
      app = await startApp({ providers: [Service] });
      const error = await app
        .get(Service)
        .run(value)
        .catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(TypeError);
      expect(String(error)).toMatch(
        /Expected the key of @WithLock on Service\.run to be a string that is not empty.*or an array of such strings, got /,
      );
      expect(String(error)).toContain(inspect(value));
    },
  );

  test('a call of a locked method rejects with the error that the key function throws', async () => {
    app = await startApp({ providers: [Service] });
    await expect(app.get(Service).failing()).rejects.toThrow('no such order');
  });
});

describe('a missing RedlockModule', () => {
  test('without RedlockModule, the start-up fails with an error that says which module to import', async () => {
    await expect(startPlainApp({ providers: [Plain] })).rejects.toThrow(
      /@WithLock needs RedlockModule\.forRoot\(\{ nodes \}\) in the imports/,
    );
  });

  test('the start-up fails with an error that names the missing module instance that @WithLock needs', async () => {
    @Injectable()
    class Service {
      @WithLock('key', { instance: 'billing' })
      async run(): Promise<void> {}
    }
    await expect(startApp({ providers: [Service] })).rejects.toThrow(
      /@WithLock needs RedlockModule\.forRoot\(\{ nodes, name: 'billing' \}\) in the imports/,
    );
  });

  test('the start-up fails with an error that names the missing module instance that @InjectLockService needs', async () => {
    @Injectable()
    class Service {
      constructor(@InjectLockService('billing') readonly locks: LockService) {}
    }
    await expect(startApp({ providers: [Service] })).rejects.toThrow(
      "@InjectLockService('billing') needs RedlockModule.forRoot({ nodes, name: 'billing' }) in the imports",
    );
  });
});
