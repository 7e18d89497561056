import 'reflect-metadata';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import {
  Controller,
  Get,
  Inject,
  Injectable,
  type INestApplication,
  type INestApplicationContext,
  Module,
  Scope,
} from '@nestjs/common';
import { ContextIdFactory, type ContextId, type HostComponentInfo, NestFactory, REQUEST } from '@nestjs/core';
import { Test } from '@nestjs/testing';
import type { Request } from 'express';
import { ModuleMocker } from 'jest-mock';
import { Observable, of } from 'rxjs';
import request from 'supertest';
import {
  currentLock,
  LockHeldError,
  LockInterceptor,
  LockService,
  RedlockModule,
  WithLock,
} from '../../lib/index.js';
import { startApp } from '../support/nest-app.js';

// test/decorator/with-lock.providers.test.ts tests the scopes, factories, lazy modules and inheritance.

@Injectable()
class Mails {
  async send(): Promise<string> {
    return 'sent';
  }
}

@Injectable()
class Service {
  constructor(readonly mails: Mails) {}

  @WithLock('run', { retry: false })
  async run(): Promise<string> {
    return `${await this.mails.send()} under ${currentLock()?.keys}`;
  }

  @WithLock('watch', { retry: false })
  watch(): Observable<boolean> {
    return of(currentLock('watch')?.isHeld() ?? false);
  }
}

const memory = (): ReturnType<typeof RedlockModule.forRoot> => RedlockModule.forRoot({ nodes: 'memory' });

describe('durable providers', () => {
  const built: string[] = [];

  @Injectable({ scope: Scope.REQUEST, durable: true })
  class OfTenant {
    constructor(@Inject(REQUEST) private readonly tenant: { readonly tenant: string }) {
      built.push(tenant.tenant);
    }

    @WithLock(function (this: OfTenant) {
      return `tenant:${this.tenant.tenant}`;
    })
    async run(): Promise<string> {
      return String(currentLock()?.keys);
    }
  }

  @Controller()
  class Routes {
    constructor(private readonly service: OfTenant) {}

    @Get()
    @WithLock('route')
    async run(): Promise<string> {
      return this.service.run();
    }
  }

  /** Each tenant has a sub-tree of providers, as in the documentation of Nest. */
  const tenants = new Map<string, ContextId>();
  const strategy = {
    attach(contextId: ContextId, incoming: Request) {
      const tenant = incoming.headers['x-tenant'] as string;
      const tree = tenants.get(tenant) ?? ContextIdFactory.create();
      tenants.set(tenant, tree);
      return {
        resolve: (info: HostComponentInfo) => (info.isTreeDurable ? tree : contextId),
        payload: { tenant },
      };
    },
  };

  test('durable providers lock their methods, and are built once for each tenant', async () => {
    ContextIdFactory.apply(strategy);
    const app = await startApp({ controllers: [Routes], providers: [OfTenant] });
    await app.listen(0, '127.0.0.1');
    const get = (tenant: string): request.Test =>
      request(app.getHttpServer() as Parameters<typeof request>[0])
        .get('/')
        .set('x-tenant', tenant);
    await get('a').expect(200, 'tenant:a');
    await get('b').expect(200, 'tenant:b');
    await get('a').expect(200, 'tenant:a');
    expect(built).toEqual(['a', 'b']);
    await app.close();
  });
});

describe('an application without a server', () => {
  @Module({ imports: [memory()], providers: [Service, Mails] })
  class AppModule {}

  test('an application without a server acquires locks, and marks held locks as lost when it closes', async () => {
    const context = await NestFactory.createApplicationContext(AppModule, { logger: false });
    await expect(context.get(Service).run()).resolves.toBe('sent under run');
    const lock = await context.get(LockService).acquire('key');
    await context.close();
    expect([lock.state, lock.signal.aborted]).toEqual(['lost', true]);
    await expect(context.get(Service).run()).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  });

  test('two applications of the same classes have separate locks', async () => {
    const contexts: INestApplicationContext[] = await Promise.all(
      [1, 2].map(() => NestFactory.createApplicationContext(AppModule, { logger: false })),
    );
    const [one, two] = contexts as [INestApplicationContext, INestApplicationContext];
    const lock = await one.get(LockService).acquire('run');
    await expect(one.get(Service).run()).rejects.toBeInstanceOf(LockHeldError);
    await expect(two.get(Service).run()).resolves.toBe('sent under run');
    await lock.release();
    await two.close();
    await expect(one.get(Service).run()).resolves.toBe('sent under run');
    await one.close();
  });
});

describe('in unit tests', () => {
  let app: INestApplication | undefined;
  afterEach(async () => {
    jest.restoreAllMocks();
    await app?.close();
    app = undefined;
  });

  test('the dependencies of a class with locked methods can be overridden', async () => {
    const module = await Test.createTestingModule({ imports: [memory()], providers: [Service, Mails] })
      .overrideProvider(Mails)
      .useValue({ send: async () => 'faked' })
      .compile();
    app = await module.createNestApplication().init();
    await expect(app.get(Service).run()).resolves.toBe('faked under run');
  });

  test('a class with locked methods can be overridden by a value without locks', async () => {
    const module = await Test.createTestingModule({ imports: [memory()], providers: [Service, Mails] })
      .overrideProvider(Service)
      .useValue({ run: async () => 'stubbed' })
      .compile();
    app = await module.createNestApplication().init();
    await expect(app.get(Service).run()).resolves.toBe('stubbed');
  });

  test('LockService can be overridden, and methods with @WithLock keep their locks', async () => {
    const module = await Test.createTestingModule({ imports: [memory()], providers: [Service, Mails] })
      .overrideProvider(LockService)
      .useValue({ tryAcquire: async () => null })
      .compile();
    app = await module.createNestApplication().init();
    await expect(app.get(LockService).tryAcquire('key')).resolves.toBeNull();
    await expect(app.get(Service).run()).resolves.toBe('sent under run');
  });

  test('a locked method can be spied on, replaced and restored on the prototype', async () => {
    const spy = jest.spyOn(Service.prototype, 'run');
    app = await startApp({ providers: [Service, Mails] });
    await expect(app.get(Service).run()).resolves.toBe('sent under run');
    spy.mockResolvedValueOnce('replaced');
    await expect(app.get(Service).run()).resolves.toBe('replaced');
    expect(spy).toHaveBeenCalledTimes(2);
    spy.mockRestore();
    const lock = await app.get(LockService).acquire('run');
    await expect(app.get(Service).run()).rejects.toBeInstanceOf(LockHeldError);
    await lock.release();
  });

  test('`useMocker` mocks no dependency of @WithLock when RedlockModule is imported', async () => {
    const asked: unknown[] = [];
    const module = await Test.createTestingModule({ imports: [memory()], providers: [Service] })
      .useMocker((token) => {
        asked.push(token);
        return { send: async () => 'mocked' };
      })
      .compile();
    app = await module.createNestApplication().init();
    await expect(app.get(Service).run()).resolves.toBe('mocked under run');
    expect(asked).toEqual([Mails]);
  });

  describe('a locked method with a mocked LockInterceptor', () => {
    const mocker = new ModuleMocker(globalThis);
    /** Copied from the documentation of Nest. */
    const automatic = (token: unknown): unknown => {
      const Mock = mocker.generateFromMetadata(mocker.getMetadata(token)!) as new () => unknown;
      return new Mock();
    };
    test.each<[string, (token: unknown) => unknown]>([
      ['an automatic mock of Jest', automatic],
      ['an empty object', () => ({})],
    ])(
      'a locked method rejects with an error that names LockInterceptor when the mock is %s',
      async (_kind, mock) => {
        const module = await Test.createTestingModule({ providers: [Service] })
          .useMocker(mock)
          .compile();
        const service = module.get(Service);
        expect(module.get(LockInterceptor)).not.toBeInstanceOf(LockInterceptor);
        const message =
          /Service\.run has @WithLock, but its LockInterceptor was replaced .*RedlockTestingModule\.forRoot\(\)/;
        await expect(service.run()).rejects.toThrow(message);
        await expect(service.run()).rejects.toMatchObject({ code: 'LOCK_NOT_INJECTED' });
        expect(() => service.watch()).toThrow('Service.watch has @WithLock');
      },
    );
  });
});
