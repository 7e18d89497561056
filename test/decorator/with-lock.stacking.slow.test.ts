import 'reflect-metadata';
import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import {
  BadRequestException,
  Body,
  type CallHandler,
  type CanActivate,
  Controller,
  type ExecutionContext,
  Get,
  Header,
  HttpCode,
  Injectable,
  type INestApplication,
  type NestInterceptor,
  Param,
  ParseIntPipe,
  type PipeTransform,
  Post,
  Query,
  type Type,
  UseGuards,
  UseInterceptors,
  UsePipes,
} from '@nestjs/common';
import { Cron, Interval, ScheduleModule, SchedulerRegistry, Timeout } from '@nestjs/schedule';
import { map, type Observable } from 'rxjs';
import request from 'supertest';
import { currentLock, LockHeldError, LockService, WithLock } from '../../lib/index.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { startApp } from '../support/nest-app.js';
import { Overlap } from '../support/overlap.js';
import { type Named, nameOf, permutations, stack } from '../support/stacking.js';
import { until } from '../support/until.js';

const acquire = jest.spyOn(MemoryStore.prototype, 'acquire');
/** Number of requested locks. One call of `acquire` gets all requests of one turn of the event loop. */
const countAsked = (): number => acquire.mock.calls.flatMap(([requests]) => requests).length;

let app: INestApplication;

describe('routes, with the decorators in every order', () => {
  @Injectable()
  class Deny implements CanActivate {
    canActivate(context: ExecutionContext): boolean {
      return !('deny' in context.switchToHttp().getRequest<{ query: object }>().query);
    }
  }
  @Injectable()
  class Wrap implements NestInterceptor {
    intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
      return next.handle().pipe(map((result: unknown) => ({ wrapped: result })));
    }
  }
  @Injectable()
  class Upper implements PipeTransform {
    transform(value: unknown): unknown {
      if (value === 'bad') throw new BadRequestException();
      return typeof value === 'string' ? value.toUpperCase() : value;
    }
  }

  const overlap = new Overlap();
  const calls: unknown[][] = [];

  const retry = { delay: 1, jitter: 0 };
  const LOCK: Named = [
    'WithLock',
    () => WithLock((id: number) => `route:${id}`, { retry }) as MethodDecorator,
  ];
  const getOrders = permutations<Named>([
    ['Get', (path) => Get(`${path}/:id`)],
    LOCK,
    ['UseGuards', () => UseGuards(Deny)],
    ['UseInterceptors', () => UseInterceptors(Wrap)],
    ['HttpCode', () => HttpCode(202)],
  ]);
  const postOrders = permutations<Named>([
    ['Post', (path) => Post(`${path}/:id`)],
    LOCK,
    ['UsePipes', () => UsePipes(Upper)],
    ['Header', () => Header('x-seen', 'yes')],
    ['UseGuards', () => UseGuards(Deny)],
  ]);

  const controllers = [
    ...getOrders.map((order, index) => {
      @Controller('get')
      class Routes {
        async run(
          @Param('id', ParseIntPipe) id: number,
          @Query('q', new Upper()) q: string,
        ): Promise<unknown> {
          calls.push([id, q]);
          await overlap.work();
          return { id, q, keys: currentLock()?.keys };
        }
      }
      const decorators = order.map(([, decorator]) => decorator(String(index)));
      stack(Routes, 'run', decorators);
      return Routes;
    }),
    ...postOrders.map((order, index) => {
      @Controller('post')
      class Routes {
        async run(@Param('id', ParseIntPipe) id: number, @Body('text') text: string): Promise<unknown> {
          calls.push([id, text]);
          await overlap.work();
          return { id, text, keys: currentLock()?.keys };
        }
      }
      const decorators = order.map(([, decorator]) => decorator(String(index)));
      stack(Routes, 'run', decorators);
      return Routes;
    }),
  ];

  beforeAll(async () => {
    app = await startApp({ controllers });
    // supertest would open and close a server for every request if none listened.
    await app.listen(0, '127.0.0.1');
  });
  afterEach(() => {
    overlap.most = 0;
    calls.length = 0;
    acquire.mockClear();
  });
  afterAll(() => app.close());

  const server = (): Parameters<typeof request>[0] => app.getHttpServer() as Parameters<typeof request>[0];

  test.each(getOrders.map((order, index) => [nameOf(order), index] as const))(
    '%s: concurrent requests wait for each other, and a request that a guard or a pipe rejects acquires no lock',
    async (_name, index) => {
      const get = (path: string): request.Test => request(server()).get(`/get/${index}/${path}`);
      const answer = { wrapped: { id: 7, q: 'ABC', keys: ['route:7'] } };

      await Promise.all([get('7?q=abc').expect(202, answer), get('7?q=abc').expect(202, answer)]);
      expect(calls).toHaveLength(2);
      expect(overlap.most).toBe(1);

      acquire.mockClear();
      calls.length = 0;
      await get('7?q=abc&deny=1').expect(403);
      await get('seven?q=abc').expect(400);
      await get('7?q=bad').expect(400);
      expect(calls).toEqual([]);
      expect(acquire).not.toHaveBeenCalled();
    },
  );

  test.each(postOrders.map((order, index) => [nameOf(order), index] as const))(
    '%s: concurrent requests wait for each other, and a request that a guard or a pipe rejects acquires no lock',
    async (_name, index) => {
      const post = (path: string, text: string): request.Test =>
        request(server()).post(`/post/${index}/${path}`).send({ text });
      const answer = { id: 7, text: 'ABC', keys: ['route:7'] };

      await Promise.all([
        post('7', 'abc').expect(201, answer).expect('x-seen', 'yes'),
        post('7', 'abc').expect(201, answer),
      ]);
      expect(calls).toHaveLength(2);
      expect(overlap.most).toBe(1);

      acquire.mockClear();
      calls.length = 0;
      await post('7?deny=1', 'abc').expect(403);
      await post('seven', 'abc').expect(400);
      await post('7', 'bad').expect(400);
      expect(calls).toEqual([]);
      expect(acquire).not.toHaveBeenCalled();
    },
  );

  test('concurrent requests overlap without @WithLock (control)', async () => {
    @Controller()
    class Unlocked {
      @Get('unlocked')
      async run(): Promise<void> {
        await overlap.work(300);
      }
    }
    const unlocked = await startApp({ controllers: [Unlocked] });
    await unlocked.listen(0, '127.0.0.1');
    const get = (): request.Test =>
      request(unlocked.getHttpServer() as Parameters<typeof request>[0]).get('/unlocked');
    await Promise.all([get(), get(), get(), get()]);
    await unlocked.close();
    expect(overlap.most).toBeGreaterThan(1);
  });
});

describe('scheduled methods, with the decorators in every order', () => {
  afterEach(() => app.close());

  /** A class with a method that is locked and scheduled, with the decorators in this order. */
  function scheduled(order: readonly Named[], overlap: Overlap): Type<{ run(): Promise<void> }> {
    @Injectable()
    class Jobs {
      async run(): Promise<void> {
        if (!currentLock('job')?.isHeld()) throw new Error('not under its lock');
        await overlap.work(100);
      }
    }
    stack(
      Jobs,
      'run',
      order.map(([, decorator]) => decorator('')),
    );
    return Jobs;
  }

  const SKIP: Named = ['WithLock', () => WithLock('job', { onBusy: 'skip' }) as MethodDecorator];
  const GUARD: Named = ['UseGuards', () => UseGuards()];

  const cronOrders = permutations<Named>([
    ['Cron', () => Cron('0 0 0 1 1 *', { name: 'job' })],
    SKIP,
    GUARD,
  ]).map((order) => [nameOf(order), order] as const);

  test.each(cronOrders)('%s: the job is registered, and two runs do not overlap', async (_name, order) => {
    const overlap = new Overlap();
    app = await startApp({ imports: [ScheduleModule.forRoot()], providers: [scheduled(order, overlap)] });
    const job = app.get(SchedulerRegistry).getCronJob('job');
    expect(job.isActive).toBe(true);

    acquire.mockClear();
    void job.fireOnTick();
    void job.fireOnTick();
    await until(() => countAsked() === 2 && overlap.runs > 0 && overlap.running === 0);
    expect(overlap).toMatchObject({ runs: 1, most: 1 });
    // The next tick runs, because the lock was released.
    await until(() => {
      void job.fireOnTick();
      return overlap.runs === 2;
    });
    expect(overlap.most).toBe(1);
  });

  const intervalOrders = permutations<Named>([['Interval', () => Interval('job', 1)], SKIP, GUARD]).map(
    (order) => [nameOf(order), order] as const,
  );

  test.each(intervalOrders)(
    '%s: the job is registered, and its runs do not overlap',
    async (_name, order) => {
      const overlap = new Overlap();
      acquire.mockClear();
      app = await startApp({ imports: [ScheduleModule.forRoot()], providers: [scheduled(order, overlap)] });
      expect(app.get(SchedulerRegistry).getIntervals()).toEqual(['job']);
      // Waits until the job has fired more often than it ran, which shows that it also fired during a run.
      await until(() => overlap.runs >= 3 && countAsked() > overlap.runs + 1);
      expect(overlap.most).toBe(1);
    },
  );

  const timeoutOrders = permutations<Named>([['Timeout', () => Timeout('job', 1)], SKIP, GUARD]).map(
    (order) => [nameOf(order), order] as const,
  );

  test.each(timeoutOrders)('%s: the method runs once, under the lock', async (_name, order) => {
    const overlap = new Overlap();
    app = await startApp({ imports: [ScheduleModule.forRoot()], providers: [scheduled(order, overlap)] });
    expect(app.get(SchedulerRegistry).getTimeouts()).toEqual(['job']);
    await until(() => overlap.runs === 1);
    expect(overlap.most).toBe(1);
  });
});

describe('several keys on one method', () => {
  const retry = { timeout: 30_000 };
  /** Long enough for two concurrent calls to acquire their first locks; ends the deadlock of these calls soon. */
  const briefly = { timeout: 300 };
  const overlap = new Overlap();

  @Injectable()
  class Several {
    @WithLock('a', { retry })
    @WithLock('b', { retry })
    async nested(): Promise<unknown> {
      await overlap.work();
      return [currentLock()?.keys, currentLock('a')?.keys];
    }

    @WithLock('b', { retry })
    @WithLock('a', { retry: briefly })
    async nestedTheOtherWay(): Promise<unknown> {
      await overlap.work();
      return [currentLock()?.keys, currentLock('b')?.keys];
    }

    @WithLock(['a', 'b'])
    async listed(): Promise<unknown> {
      await overlap.work();
      return currentLock()?.keys;
    }

    @WithLock(['b', 'a'])
    async listedTheOtherWay(): Promise<unknown> {
      await overlap.work();
      return currentLock()?.keys;
    }
  }

  let several: Several;
  let locks: LockService;
  beforeAll(async () => {
    app = await startApp({ providers: [Several] });
    several = app.get(Several);
    locks = app.get(LockService);
  });
  afterAll(() => app.close());
  const isHeld = async (key: string): Promise<boolean> => (await locks.inspect(key)).held;

  test('two @WithLock on one method acquire from top to bottom, and release both locks at the end', async () => {
    const bottom = await locks.acquire('b');
    const running = several.nested();
    await until(() => isHeld('a'));
    await bottom.release();
    await expect(running).resolves.toEqual([['b'], ['a']]);
    await expect(Promise.all([isHeld('a'), isHeld('b')])).resolves.toEqual([false, false]);

    const top = await locks.acquire('a');
    const waiting = several.nested();
    await expect(isHeld('b')).resolves.toBe(false);
    await top.release();
    await waiting;
  });

  test('two methods with two @WithLock in opposite orders deadlock until one call times out', async () => {
    const results = await Promise.allSettled([several.nested(), several.nestedTheOtherWay()]);
    const refused = results.flatMap((result) =>
      result.status === 'rejected' ? [result.reason as unknown] : [],
    );
    expect(refused).not.toEqual([]);
    expect(refused.every((reason) => reason instanceof LockHeldError)).toBe(true);
  });

  test('a list of keys is one lock, and the order of the list does not matter', async () => {
    overlap.most = 0;
    const results = await Promise.all([several.listed(), several.listedTheOtherWay(), several.listed()]);
    expect(results).toEqual(Array.from({ length: 3 }, () => ['a', 'b']));
    expect(overlap.most).toBe(1);
  });
});
