import 'reflect-metadata';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import {
  Controller,
  Get,
  type INestApplicationContext,
  Injectable,
  Module,
  type OnApplicationShutdown,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Redis } from 'ioredis';
import { from, Observable } from 'rxjs';
import request from 'supertest';
import { LINGER_MS } from '../../lib/core/store-times.js';
import {
  currentLock,
  type LockHandle,
  LockLostError,
  LockService,
  LockUnavailableError,
  RedlockModule,
  type RedlockModuleOptions,
  WithLock,
} from '../../lib/index.js';
import { countLocks, heldKeys } from '../support/core.js';
import { bundled } from '../support/bundle.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { LogLines } from '../support/log-lines.js';
import { startPlainApp } from '../support/nest-app.js';
import { PATIENT } from '../support/patience.js';
import { DURABLE, type RedisServer, startRedis } from '../support/redis-server.js';
import { startTcpProxy } from '../support/tcp-proxy.js';
import { renewed } from '../support/renewed.js';
import { until } from '../support/until.js';

/** A ttl in milliseconds that is long enough for a renewal in time, even if the machine stalls for a moment. */
const TTL = 6_000;

let redis: RedisServer;
let looker: Redis;
beforeAll(async () => {
  redis = await startRedis(DURABLE);
  looker = redis.client();
});
afterAll(() => redis.stop());

const free = async (): Promise<boolean> => (await countLocks(looker)) === 0;
const connections = async (): Promise<number> =>
  // The space ends the name. Connections for messages have a longer name, so they do not count.
  String(await looker.client('LIST')).split('name=nestjs-redlock ').length - 1;

/** A test opens the gate when the waiting code may continue. */
class Gate {
  open!: () => void;
  readonly opened = new Promise<void>((resolve) => (this.open = resolve));
}

/** Closes in `onApplicationShutdown`, as TypeORM, Mongoose and most other modules do. */
@Injectable()
class Database implements OnApplicationShutdown {
  isOpen = true;

  onApplicationShutdown(): void {
    this.isOpen = false;
  }
}

@Injectable()
class Service {
  gate = new Gate();
  lock: LockHandle | undefined;

  constructor(
    private readonly locks: LockService,
    readonly database: Database,
  ) {}

  @WithLock('running')
  async run(then: (locks: LockService) => unknown = () => 'result'): Promise<unknown> {
    this.lock = currentLock();
    await this.gate.opened;
    return then(this.locks);
  }

  @WithLock('running', { retry: { timeout: 60_000, delay: 30_000 } })
  async wait(): Promise<string> {
    return 'should have waited';
  }

  @WithLock('observable')
  watch(begun: string[]): Observable<void> {
    begun.push('observable');
    return from(this.gate.opened);
  }

  @WithLock('generator')
  async *rows(): AsyncGenerator<string> {
    yield 'generator';
    await this.gate.opened;
  }

  @WithLock('other')
  async other(): Promise<string> {
    return 'should have been refused';
  }
}

@Controller()
class Routes {
  constructor(private readonly service: Service) {}

  @Get()
  run(): Promise<unknown> {
    return this.service.run();
  }
}

describe('app.close()', () => {
  let app: INestApplicationContext;
  let lines: LogLines;
  let service: Service;

  async function start(options: Partial<RedlockModuleOptions> = {}): Promise<void> {
    @Module({
      imports: [RedlockModule.forRoot({ ...PATIENT, nodes: redis.url, defaults: { ttl: TTL }, ...options })],
      providers: [Service, Database],
    })
    class AppModule {}
    lines = new LogLines();
    app = await NestFactory.createApplicationContext(AppModule, { logger: lines });
    service = app.get(Service);
  }

  /** Begins a locked method and waits until it runs. */
  async function running(
    then?: (locks: LockService) => unknown,
  ): Promise<{ readonly result: Promise<unknown> }> {
    const result = service.run(then);
    // Prevents an unhandled rejection: a test that expects a failure awaits `result` later.
    result.catch(() => undefined);
    await until(() => service.lock !== undefined);
    return { result };
  }

  /** True when the application refuses new calls. */
  const isRefusing = (): Promise<boolean> =>
    service.other().then(
      () => false,
      () => true,
    );

  function settled(promise: Promise<unknown>): () => boolean {
    let yes = false;
    const settle = (): void => void (yes = true);
    promise.then(settle, settle);
    return () => yes;
  }

  afterEach(async () => {
    service.gate.open();
    await app.close();
    await looker.flushall();
  });

  test('app.close() waits for running locked methods, then releases the locks, then closes the connections', async () => {
    await start();
    const { result } = await running(async () => [service.lock?.isHeld(), await connections()]);
    const closing = app.close();
    const isClosed = settled(closing);
    await until(isRefusing);
    expect(isClosed()).toBe(false);
    expect(service.lock?.isHeld()).toBe(true);

    service.gate.open();
    // The method had its lock and its connection until its end.
    await expect(result).resolves.toEqual([true, 1]);
    await closing;
    await expect(free()).resolves.toBe(true);
    await until(async () => (await connections()) === 0);
    expect(lines.lines).toEqual([]);
  });

  test('app.close() renews the locks of the methods that it waits for', async () => {
    await start();
    const { result } = await running(() => service.lock?.isHeld());
    const closing = app.close();
    await expect(renewed(looker, 'lock:{running}')).resolves.toBeUndefined();
    service.gate.open();
    await expect(result).resolves.toBe(true);
    await closing;
  });

  test('app.close() waits for tasks of withLock, Observables and generators', async () => {
    await start();
    const ended: string[] = [];
    const begun: string[] = [];
    const task = app.get(LockService).withLock('task', async () => {
      begun.push('task');
      await service.gate.opened;
      ended.push('task');
    });
    service.watch(begun).subscribe({ complete: () => ended.push('observable') });
    const reading = (async () => {
      for await (const row of service.rows()) begun.push(row);
      ended.push('generator');
    })();
    await until(() => begun.length === 3);
    const closing = app.close();
    service.gate.open();
    await closing;
    await Promise.all([task, reading]);
    expect(ended.toSorted()).toEqual(['generator', 'observable', 'task']);
    await expect(free()).resolves.toBe(true);
  });

  test('app.close() does not wait longer than `shutdownTimeout`', async () => {
    await start({ shutdownTimeout: 100 });
    const { result } = await running();
    const { signal } = service.lock!;
    const started = performance.now();
    await app.close();
    expect(performance.now() - started).toBeGreaterThanOrEqual(95);
    expect(performance.now() - started).toBeLessThan(10_000);

    expect(signal.aborted).toBe(true);
    expect(signal.reason).toBeInstanceOf(LockLostError);
    expect(service.lock?.isHeld()).toBe(false);
    expect(lines.lines).toEqual([
      {
        level: 'warn',
        text: expect.stringMatching(/^Shut down while methods were running under locks on "running"\./),
      },
    ]);
    // The key stays held while the method may still work. The lock ends with its ttl.
    await expect(looker.pttl('lock:{running}')).resolves.toBeGreaterThan(0);
    service.gate.open();
    await expect(result).rejects.toBeInstanceOf(LockLostError);
    await expect(until(free)).resolves.toBeUndefined();
  });

  test('app.close() does not replace the error of a method that ends after `shutdownTimeout`', async () => {
    await start({ shutdownTimeout: 0 });
    const { result } = await running(() => {
      throw new Error('own');
    });
    await app.close();
    service.gate.open();
    await expect(result).rejects.toThrow('own');
  });

  test('app.close() immediately refuses waiting calls and new calls', async () => {
    await start();
    const { result } = await running();
    const waiting = Promise.allSettled([
      service.wait(),
      app.get(LockService).acquire('running', { retry: { timeout: 60_000, delay: 30_000 } }),
    ]);
    const closing = app.close();
    const started = performance.now();
    for (const each of [...(await waiting), ...(await Promise.allSettled([service.other()]))]) {
      expect(each).toMatchObject({ status: 'rejected', reason: expect.any(LockUnavailableError) });
      expect(String((each as PromiseRejectedResult).reason)).toMatch(/the application is shutting down/);
    }
    expect(performance.now() - started).toBeLessThan(10_000);
    service.gate.open();
    await expect(result).resolves.toBe('result');
    await closing;
    await expect(free()).resolves.toBe(true);
  });

  test('app.close() lets running methods acquire further locks', async () => {
    await start();
    const { result } = await running((locks) => locks.withLock('nested', (lock) => lock.isHeld()));
    const closing = app.close();
    service.gate.open();
    await expect(result).resolves.toBe(true);
    await closing;
    await expect(free()).resolves.toBe(true);
  });

  test('app.close() releases locks that were acquired and never released', async () => {
    await start();
    const lock = await app.get(LockService).acquire(['a', 'b'], { ttl: 60_000 });
    await app.close();
    await expect(free()).resolves.toBe(true);
    expect(lock.isHeld()).toBe(false);
    await expect(lock.release()).resolves.toBeUndefined();
    expect(lines.lines).toEqual([]);
  });

  test('app.close() aborts the signal of an unreleased lock before other callers can acquire the lock', async () => {
    await start();
    const lock = await app.get(LockService).acquire('handle', { ttl: 60_000 });
    const { signal } = lock;
    const next = await startPlainApp({ imports: [RedlockModule.forRoot({ ...PATIENT, nodes: redis.url })] });
    const atHandOver = next
      .get(LockService)
      .withLock('handle', { retry: { timeout: 30_000 } }, () => [signal.aborted, lock.isHeld()]);
    await until(async () => (await looker.exists('lock:{handle}:q')) === 1);

    await app.close();
    await expect(atHandOver).resolves.toEqual([true, false]);
    expect(signal.reason).toBeInstanceOf(LockLostError);
    expect(() => lock.assertHeld()).toThrow('the application shut down while it was held');
    expect(lock.state).toBe('lost');
    await next.close();
  });

  test('app.close() aborts the signals of unreleased locks, even if an abort listener releases one of the locks', async () => {
    await start();
    const held = await Promise.all(['a', 'b', 'c', 'd'].map((key) => app.get(LockService).acquire(key)));
    const reasons: unknown[] = [];
    for (const { signal } of held) signal.addEventListener('abort', () => reasons.push(signal.reason));
    held[0]!.signal.addEventListener('abort', () => void held[3]!.release());
    await app.close();
    // The holder released the last lock, so that lock was not lost.
    expect(reasons).toEqual(Array(3).fill(expect.any(LockLostError)));
    await expect(free()).resolves.toBe(true);
  });

  test('app.close() does not wait for `minHold`, but Redis keeps the keys until `minHold` has passed', async () => {
    await start();
    const locks = app.get(LockService);
    await locks.acquire('held', { ttl: 60_000, minHold: 30_000 });
    await locks.withLock('done', { ttl: 60_000, minHold: 30_000 }, () => undefined);
    await app.close();
    for (const key of ['lock:{held}', 'lock:{done}']) {
      expect((await looker.pttl(key)) - LINGER_MS).toBeGreaterThan(10_000);
      expect((await looker.pttl(key)) - LINGER_MS).toBeLessThanOrEqual(30_000);
    }
  });

  test('app.close() tries to store `minHold` until Redis answers again', async () => {
    const proxy = await startTcpProxy(redis);
    await start({ nodes: proxy.url, shutdownTimeout: 60_000 });
    await app.get(LockService).withLock('done', { ttl: 60_000, minHold: 600_000 }, () => {
      proxy.refuse();
      proxy.cut();
    });
    const closing = app.close();
    await until(isRefusing);
    await proxy.accept();
    await closing;
    expect((await looker.pttl('lock:{done}')) - LINGER_MS).toBeGreaterThan(60_000);
    await proxy.close();
  });

  test('app.close() waits for running methods before it closes other modules', async () => {
    await start();
    const { result } = await running(() => service.database.isOpen);
    const closing = app.close();
    await until(isRefusing);
    service.gate.open();
    await expect(result).resolves.toBe(true);
    await closing;
    expect(service.database.isOpen).toBe(false);
  });

  test('app.close() resolves when Redis is down', async () => {
    const server = await startRedis();
    await start({ nodes: server.url, shutdownTimeout: 100 });
    await running();
    await app.get(LockService).acquire('never released');
    await server.kill();
    await expect(app.close()).resolves.toBeUndefined();
    await server.stop();
  });

  test('app.close() lets a running HTTP request finish', async () => {
    @Module({
      imports: [RedlockModule.forRoot({ ...PATIENT, nodes: redis.url })],
      controllers: [Routes],
      providers: [Service, Database],
    })
    class AppModule {}
    lines = new LogLines();
    const http = await NestFactory.create(AppModule, { logger: lines });
    app = http;
    service = app.get(Service);
    await http.listen(0, '127.0.0.1');
    const response = request(http.getHttpServer())
      .get('/')
      .then(({ status, text }) => `${status} ${text}`);
    await until(() => service.lock !== undefined);
    const closing = app.close();
    service.gate.open();
    await expect(response).resolves.toBe('200 result');
    await closing;
    await expect(free()).resolves.toBe(true);
  });
});

describe('SIGTERM to a process with enableShutdownHooks()', () => {
  let file: string;
  beforeAll(async () => {
    file = await bundled('test/fixtures/shutdown-app.ts');
  });
  afterEach(() => looker.flushall());

  /** Starts the application, terminates it while its method works, and resolves to its output. */
  async function terminate(env: Record<string, string>): Promise<{
    readonly events: string[];
    readonly errors: string;
    readonly exit: unknown;
    /** Milliseconds from the signal to the end. */
    readonly took: number;
  }> {
    const child = spawn(process.execPath, [file], {
      env: { ...process.env, NODE_OPTIONS: '', NO_COLOR: '1', REDIS_URL: redis.url, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const forget = cleanUpAfterTests(async () => void child.kill('SIGKILL'));
    const closed = once(child, 'close'); // comes after all output was read
    const events: string[] = [];
    let errors = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => (errors += text));
    createInterface(child.stdout).on('line', (line) => events.push(line));
    await until(() => events.includes('working') || child.exitCode !== null);
    const started = performance.now();
    child.kill('SIGTERM');
    const [code, signal] = (await closed) as [number | null, string | null];
    forget();
    return { events, errors, exit: code ?? signal, took: performance.now() - started };
  }

  test.each([
    ['by the signal', {}, 'SIGTERM'],
    ['with code 0, if `useProcessExit` is set', { USE_EXIT: '1' }, 0],
  ])(
    'SIGTERM lets running methods finish, refuses waiting calls, and ends the process %s',
    async (_name, env, expected) => {
      const { events, errors, exit } = await terminate(env);
      expect(errors).toBe('');
      expect(events).toEqual(['working', 'waiters: LockUnavailableError', 'nested', 'worked']);
      expect(exit).toBe(expected);
      await expect(free()).resolves.toBe(true);
    },
  );

  test('SIGTERM ends the process, and logs methods that run for too long', async () => {
    const { events, errors, exit, took } = await terminate({ WORK: '20000', SHUTDOWN_TIMEOUT: '200' });
    const warning = expect.stringMatching(
      /WARN.*Shut down while methods were running under locks on "work"\./,
    );
    expect(events).toEqual(['working', 'waiters: LockUnavailableError', 'lost', warning]);
    expect(errors).toBe('');
    expect(exit).toBe('SIGTERM');
    expect(took).toBeLessThan(15_000);
    await expect(heldKeys(looker)).resolves.toEqual(['lock:{work}']);
    await expect(looker.pttl('lock:{work}')).resolves.toBeLessThanOrEqual(TTL + LINGER_MS);
  });
});
