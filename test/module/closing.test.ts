import 'reflect-metadata';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { type INestApplicationContext, Injectable, Module, type OnModuleDestroy } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { once } from 'node:events';
import { Redis } from 'ioredis';
import {
  currentLock,
  InjectLockService,
  Leader,
  type LeaderTerm,
  type LockHandle,
  LockLostError,
  LockService,
  OnlyLeader,
  RedlockModule,
  type RedlockModuleOptions,
  WithLock,
} from '../../lib/index.js';
import type { LockStore } from '../../lib/store/index.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { RedlockTestingModule } from '../../lib/testing/index.js';
import { CLIENTS, type ClientMaker } from '../support/clients.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { LogLines } from '../support/log-lines.js';
import { startPlainApp } from '../support/nest-app.js';
import { PATIENT } from '../support/patience.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { measured } from '../support/undisturbed.js';
import { until } from '../support/until.js';

/** Longest time in milliseconds for closing the nodes, after the wait for methods. */
const CLOSING_MS = 5_000;

/** Milliseconds for a busy machine. */
const TOLERANCE = 4_000;

/** Resolves to the milliseconds that the work takes, without the stalls of a busy machine. */
async function timeOf(work: Promise<unknown>): Promise<number> {
  const { took, stalled } = await measured(work);
  return took - stalled;
}

@Injectable()
class Worker {
  readonly seen: string[] = [];
  lock: LockHandle | undefined;
  app: INestApplicationContext | undefined;

  constructor(private readonly locks: LockService) {}

  /** Works until the shutdown begins, and then needs another moment. */
  @WithLock('work')
  async work(): Promise<string> {
    const lock = currentLock()!;
    this.lock = lock;
    await once(lock.closing, 'abort');
    const isTold = this.locks.closing === lock.closing && this.locks.closing.aborted;
    await this.locks.withLock('another', () => undefined);
    return `${isTold} ${lock.isHeld()} ${lock.signal.aborted}`;
  }

  @WithLock('work')
  async closeApp(): Promise<void> {
    await this.app!.close();
    this.seen.push('closed');
  }

  /** Waits for a lock that others hold, with a limit of attempts that is never reached. */
  @WithLock('outer')
  async waitForInner(): Promise<unknown> {
    this.lock = currentLock();
    return this.locks.acquire('inner', { retry: { attempts: 1e9, delay: 50, timeout: 1e9 } });
  }
}

let redis: RedisServer;
let looker: Redis;
beforeAll(async () => {
  redis = await startRedis();
  looker = redis.client();
});
afterEach(async () => void (await looker.flushall()));
afterAll(() => redis.stop());

let lines: LogLines;
let app: INestApplicationContext;
let worker: Worker;

async function start(options: RedlockModuleOptions): Promise<void> {
  @Module({
    imports: [RedlockModule.forRoot({ ...PATIENT, restartGuard: false, ...options })],
    providers: [Worker],
  })
  class AppModule {}
  lines = new LogLines();
  app = await NestFactory.createApplicationContext(AppModule, { logger: lines });
  worker = app.get(Worker);
  worker.app = app;
}

describe('closing', () => {
  test('the signal `closing` aborts at the start of the shutdown, while the lock is held and renewed', async () => {
    await start({ nodes: redis.url });
    const working = worker.work();
    await until(() => worker.lock !== undefined);
    expect(worker.lock?.closing.aborted).toBe(false);
    await app.close();
    await expect(working).resolves.toBe('true true false');
    expect(worker.lock?.closing.reason).toEqual(new Error('the application is shutting down'));
    expect(lines.lines).toEqual([]);
  });

  test('the signal `closing` aborts before other modules end their work', async () => {
    @Injectable()
    class Jobs implements OnModuleDestroy {
      running: Promise<unknown> | undefined;
      async onModuleDestroy(): Promise<void> {
        await this.running;
      }
    }
    @Module({ providers: [Jobs], exports: [Jobs] })
    class JobsModule {}
    const nest = await startPlainApp({
      imports: [JobsModule, RedlockModule.forRoot({ nodes: 'memory' })],
      providers: [Worker],
    });
    const jobs = nest.get(Jobs);
    jobs.running = nest.get(Worker).work();
    await until(() => nest.get(Worker).lock !== undefined);
    await nest.close();
    await expect(jobs.running).resolves.toMatch(/^true true/);
  });

  test('a lock that a nested call joined, a handle and the term of a leader have the same signal', async () => {
    class Chief {
      term: LeaderTerm | undefined;
      @Leader('chief')
      async lead(term: LeaderTerm): Promise<void> {
        this.term = term;
        await once(term.closing, 'abort');
      }
      @OnlyLeader('chief')
      async task(): Promise<AbortSignal | undefined> {
        return currentLock()?.closing;
      }
    }
    const nest = await startPlainApp({
      imports: [RedlockTestingModule.forRoot()],
      providers: [Chief],
    });
    const [locks, chief] = [nest.get(LockService), nest.get(Chief)];
    const { closing } = locks;
    await until(() => chief.term !== undefined);
    const signals = [chief.term?.closing, await chief.task(), (await locks.acquire('handle')).closing];
    await locks.withLock('outer', { mode: 'shared' }, (outer) =>
      locks.withLock('outer', { mode: 'shared', reentrant: true }, (inner) =>
        signals.push(outer.closing, inner.closing),
      ),
    );
    expect(signals).toEqual(Array(5).fill(closing));
    expect(closing.aborted).toBe(false);
    await nest.close();
    expect(closing.aborted).toBe(true);
    expect(chief.term?.signal.aborted).toBe(true);
  });

  test('many methods can listen to `closing` without a warning about a leak', async () => {
    await start({ nodes: 'memory' });
    const warned = jest.fn();
    process.on('warning', warned);
    const { closing } = app.get(LockService);
    for (let method = 0; method < 50; method++) closing.addEventListener('abort', () => undefined);
    await new Promise(setImmediate);
    process.off('warning', warned);
    expect(warned).not.toHaveBeenCalled();
    await app.close();
  });
});

describe('the limit of app.close()', () => {
  let hung: RedisServer;
  let holder: INestApplicationContext;
  beforeEach(async () => {
    hung = await startRedis();
    holder = await startPlainApp({
      imports: [RedlockModule.forRoot({ ...PATIENT, nodes: hung.url, restartGuard: false })],
    });
  });
  afterEach(async () => {
    // Otherwise the application would log the loss of its server in the middle of the next test.
    await holder.close();
    await hung.stop();
  });

  const ioredis: ClientMaker = (url) => {
    // Jest waits for a timer of this length, which ioredis leaves running when it disconnects a closed connection.
    const client = new Redis(url, { disconnectTimeout: 100 }).on('error', () => undefined);
    cleanUpAfterTests(async () => client.disconnect());
    return client;
  };
  test.each([
    ['ioredis 5', ioredis],
    ['node-redis 6', CLIENTS['node-redis 6']],
    ['Valkey GLIDE', CLIENTS['Valkey GLIDE']],
    ['none, so the package opens one', undefined],
  ])(
    'app.close() settles when Redis hangs while a call waits in the queue (client: %s)',
    async (_name, makeClient) => {
      const client = await makeClient?.(hung.url);
      await start({ nodes: client ?? hung.url });
      await holder.get(LockService).acquire('queued', { ttl: 300_000 });
      const waiting = app
        .get(LockService)
        .acquire('queued', { retry: { timeout: 300_000 } })
        .then(
          () => 'granted',
          ({ code }: { code: string }) => code,
        );
      await app.get(LockService).acquire('held', { ttl: 300_000 });
      await until(
        async () => (await holder.get(LockService).waiting(['queued'])).get('queued')?.length === 1,
      );
      hung.pause();
      try {
        expect(await timeOf(app.close())).toBeLessThan(CLOSING_MS + TOLERANCE);
        await expect(waiting).resolves.toBe('LOCK_UNAVAILABLE');
      } finally {
        hung.resume();
      }
    },
  );

  test('app.close() ends the wait of a call under a lock after `shutdownTimeout`', async () => {
    await holder.get(LockService).acquire('inner', { ttl: 300_000 });
    await start({ nodes: hung.url, shutdownTimeout: 100 });
    const outcome = worker.waitForInner().catch(({ code }: { code: string }) => code);
    await until(() => worker.lock !== undefined);
    await app.close();
    await expect(outcome).resolves.toBe('LOCK_UNAVAILABLE');
  });

  test.each([
    ['never settles', () => new Promise<void>(() => undefined), 'no answer within 2000 ms'],
    ['rejects', () => Promise.reject(new Error('no rights')), 'no rights'],
    [
      'throws',
      () => {
        throw new Error('no rights');
      },
      'no rights',
    ],
  ])('app.close() settles when closing a store %s', async (_name, close, reason) => {
    class Stubborn extends MemoryStore {
      override close = close;
    }
    await start({ nodes: new Stubborn() as LockStore });
    expect(await timeOf(app.close())).toBeLessThan(CLOSING_MS + TOLERANCE);
    expect(lines.lines).toEqual([
      {
        level: 'warn',
        text: expect.stringContaining(`could not be closed, and may keep connections open: ${reason}`),
      },
    ]);
  });

  test('app.close() settles when a store never answers a release', async () => {
    const answers: (() => void)[] = [];
    class Silent extends MemoryStore {
      override release(...args: Parameters<MemoryStore['release']>): void {
        answers.push(() => super.release(...args));
      }
    }
    await start({ nodes: new Silent() as LockStore, nodeTimeout: 600_000 });
    await app.get(LockService).acquire('held', { ttl: 3_600_000 });
    expect(await timeOf(app.close())).toBeLessThan(CLOSING_MS + TOLERANCE);
    expect(answers).not.toHaveLength(0);
    // Without an answer, the request would keep the worker of Jest alive for ten minutes.
    for (const answer of answers) answer();
  });

  test('several instances take no longer than one `shutdownTimeout`', async () => {
    @Injectable()
    class Both {
      running = 0;
      constructor(
        private readonly locks: LockService,
        @InjectLockService('second') private readonly second: LockService,
      ) {}
      work(): void {
        for (const locks of [this.locks, this.second]) {
          const forEver = (): Promise<void> => new Promise<void>(() => void this.running++);
          void locks.withLock('work', forEver);
        }
      }
    }
    const options = { nodes: 'memory', shutdownTimeout: 3_000 } as const;
    const nest = await startPlainApp({
      imports: [RedlockModule.forRoot(options), RedlockModule.forRoot({ ...options, name: 'second' })],
      providers: [Both],
    });
    nest.get(Both).work();
    await until(() => nest.get(Both).running === 2);
    expect(await timeOf(nest.close())).toBeLessThan(5_500);
  });
});

describe('app.close() in code under a lock', () => {
  test('a locked method that closes the application does not wait for itself', async () => {
    await start({ nodes: redis.url, shutdownTimeout: 3_600_000 });
    const closing = worker.closeApp();
    await expect(closing).rejects.toThrow(
      'the code under it closed the application; close it after the lock',
    );
    await expect(closing).rejects.toBeInstanceOf(LockLostError);
    expect(worker.seen).toEqual(['closed']);
    expect(lines.lines).toMatchObject([
      { level: 'warn', text: expect.stringContaining('running under locks on "work"') },
    ]);
  });

  test('nested tasks that close the application do not wait for themselves, but for others', async () => {
    await start({ nodes: redis.url, shutdownTimeout: 3_600_000 });
    const working = worker.work();
    await until(() => worker.lock !== undefined);
    const locks = app.get(LockService);
    const seen: string[] = [];
    const nested = locks.withLock('a', () =>
      locks.withLock('b', async () => {
        await app.close();
        seen.push(await working);
      }),
    );
    await expect(nested).rejects.toBeInstanceOf(LockLostError);
    expect(seen).toEqual(['true true false']);
  });

  test('a leader that closes the application does not wait for itself', async () => {
    const closed: string[] = [];
    class Chief {
      app: INestApplicationContext | undefined;
      @Leader('chief')
      async lead(): Promise<void> {
        await until(() => this.app !== undefined);
        await this.app!.close();
        closed.push('closed');
      }
    }
    const nest = await startPlainApp({
      imports: [RedlockModule.forRoot({ nodes: 'memory', shutdownTimeout: 3_600_000 })],
      providers: [Chief],
    });
    nest.get(Chief).app = nest;
    await until(() => closed.length > 0);
    expect(closed).toEqual(['closed']);
  });
});
