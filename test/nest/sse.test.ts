import 'reflect-metadata';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import {
  type CallHandler,
  Controller,
  type ExecutionContext,
  type INestApplication,
  type LoggerService,
  type MessageEvent,
  type NestInterceptor,
  Sse,
  UseFilters,
  UseInterceptors,
} from '@nestjs/common';
import type { AbstractHttpAdapter } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { Observable, of } from 'rxjs';
import request from 'supertest';
import { LockExceptionFilter, LockService, WithLock } from '../../lib/index.js';
import { startApp } from '../support/nest-app.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';

// These tests need a real Redis, because the lock must be refused after Nest has sent the headers of the response. Nest
// sends them one turn of the event loop after it has subscribed to the events. Nodes in memory would refuse earlier.

class Around implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    return next.handle();
  }
}

/** The second attempt makes the wait longer than a turn of the event loop, also on a quick machine. */
const WAITING = { retry: { attempts: 2, delay: 100, jitter: 0, timeout: 30_000 } };
const HELLO: MessageEvent = { data: 'hello' };

@Controller()
@UseFilters(LockExceptionFilter)
class Events {
  @Sse('plain')
  @WithLock('key', WAITING)
  plain(): Observable<MessageEvent> {
    return of(HELLO);
  }

  @Sse('later')
  @WithLock('key', WAITING)
  async later(): Promise<Observable<MessageEvent>> {
    return of(HELLO);
  }

  @Sse('intercepted')
  @UseInterceptors(Around)
  @WithLock('key', WAITING)
  async intercepted(): Promise<Observable<MessageEvent>> {
    return of(HELLO);
  }

  @Sse('plain-skip')
  @WithLock('key', { ...WAITING, onBusy: 'skip' })
  plainSkip(): Observable<MessageEvent> {
    return of(HELLO);
  }

  @Sse('intercepted-skip')
  @UseInterceptors(Around)
  @WithLock('key', { ...WAITING, onBusy: 'skip' })
  async interceptedSkip(): Promise<Observable<MessageEvent> | undefined> {
    return of(HELLO);
  }

  @Sse('later-skip')
  @WithLock('key', { ...WAITING, onBusy: 'skip' })
  async laterSkip(): Promise<Observable<MessageEvent> | undefined> {
    return of(HELLO);
  }
}

let redis: RedisServer;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis.stop());

describe.each<[string, () => AbstractHttpAdapter]>([
  ['Express', () => new ExpressAdapter()],
  ['Fastify', () => new FastifyAdapter()],
])('an @Sse route on %s', (_platform, newAdapter) => {
  let app: INestApplication;
  const errors: unknown[] = [];
  const noop = (): void => undefined;
  // Nest logs an error that it cannot send to the client.
  const logger: LoggerService = { log: noop, warn: noop, error: (error) => errors.push(error) };

  beforeAll(async () => {
    const metadata = { controllers: [Events] };
    app = await startApp(metadata, { nodes: redis.url }, { adapter: newAdapter(), logger });
    await app.listen(0, '127.0.0.1');
  });
  afterAll(() => app.close());

  const ERROR_EVENT = /event: error\nid: 1\ndata: Internal server error\n\n$/;

  test.each([
    ['answers 200 with an error event when it returns an Observable', 'plain', 200, ERROR_EVENT],
    [
      'answers with the status of the exception filter when it returns a Promise',
      'later',
      409,
      /"code":"LOCK_HELD"/,
    ],
    [
      'answers 200 with an error event when it returns a Promise and has an interceptor',
      'intercepted',
      200,
      ERROR_EVENT,
    ],
    [
      "answers 200 without an event when it returns an Observable and has onBusy 'skip'",
      'plain-skip',
      200,
      /^\s*$/,
    ],
    [
      "answers 200 with an empty event when it returns a Promise and has onBusy 'skip' and an interceptor",
      'intercepted-skip',
      200,
      /^\s*id: 1\s*$/,
    ],
    [
      "answers 500 when it returns a Promise and has onBusy 'skip'",
      'later-skip',
      500,
      /Internal server error/,
    ],
  ])('while its lock is held, an @Sse route %s', async (_name, path, status, body) => {
    const server = app.getHttpServer() as Parameters<typeof request>[0];
    await using lock = await app.get(LockService).acquire('key');
    const answer = await request(server).get(`/${path}`);
    expect(answer.status).toBe(status);
    expect(answer.text).toMatch(body);
    lock.assertHeld();
  });

  test('an @Sse route sends its event when the lock is free', async () => {
    const server = app.getHttpServer() as Parameters<typeof request>[0];
    for (const path of ['plain', 'later', 'intercepted', 'plain-skip', 'later-skip', 'intercepted-skip']) {
      // A run may release its lock after the client has the answer.
      await until(async () => !(await app.get(LockService).inspect('key')).held);
      const { text } = await request(server).get(`/${path}`).expect(200);
      expect(text).toContain('data: hello');
    }
  });
});
