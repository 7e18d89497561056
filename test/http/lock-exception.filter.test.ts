import 'reflect-metadata';
import { ApolloDriver, type ApolloDriverConfig } from '@nestjs/apollo';
import { afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import {
  Controller,
  Get,
  Injectable,
  type INestApplication,
  type ModuleMetadata,
  Param,
  Res,
  UseFilters,
} from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import { Args, GraphQLModule, Query, Resolver } from '@nestjs/graphql';
import { type ClientProxy, ClientProxyFactory, MessagePattern, Transport } from '@nestjs/microservices';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { WsAdapter } from '@nestjs/platform-ws';
import { Test } from '@nestjs/testing';
import { SubscribeMessage, WebSocketGateway } from '@nestjs/websockets';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import { firstValueFrom } from 'rxjs';
import { WebSocket } from 'ws';
import { StaleTokenError } from '../../lib/fencing/index.js';
import {
  LockExceptionFilter,
  LockHeldError,
  type LockProblem,
  LockService,
  RedlockError,
  WithLock,
} from '../../lib/index.js';
import { RedlockTestingModule, TestLocks } from '../../lib/testing/index.js';
import { freePort } from '../support/free-port.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { LogLines } from '../support/log-lines.js';

const locks = new TestLocks({ wait: false });
const log = new LogLines(LockExceptionFilter.name);

afterEach(() => {
  locks.reset();
  log.lines.length = 0;
});

const HOUR_MS = 3_600_000;

/** Two processes hold permits. The error gives the remaining time of the permit that ends first. */
const permitsTaken = new LockHeldError(['tenant-7'], 'secret-host:1', 1_200, {
  kind: { mode: 'permits', permits: 2 },
  holders: [1_200, 60_000].map((remaining, slot) => ({
    id: `${slot}`,
    owner: `secret-host:${slot}`,
    since: new Date(),
    remaining,
    fencingToken: 1,
    mode: 'permits',
    slot,
  })),
});

/** A service whose method fails with the error that its argument names. */
@Injectable()
class Work {
  constructor(private readonly service: LockService) {}

  async do(how: string): Promise<string> {
    if (how === 'held-forever') throw new LockHeldError(['tenant-7'], 'secret-host:1', Infinity);
    if (how === 'held-for-a-moment') throw new LockHeldError(['tenant-7'], 'secret-host:1', 0.2);
    if (how === 'stale-token') throw new StaleTokenError(['tenant-7'], 7, 8);
    if (how === 'permits-taken') throw permitsTaken;
    if (how === 'upgrade') throw new RedlockError('LOCK_UPGRADE', 'tenant-7');
    if (how === 'not-injected') throw new RedlockError('LOCK_NOT_INJECTED', 'tenant-7');
    if (how === 'no-leader') throw new RedlockError('NO_LEADER', 'tenant-7');
    if (how === 'other') throw new Error('another error');
    if (how === 'unavailable') locks.fail({ error: new Error('secret-host:6379 is down') });
    if (how === 'held') await locks.hold('tenant-7', { owner: 'secret-host:1', ttl: HOUR_MS });
    return this.service.withLock('tenant-7', async () => {
      if (how === 'lost') locks.lose('tenant-7');
      return 'done';
    });
  }
}

const answers: [how: string, problem: LockProblem][] = [
  [
    'held',
    {
      statusCode: 409,
      message: 'Somebody else is working on this; try again later',
      code: 'LOCK_HELD',
      // The remaining time of one hour, in seconds. A busy machine may use up to 50 seconds of the hour.
      retryAfter: expect.closeTo(3_600, -2) as never,
    },
  ],
  [
    'held-for-a-moment',
    { statusCode: 409, message: expect.any(String) as never, code: 'LOCK_HELD', retryAfter: 1 },
  ],
  ['held-forever', { statusCode: 409, message: expect.any(String) as never, code: 'LOCK_HELD' }],
  [
    'unavailable',
    {
      statusCode: 503,
      message: 'This cannot be locked at the moment; try again later',
      code: 'LOCK_UNAVAILABLE',
      retryAfter: 1,
    },
  ],
  [
    'lost',
    {
      statusCode: 409,
      message: 'The lock on this was lost before the work was done; check the result',
      code: 'LOCK_LOST',
    },
  ],
  [
    'stale-token',
    { statusCode: 409, message: 'Somebody else has changed this in the meantime', code: 'TOKEN_STALE' },
  ],
  [
    'permits-taken',
    { statusCode: 409, message: expect.any(String) as never, code: 'LOCK_HELD', retryAfter: 2 },
  ],
  ['upgrade', { statusCode: 500, message: 'Internal server error', code: 'LOCK_UPGRADE' }],
  ['no-leader', { statusCode: 500, message: 'Internal server error', code: 'NO_LEADER' }],
  ['not-injected', { statusCode: 500, message: 'Internal server error', code: 'LOCK_NOT_INJECTED' }],
];

async function startApp(
  { providers = [], ...metadata }: ModuleMetadata,
  adapter: ExpressAdapter | FastifyAdapter = new ExpressAdapter(),
): Promise<INestApplication> {
  const module = await Test.createTestingModule({
    ...metadata,
    imports: [RedlockTestingModule.forRoot({ locks }), ...(metadata.imports ?? [])],
    providers: [Work, { provide: APP_FILTER, useClass: LockExceptionFilter }, ...providers],
  })
    .setLogger(log)
    .compile();
  const app = module.createNestApplication(adapter, { forceCloseConnections: true });
  cleanUpAfterTests(() => app.close());
  return app;
}

describe.each([
  ['Express', () => new ExpressAdapter()],
  ['Fastify', () => new FastifyAdapter()],
])('LockExceptionFilter over HTTP on %s', (_name, adapter) => {
  @Controller()
  class Routes {
    constructor(private readonly work: Work) {}

    @Get('begun')
    async begun(@Res() response: { raw?: NodeJS.WritableStream } & NodeJS.WritableStream): Promise<void> {
      (response.raw ?? response).write('begun');
      await this.work.do('unavailable');
    }

    @Get(':how')
    do(@Param('how') how: string): Promise<string> {
      return this.work.do(how);
    }
  }

  let url: string;

  beforeAll(async () => {
    const app = await startApp({ controllers: [Routes] }, adapter());
    await app.listen(0, '127.0.0.1');
    url = await app.getUrl();
  });

  test.each(answers)(
    'LockExceptionFilter answers the failed HTTP call "%s" with a JSON problem',
    async (how, problem) => {
      const response = await fetch(`${url}/${how}`);
      expect(response.status).toBe(problem.statusCode);
      expect(response.headers.get('content-type')).toMatch('application/json');
      const body = await response.text();
      const told = JSON.parse(body) as LockProblem;
      expect(told).toEqual(problem);
      expect(response.headers.get('retry-after')).toBe(told.retryAfter?.toString() ?? null);
      expect(body).not.toMatch(/secret|tenant/);
    },
  );

  test('LockExceptionFilter changes neither results nor errors from outside this library', async () => {
    await expect(fetch(`${url}/other`).then((response) => response.status)).resolves.toBe(500);
    await expect(fetch(`${url}/well`).then((response) => response.text())).resolves.toBe('done');
  });

  test('LockExceptionFilter ends a response if a part of the body was sent before the error', async () => {
    await expect(fetch(`${url}/begun`).then((response) => response.text())).resolves.toBe('begun');
  });

  test('LockExceptionFilter logs why a lock is unavailable, and logs nothing for a held lock', async () => {
    await fetch(`${url}/held`);
    expect(log.lines).toEqual([]);
    await fetch(`${url}/unavailable`);
    expect(log.of('warn')).toEqual([expect.stringContaining('secret-host:6379 is down')]);
  });
});

test('a subclass of LockExceptionFilter can change the answer, even without dependency injection', async () => {
  class Telling extends LockExceptionFilter {
    protected override problem(error: RedlockError): LockProblem {
      return { ...super.problem(error), message: error.message };
    }
  }
  @Controller()
  @UseFilters(new Telling())
  class Routes {
    constructor(private readonly work: Work) {}

    @Get()
    @WithLock('route')
    do(): Promise<string> {
      return this.work.do('held');
    }
  }
  const app = await startApp({ controllers: [Routes] });
  await app.listen(0, '127.0.0.1');
  const response = await fetch(await app.getUrl());
  await expect(response.json()).resolves.toMatchObject({ message: expect.stringContaining('secret-host:1') });
});

describe('LockExceptionFilter in GraphQL', () => {
  @Resolver()
  class Queries {
    constructor(private readonly work: Work) {}

    @Query(() => String)
    do(@Args('how') how: string): Promise<string> {
      return this.work.do(how);
    }
  }

  let url: string;

  beforeAll(async () => {
    const app = await startApp({
      imports: [
        GraphQLModule.forRoot<ApolloDriverConfig>({
          driver: ApolloDriver,
          autoSchemaFile: true,
          includeStacktraceInErrorResponses: false,
        }),
      ],
      providers: [Queries],
    });
    await app.listen(0, '127.0.0.1');
    url = await app.getUrl();
  });

  test.each(answers)(
    'LockExceptionFilter answers the failed GraphQL call "%s" with a GraphQL error',
    async (how, { message, ...extensions }) => {
      const response = await fetch(`${url}/graphql`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ query: `{ do(how: "${how}") }` }),
      });
      const body = await response.text();
      expect(JSON.parse(body)).toMatchObject({ errors: [{ message, path: ['do'], extensions }] });
      expect(body).not.toMatch(/secret|tenant/);
    },
  );
});

describe('LockExceptionFilter in a microservice', () => {
  @Controller()
  class Messages {
    constructor(private readonly work: Work) {}

    @MessagePattern('do')
    do(how: string): Promise<string> {
      return this.work.do(how);
    }
  }

  let client: ClientProxy;

  beforeAll(async () => {
    const options = { host: '127.0.0.1', port: await freePort() };
    const app = await startApp({ controllers: [Messages] });
    app.connectMicroservice({ transport: Transport.TCP, options }, { inheritAppConfig: true });
    await app.startAllMicroservices();
    client = ClientProxyFactory.create({ transport: Transport.TCP, options });
    cleanUpAfterTests(async () => client.close());
  });

  test.each(answers)(
    'LockExceptionFilter answers the failed microservice call "%s" with an error',
    async (how, problem) => {
      const error: unknown = await firstValueFrom(client.send('do', how)).catch((reason: unknown) => reason);
      expect(error).toEqual({ status: 'error', ...problem });
    },
  );
});

describe('LockExceptionFilter in a WebSocket gateway', () => {
  @WebSocketGateway()
  @UseFilters(LockExceptionFilter)
  class Gateway {
    constructor(private readonly work: Work) {}

    @SubscribeMessage('do')
    do(_client: unknown, how: string): Promise<string> {
      return this.work.do(how);
    }
  }

  let socket: WebSocket;

  beforeAll(async () => {
    const app = await startApp({ providers: [Gateway] });
    app.useWebSocketAdapter(new WsAdapter(app));
    await app.listen(0, '127.0.0.1');
    const { port } = app.getHttpServer().address() as AddressInfo;
    socket = new WebSocket(`ws://127.0.0.1:${port}`);
    cleanUpAfterTests(async () => socket.terminate());
    await once(socket, 'open');
  });

  test.each(answers)(
    'LockExceptionFilter answers the failed WebSocket call "%s" with an "exception" event',
    async (how, problem) => {
      const received = once(socket, 'message') as Promise<[Buffer]>;
      socket.send(JSON.stringify({ event: 'do', data: how }));
      const [text] = await received;
      expect(JSON.parse(text.toString())).toEqual({
        event: 'exception',
        data: { status: 'error', ...problem },
      });
    },
  );

  test('LockExceptionFilter emits the event "exception" to a Socket.IO client', () => {
    const sent: unknown[] = [];
    const client = { emit: (...message: unknown[]) => sent.push(message) };
    const host = { getType: () => 'ws', switchToWs: () => ({ getClient: () => client }) };
    new LockExceptionFilter().catch(new LockHeldError(['a'], 'b', 1_001), host as never);
    expect(sent).toEqual([['exception', expect.objectContaining({ code: 'LOCK_HELD', retryAfter: 2 })]]);
  });
});

test('LockExceptionFilter throws the error again for an unknown transport', () => {
  const error = new LockHeldError(['a'], 'b', 1);
  const host = { getType: () => 'bot' };
  expect(() => new LockExceptionFilter().catch(error, host as never)).toThrow(error);
});
