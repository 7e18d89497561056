import 'reflect-metadata';
import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import {
  applyDecorators,
  type ArgumentsHost,
  type CanActivate,
  Catch,
  Controller,
  type ExceptionFilter,
  Get,
  Header,
  Injectable,
  type INestApplication,
  type MessageEvent,
  Param,
  Redirect,
  SetMetadata,
  Sse,
  StreamableFile,
  UseFilters,
  UseGuards,
  type ExecutionContext,
} from '@nestjs/common';
import { type AbstractHttpAdapter, Reflector } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { ApiOkResponse, ApiOperation, ApiParam, DocumentBuilder, SwaggerModule } from '@nestjs/swagger';
import type { Response } from 'express';
import { Readable } from 'node:stream';
import { of, type Observable } from 'rxjs';
import request from 'supertest';
import { currentLock, LockHeldError, LockService, WithLock } from '../../lib/index.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { startApp } from '../support/nest-app.js';
import { type Named, nameOf, permutations, stack } from '../support/stacking.js';

// test/decorator/with-lock.stacking.slow.test.ts tests guards, pipes and interceptors.

const acquire = jest.spyOn(MemoryStore.prototype, 'acquire');
const calls: string[] = [];

@Injectable()
class Deny implements CanActivate {
  constructor(private readonly reflector: Reflector) {}

  canActivate(context: ExecutionContext): boolean {
    return this.reflector.get('role', context.getHandler()) !== 'nobody';
  }
}

@Catch(LockHeldError)
class Busy implements ExceptionFilter<LockHeldError> {
  catch(error: LockHeldError, host: ArgumentsHost): void {
    host.switchToHttp().getResponse<Response>().status(409).send(error.keys);
  }
}

const LOCK: Named = [
  'WithLock',
  () => WithLock((id: string) => `http:${id}`, { retry: false }) as MethodDecorator,
];
const GUARD: Named = ['UseGuards', () => UseGuards(Deny)];

/** One controller for each order of the decorators. */
function controllersOf(path: string, orders: readonly Named[][], run: () => (id: string) => unknown) {
  return orders.map((order, index) => {
    @Controller(`${path}/${index}`)
    class Routes {}
    Object.defineProperty(Routes.prototype, 'run', { value: run(), writable: true, configurable: true });
    Param('id')(Routes.prototype, 'run', 0);
    Reflect.defineMetadata('design:paramtypes', [String], Routes.prototype, 'run');
    const decorators = order.map(([, decorator]) => decorator(':id'));
    stack(Routes, 'run', decorators);
    return Routes;
  });
}

const documented = permutations<Named>([
  ['Get', (path) => Get(path)],
  LOCK,
  ['UseFilters', () => UseFilters(Busy)],
  ['ApiOperation', () => ApiOperation({ summary: 'what it does', operationId: 'run' })],
  [
    'Api...',
    () => applyDecorators(ApiOkResponse({ type: String, description: 'keys' }), ApiParam({ name: 'id' })),
  ],
]);
const denied = permutations<Named>([
  ['Get', (path) => Get(path)],
  LOCK,
  GUARD,
  ['SetMetadata', () => SetMetadata('role', 'nobody')],
]);
const streams = permutations<Named>([['Sse', (path) => Sse(path)], LOCK, GUARD]);
const files = permutations<Named>([
  ['Get', (path) => Get(path)],
  LOCK,
  ['Header', () => Header('content-disposition', 'attachment')],
]);
const redirects = permutations<Named>([['Get', (path) => Get(path)], LOCK, ['Redirect', () => Redirect()]]);

const keys = (): string => String(currentLock()?.keys);
const json = () =>
  async function run(id: string): Promise<string> {
    calls.push(id);
    return keys();
  };
const sse = () =>
  async function run(id: string): Promise<Observable<MessageEvent>> {
    calls.push(id);
    return of({ data: keys() });
  };
const file = () =>
  async function run(_id: string): Promise<StreamableFile> {
    return new StreamableFile(Readable.from([keys()]), { type: 'text/plain' });
  };
const redirect = () =>
  async function run(id: string): Promise<{ url: string; statusCode: number }> {
    return { url: `https://elsewhere.example/${id}`, statusCode: 303 };
  };

@Controller('plain')
class Undecorated {
  @Get(':id')
  @ApiOperation({ summary: 'what it does', operationId: 'run' })
  @ApiOkResponse({ type: String, description: 'keys' })
  @ApiParam({ name: 'id' })
  async run(@Param('id') id: string): Promise<string> {
    return id;
  }
}

@Controller('whole')
@UseGuards(Deny)
class GuardedAsAWhole {
  @Get('below')
  @WithLock('whole')
  @SetMetadata('role', 'nobody')
  async below(): Promise<void> {
    calls.push('below');
  }

  @Get('above')
  @SetMetadata('role', 'nobody')
  @WithLock('whole')
  async above(): Promise<void> {
    calls.push('above');
  }
}

/** Several decorators in one, @WithLock among them, as many teams write them. */
function Locked(key: string): MethodDecorator {
  return applyDecorators(SetMetadata('role', 'nobody'), WithLock(key) as MethodDecorator, UseGuards(Deny));
}

@Controller('composed')
class Composed {
  @Locked('composed')
  @Get('below')
  async below(): Promise<void> {
    calls.push('below');
  }

  @Get('above')
  @Locked('composed')
  async above(): Promise<void> {
    calls.push('above');
  }
}

describe.each<[string, () => AbstractHttpAdapter]>([
  ['Express', () => new ExpressAdapter()],
  ['Fastify', () => new FastifyAdapter()],
])('on %s', (_platform, newAdapter) => {
  let app: INestApplication;

  beforeAll(async () => {
    const metadata = {
      controllers: [
        ...controllersOf('documented', documented, json),
        ...controllersOf('denied', denied, json),
        ...controllersOf('sse', streams, sse),
        ...controllersOf('file', files, file),
        ...controllersOf('redirect', redirects, redirect),
        Undecorated,
        GuardedAsAWhole,
        Composed,
      ],
    };
    app = await startApp(metadata, { nodes: 'memory' }, { adapter: newAdapter() });
    await app.listen(0, '127.0.0.1');
  });
  afterEach(() => {
    calls.length = 0;
    acquire.mockClear();
  });
  afterAll(() => app.close());

  const get = (path: string): request.Test =>
    request(app.getHttpServer() as Parameters<typeof request>[0]).get(`/${path}`);
  const cases = (path: string, orders: readonly Named[][]): [string, string][] =>
    orders.map((order, index) => [nameOf(order), `${path}/${index}/one`]);

  describe('guards, with the decorators in every order', () => {
    test.each([
      ...cases('denied', denied),
      ['a guard of the class, and @WithLock above @SetMetadata', 'whole/below'],
      ['a guard of the class, and @WithLock below @SetMetadata', 'whole/above'],
      ['@WithLock inside a composed decorator above @Get', 'composed/below'],
      ['@WithLock inside a composed decorator below @Get', 'composed/above'],
    ])('a request that a guard denies gets 403, runs no route and locks nothing: %s', async (_name, path) => {
      await get(path).expect(403);
      expect(calls).toEqual([]);
      expect(acquire).not.toHaveBeenCalled();
    });
  });

  describe('filters and swagger, with the decorators in every order', () => {
    test.each(cases('documented', documented))(
      'the exception filter of a route with %s answers while the lock is held',
      async (_name, path) => {
        await expect(get(path)).resolves.toMatchObject({ status: 200, text: 'http:one' });
        const lock = await app.get(LockService).acquire('http:one');
        await expect(get(path)).resolves.toMatchObject({ status: 409, body: ['http:one'] });
        await lock.release();
      },
    );

    test('the Swagger document of a route is the same with and without @WithLock', () => {
      const { paths } = SwaggerModule.createDocument(app, new DocumentBuilder().build());
      const { tags: _tags, ...plain } = paths['/plain/{id}']!.get!;
      expect(plain).toMatchObject({ summary: 'what it does', operationId: 'run' });
      const operations = documented.map((_order, index) => {
        const { tags, ...operation } = paths[`/documented/${index}/{id}`]!.get!;
        expect(tags).toEqual(['Routes']);
        return operation;
      });
      expect(operations).toEqual(documented.map(() => plain));
    });
  });

  describe('server-sent events, with the decorators in every order', () => {
    test.each(cases('sse', streams))(
      'a route with %s makes its server-sent event under the lock',
      async (_name, path) => {
        const { text } = await get(path)
          .expect(200)
          .expect('content-type', /^text\/event-stream/);
        expect(text).toContain('data: http:one');
      },
    );
  });

  describe('files, with the decorators in every order', () => {
    test.each(cases('file', files))(
      'a route with %s makes its file under the lock, and keeps the header of the file',
      async (_name, path) => {
        const { status, body, headers } = await get(path).responseType('blob');
        expect([status, String(body), headers['content-disposition']]).toEqual([
          200,
          'http:one',
          'attachment',
        ]);
      },
    );
  });

  describe('redirects, with the decorators in every order', () => {
    test.each(cases('redirect', redirects))('a route with %s redirects the client', async (_name, path) => {
      const { status, headers } = await get(path);
      expect([status, headers['location']]).toEqual([303, 'https://elsewhere.example/one']);
    });
  });
});
