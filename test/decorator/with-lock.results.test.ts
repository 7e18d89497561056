import 'reflect-metadata';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Controller, Get, Injectable, type INestApplication, Sse, StreamableFile } from '@nestjs/common';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { ReadableStream, type UnderlyingSource } from 'node:stream/web';
import type { Redis } from 'ioredis';
import {
  concat,
  firstValueFrom,
  from,
  interval,
  lastValueFrom,
  map,
  NEVER,
  Observable,
  of,
  ReplaySubject,
  Subject,
  take,
  throwError,
  toArray,
} from 'rxjs';
import request from 'supertest';
import { currentLock, LockHeldError, LockLostError, LockService, WithLock } from '../../lib/index.js';
import { countLocks, heldKeys } from '../support/core.js';
import { startApp } from '../support/nest-app.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { renewed } from '../support/renewed.js';
import { until } from '../support/until.js';

let redis: RedisServer;
let looker: Redis;
let app: INestApplication;
let service: Service;
let gate: PromiseWithResolvers;
let ended: string[];

/** A promise with its `resolve`. Node has `Promise.withResolvers` since version 22. */
interface PromiseWithResolvers {
  promise: Promise<void>;
  resolve: () => void;
}
function withResolvers(): PromiseWithResolvers {
  let resolve = (): void => undefined;
  const promise = new Promise<void>((fulfil) => (resolve = fulfil));
  return { promise, resolve };
}

const free = async (): Promise<boolean> => (await countLocks(looker)) === 0;
const KEY = 'lock:{key}';
/** Milliseconds; so long that no lock expires by accident, even if the machine stalls for a moment. */
const TTL = 30_000;
/** Options of locks that must expire during the test, and not while the machine stalls for a moment. */
const SHORT = { ttl: 2_400 };
/** Options of renewed locks. The renewal after a third of the ttl may be late by seconds. */
const RENEWED = { ttl: 6_000 };

/** True if the code under the lock sees the lock as held. */
function held(): boolean {
  return currentLock('key')?.isHeld() ?? false;
}

/** Removes the lock from the server, as a FLUSHALL or a fail-over does, and waits until the holder has noticed. */
async function lose(): Promise<void> {
  const lock = currentLock('key')!;
  const { signal } = lock;
  await looker.del(KEY);
  // The call of `extend` notices the loss at once, before the next renewal.
  await lock.extend().catch(() => undefined);
  if (!signal.aborted) await once(signal, 'abort');
}

@Injectable()
class Service {
  @WithLock('key')
  async give(value: unknown): Promise<unknown> {
    return value;
  }

  @WithLock('key')
  async fail(reason: unknown): Promise<unknown> {
    throw reason;
  }

  @WithLock('key')
  // The method is not async, so the error is thrown before there is a Promise.
  failAtOnce(reason: unknown): Promise<unknown> {
    throw reason;
  }

  @WithLock('key')
  plainly(value: unknown): Promise<unknown> {
    return value as Promise<unknown>;
  }

  @WithLock('key')
  async block(): Promise<string> {
    await gate.promise;
    return 'blocked';
  }

  @WithLock('key', { retry: false })
  async orThrow(): Promise<string> {
    return 'ran';
  }

  @WithLock('key', { onBusy: 'skip' })
  async orSkip(): Promise<string | undefined> {
    return 'ran';
  }

  @WithLock('key', { onBusy: 'skip', retry: { timeout: 20_000, delay: 1, jitter: 0 } })
  async orSkipLater(): Promise<string | undefined> {
    return 'ran';
  }

  @WithLock('key', { onBusy: 'skip', retry: undefined } as object)
  async orSkipUndefined(): Promise<string> {
    return 'ran';
  }

  @WithLock('key', { retry: false, onBusy: (error) => `busy: ${error.keys.join()} ${error.code}` })
  async orValue(): Promise<string> {
    return 'ran';
  }

  @WithLock('key', { retry: false, onBusy: async () => Promise.reject(new Error('instead')) })
  async orOther(): Promise<string> {
    return 'ran';
  }

  @WithLock('key', { retry: false, onBusy: 'skip' })
  skipObservable(): Observable<number> {
    return of(1);
  }

  @WithLock('key', { retry: false, onBusy: () => 7 })
  valueObservable(): Observable<number> {
    return of(1);
  }

  @WithLock('key', { retry: false })
  throwObservable(): Observable<number> {
    return of(1);
  }

  @WithLock('key', { onBusy: 'skip' })
  async *skipRows(): AsyncGenerator<number> {
    yield 1;
  }

  @WithLock('key', { retry: false, onBusy: () => 7 })
  async *valueRows(): AsyncGenerator<number> {
    yield 1;
  }

  @WithLock('key', SHORT)
  async loseIt(after: () => unknown): Promise<unknown> {
    await lose();
    return after();
  }

  @WithLock('key', { ...SHORT, onLost: 'ignore' })
  async loseItQuietly(): Promise<unknown> {
    await lose();
    return ['result', held()];
  }

  @WithLock('key', RENEWED)
  watch<T>(source: Observable<T>): Observable<T> {
    ended.push('made');
    return new Observable((subscriber) => {
      ended.push(held() ? 'held' : 'not held');
      const subscription = source.subscribe(subscriber);
      return () => {
        ended.push('torn down');
        subscription.unsubscribe();
      };
    });
  }

  @WithLock('key', SHORT)
  async watchUndeclared<T>(source: Observable<T>): Promise<Observable<[T, boolean]>> {
    return source.pipe(map((value) => [value, held()]));
  }

  @WithLock('key', SHORT)
  async *rows(count: number): AsyncGenerator<boolean, string, unknown> {
    try {
      for (let i = 0; i < count; i++) {
        try {
          const sent = yield held();
          if (sent !== undefined) ended.push(`got ${String(sent)}`);
        } catch (error) {
          ended.push(`caught ${String(error)}`);
          throw error;
        }
      }
      if (count === 0) throw new Error('no rows');
      return 'all';
    } finally {
      ended.push(held() ? 'closed under the lock' : 'closed without it');
    }
  }

  @WithLock('key', SHORT)
  async *loseRows(): AsyncGenerator<number> {
    yield 1;
    await lose();
    yield 2;
  }

  @WithLock('key', SHORT)
  async iterable(): Promise<Countdown> {
    return new Countdown(3);
  }

  // The method is no async function and no generator, so the kind of its result is known only after a run.
  @WithLock('key', SHORT)
  passedOn(fail = false): AsyncIterable<boolean> {
    if (fail) throw new Error('own');
    return new Countdown(2);
  }

  @WithLock('key', SHORT)
  subject(): ReplaySubject<boolean> {
    const subject = new ReplaySubject<boolean>();
    subject.next(held());
    subject.complete();
    return subject;
  }

  @WithLock('key', SHORT)
  async idleIterable(): Promise<AsyncIterable<number>> {
    let finish: (result: IteratorResult<number>) => void = () => undefined;
    return {
      [Symbol.asyncIterator]: () => ({
        next: () => new Promise((resolve) => (finish = resolve)),
        return: async () => {
          finish({ done: true, value: undefined });
          return { done: true, value: undefined };
        },
      }),
    };
  }

  @WithLock('key', SHORT)
  async generator(): Promise<AsyncGenerator<boolean, void, unknown>> {
    return (async function* () {
      yield held();
      yield held();
    })();
  }

  @WithLock('key', SHORT)
  async stream(): Promise<Readable> {
    return Readable.from(['a', 'b']);
  }

  @WithLock('key', SHORT)
  async webStream(source: UnderlyingSource<string>): Promise<ReadableStream<string>> {
    return new ReadableStream(source);
  }
}

/** An async iterable that can be read more than once, with further members, one of them private. */
class Countdown implements AsyncIterable<boolean> {
  readonly #from: number;
  constructor(start: number) {
    this.#from = start;
  }
  get start(): number {
    return this.#from;
  }
  describe(): string {
    return `from ${this.#from}`;
  }
  async *[Symbol.asyncIterator](): AsyncGenerator<boolean> {
    for (let i = this.#from; i > 0; i--) yield held();
  }
}

async function all<T>(source: AsyncIterable<T>): Promise<T[]> {
  const values: T[] = [];
  for await (const value of source) values.push(value);
  return values;
}

@Controller()
class Routes {
  @Get('file')
  @WithLock('key')
  async file(): Promise<StreamableFile> {
    const chunks = async function* (): AsyncGenerator<string> {
      yield 'first,';
      await gate.promise;
      yield String(held());
    };
    return new StreamableFile(Readable.from(chunks()));
  }

  @Get('observable')
  @WithLock('key')
  observable(): Observable<string> {
    return from([1, 2]).pipe(map((n) => `${n} ${held()}`));
  }

  @Get('undeclared')
  @WithLock('key')
  async undeclared(): Promise<Observable<string>> {
    return from([1, 2]).pipe(map((n) => `${n} ${held()}`));
  }

  @Sse('events')
  @WithLock('key', RENEWED)
  events(): Observable<{ data: string }> {
    return interval(5).pipe(map(() => ({ data: String(held()) })));
  }

  @Sse('silence')
  @WithLock('key', RENEWED)
  silence(): Observable<{ data: string }> {
    return concat(of({ data: 'hello' }), NEVER);
  }
}

beforeAll(async () => {
  redis = await startRedis();
  looker = redis.client();
  app = await startApp(
    { providers: [Service], controllers: [Routes] },
    { nodes: redis.url, defaults: { ttl: TTL } },
  );
  await app.listen(0, '127.0.0.1');
  service = app.get(Service);
});
afterAll(async () => {
  await app.close();
  await redis.stop();
});
beforeEach(() => {
  gate = withResolvers();
  ended = [];
});
afterEach(async () => {
  gate.resolve();
  const keys = await heldKeys(looker);
  await looker.flushall();
  if (keys.length > 0) throw new Error(`left behind: ${keys.join()}`);
});

describe('the outcome reaches the caller unchanged', () => {
  const object = { then: 'not a function' };
  test.each([
    [undefined],
    [null],
    [0],
    [''],
    [false],
    [NaN],
    [object],
    [Symbol.iterator],
    [[1, 2]],
    ['text'],
  ])('a call resolves to %p when the method returns it', async (value) => {
    await expect(service.give(value)).resolves.toBe(value);
    await expect(service.plainly(value)).resolves.toBe(value);
  });

  test.each([
    [undefined],
    [null],
    [0],
    ['text'],
    [new Error('own')],
    [{ code: 7 }],
    [new LockHeldError([], '', 1)],
  ])('a call rejects with %p when the method throws it', async (reason) => {
    await expect(service.fail(reason)).rejects.toBe(reason);
    await expect(service.failAtOnce(reason)).rejects.toBe(reason);
  });
});

describe('when another call holds the lock', () => {
  let blocked: Promise<string>;
  beforeEach(async () => {
    blocked = service.block();
    await until(async () => !(await free()));
  });
  afterEach(async () => {
    gate.resolve();
    await blocked;
  });

  test("`onBusy: 'throw'` rejects with a LockHeldError that names the holder and the remaining time", async () => {
    const error = await service.orThrow().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LockHeldError);
    expect(error).toMatchObject({
      code: 'LOCK_HELD',
      keys: ['key'],
      owner: expect.stringContaining(`:${process.pid}`),
    });
    expect((error as LockHeldError).retryAfter).toBeGreaterThan(0);
    expect((error as LockHeldError).retryAfter).toBeLessThanOrEqual(TTL);
  });

  test("`onBusy: 'skip'` resolves to undefined after one attempt", async () => {
    await expect(service.orSkip()).resolves.toBeUndefined();
    await expect(service.orSkipUndefined()).resolves.toBeUndefined();
  });

  test("`onBusy: 'skip'` waits for the lock when the decorator sets `retry`", async () => {
    const later = service.orSkipLater();
    await expect(service.orSkip()).resolves.toBeUndefined();
    gate.resolve();
    await expect(later).resolves.toBe('ran');
  });

  test('a function as `onBusy` determines the result or the error of the call', async () => {
    await expect(service.orValue()).resolves.toBe('busy: key LOCK_HELD');
    await expect(service.orOther()).rejects.toThrow('instead');
  });

  test('while the lock is held, an Observable ends as `onBusy` says: without a value, with a value, or with the error', async () => {
    await expect(lastValueFrom(service.skipObservable().pipe(toArray()))).resolves.toEqual([]);
    await expect(lastValueFrom(service.valueObservable().pipe(toArray()))).resolves.toEqual([7]);
    await expect(lastValueFrom(service.throwObservable())).rejects.toBeInstanceOf(LockHeldError);
  });

  test('while the lock is held, an async generator ends as `onBusy` says: without a value, or with a value', async () => {
    await expect(all(service.skipRows())).resolves.toEqual([]);
    await expect(all(service.valueRows())).resolves.toEqual([7]);
  });
});

describe('when the lock is lost while the method runs', () => {
  test('a call that lost its lock rejects with LockLostError in place of the result', async () => {
    await expect(service.loseIt(() => 'result')).rejects.toBeInstanceOf(LockLostError);
  });

  test('a call that lost its lock rejects with the error that the method throws', async () => {
    await expect(
      service.loseIt(() => {
        throw new Error('own');
      }),
    ).rejects.toThrow('own');
  });

  test("`onLost: 'ignore'` keeps the result of a method that lost its lock", async () => {
    await expect(service.loseItQuietly()).resolves.toEqual(['result', false]);
  });

  test('an Observable that lost its lock fails with LockLostError once its source has completed', async () => {
    const values: unknown[] = [];
    const source = new Observable<number>((subscriber) => {
      subscriber.next(1);
      void lose().then(() => subscriber.complete());
    });
    const failure = new Promise((resolve) =>
      service.watch(source).subscribe({ next: (value) => values.push(value), error: resolve }),
    );
    await expect(failure).resolves.toBeInstanceOf(LockLostError);
    expect(values).toEqual([1]);
  });

  test('an async generator that lost its lock throws LockLostError once its source has ended', async () => {
    const values: unknown[] = [];
    const reading = (async () => {
      for await (const value of service.loseRows()) values.push(value);
    })();
    await expect(reading).rejects.toBeInstanceOf(LockLostError);
    expect(values).toEqual([1, 2]);
  });
});

describe('an Observable from a method that declares its result type', () => {
  test('a declared Observable result is returned without a Promise, and locks on subscription', async () => {
    const watched = service.watch(of(1, 2));
    expect(watched).toBeInstanceOf(Observable);
    expect(ended).toEqual([]);
    await expect(free()).resolves.toBe(true);
    await expect(lastValueFrom(watched.pipe(toArray()))).resolves.toEqual([1, 2]);
    expect(ended).toContain('held');
  });

  test('an Observable is returned without a Promise when the declared result is a subclass of Observable', async () => {
    const subject = service.subject();
    expect(subject).toBeInstanceOf(Observable);
    await expect(lastValueFrom(subject)).resolves.toBe(true);
    await expect(free()).resolves.toBe(true);
  });

  test('a locked Observable releases the lock before its subscriber gets the completion or the error', async () => {
    await new Promise<void>((resolve) => service.watch(of(1)).subscribe({ complete: resolve }));
    await expect(free()).resolves.toBe(true);
    const failing = service.watch(throwError(() => 'text'));
    await expect(lastValueFrom(failing)).rejects.toBe('text');
    await expect(free()).resolves.toBe(true);
  });

  test('a locked Observable runs the method again, under a new lock, for a second subscriber', async () => {
    const watched = service.watch(of(1));
    await Promise.all([lastValueFrom(watched), lastValueFrom(watched)]);
    expect(ended.filter((event) => event === 'made')).toHaveLength(2);
    expect(ended.filter((event) => event === 'held')).toHaveLength(2);
  });

  test('a locked Observable keeps its lock renewed while subscribed, and releases the lock at unsubscription', async () => {
    const values: number[] = [];
    const subscription = service.watch(interval(5)).subscribe((value) => values.push(value));
    await until(() => values.length > 0);
    await renewed(looker, KEY);
    subscription.unsubscribe();
    expect(ended.at(-1)).toBe('torn down');
    await until(free);
  });

  test('a locked Observable is torn down when its subscriber unsubscribes during subscription', async () => {
    const values = service.watch(concat(of(1, 2, 3), NEVER)).pipe(take(1), toArray());
    await expect(lastValueFrom(values)).resolves.toEqual([1]);
    await until(free);
    expect(ended.at(-1)).toBe('torn down');
  });

  test('a locked Observable stops its synchronous source when its subscriber unsubscribes', async () => {
    let produced = 0;
    const endless = new Observable<number>((subscriber) => {
      while (!subscriber.closed && produced < 10_000) subscriber.next(produced++);
    });
    await expect(firstValueFrom(service.watch(endless))).resolves.toBe(0);
    expect(produced).toBeLessThan(10);
    await until(free);
  });

  test('a locked method does not run for a subscriber that unsubscribed while waiting for the lock', async () => {
    const blocked = service.block();
    await until(async () => !(await free()));
    service.watch(of(1)).subscribe().unsubscribe();
    gate.resolve();
    await blocked;
    await until(free);
    expect(ended).toEqual([]);
  });
});

describe('an Observable from a method that does not declare its result type', () => {
  test('an undeclared Observable result is returned in a Promise, and holds the lock until completion', async () => {
    const source = new Subject<number>();
    const watched = await service.watchUndeclared(source);
    await expect(free()).resolves.toBe(false);
    const values = lastValueFrom(watched.pipe(toArray()));
    await until(() => source.observed);
    source.next(1);
    source.complete();
    await expect(values).resolves.toEqual([[1, expect.any(Boolean)]]);
    await expect(free()).resolves.toBe(true);
  });

  test('an undeclared Observable result locks again for a second subscriber', async () => {
    const watched = await service.watchUndeclared(of(1));
    await expect(lastValueFrom(watched)).resolves.toEqual([1, true]);
    await expect(free()).resolves.toBe(true);
    await expect(lastValueFrom(watched)).resolves.toEqual([1, true]);
    await expect(free()).resolves.toBe(true);
  });

  test('an Observable releases the lock after a ttl when nobody subscribes, and locks again for a late subscriber', async () => {
    const watched = await service.watchUndeclared(of(1));
    await until(free);
    await expect(lastValueFrom(watched)).resolves.toEqual([1, true]);
  });
});

describe('an async generator', () => {
  test('an async generator acquires its lock at the first read, runs under this lock, and releases it at the end', async () => {
    const rows = service.rows(3);
    expect(ended).toEqual([]);
    await expect(free()).resolves.toBe(true);
    await expect(all(rows)).resolves.toEqual([true, true, true]);
    expect(ended).toEqual(['closed under the lock']);
    await expect(free()).resolves.toBe(true);
  });

  test('a locked async generator keeps its return value, and receives the values sent to it', async () => {
    const rows = service.rows(2);
    await rows.next();
    await expect(rows.next('x')).resolves.toEqual({ done: false, value: true });
    await expect(rows.next()).resolves.toEqual({ done: true, value: 'all' });
    await expect(rows.next()).resolves.toEqual({ done: true, value: undefined });
    expect(ended).toEqual(['got x', 'closed under the lock']);
  });

  test('an async generator closes, and releases the lock, when its reader stops early', async () => {
    for await (const row of service.rows(3)) {
      expect(row).toBe(true);
      break;
    }
    expect(ended).toEqual(['closed under the lock']);
    await expect(free()).resolves.toBe(true);
  });

  test('a locked async generator receives the error that its reader throws into it', async () => {
    const rows = service.rows(3);
    await rows.next();
    await expect(rows.throw(new Error('stop'))).rejects.toThrow('stop');
    expect(ended).toEqual(['caught Error: stop', 'closed under the lock']);
    await expect(free()).resolves.toBe(true);
  });

  test('an async generator passes its own error to the reader after the release of the lock', async () => {
    await expect(all(service.rows(0))).rejects.toThrow('no rows');
    await expect(free()).resolves.toBe(true);
  });

  test('a locked async generator does not run when it is closed before the first read', async () => {
    await expect(service.rows(3).return('early')).resolves.toEqual({ done: true, value: 'early' });
    expect(ended).toEqual([]);
  });

  test('an async generator that the method returns in a Promise holds the lock to its end', async () => {
    const rows = await service.generator();
    await expect(free()).resolves.toBe(false);
    await expect(all(rows)).resolves.toEqual([true, true]);
    await expect(free()).resolves.toBe(true);
  });
});

describe('an async iterable that is not a generator', () => {
  test('an async iterable holds the lock to its end, keeps its other members, and locks again on a second read', async () => {
    const countdown = await service.iterable();
    expect(countdown).toBeInstanceOf(Countdown);
    expect(countdown.start).toBe(3);
    expect(countdown.describe()).toBe('from 3');
    await expect(free()).resolves.toBe(false);
    await expect(all(countdown)).resolves.toEqual([true, true, true]);
    await expect(free()).resolves.toBe(true);
    await expect(all(countdown)).resolves.toEqual([true, true, true]);
    await expect(free()).resolves.toBe(true);
  });

  test('an async iterable releases the lock when its reader stops early', async () => {
    for await (const row of await service.iterable()) {
      expect(row).toBe(true);
      break;
    }
    await expect(free()).resolves.toBe(true);
  });

  test('an async iterable releases the lock after a ttl when nobody reads it', async () => {
    await expect(service.iterable()).resolves.toBeDefined();
    await until(free);
  });

  test('a declared async iterable can be read without awaiting the call', async () => {
    await expect(all(service.passedOn())).resolves.toEqual([true, true]);
    await expect(free()).resolves.toBe(true);
    for await (const row of service.passedOn()) {
      expect(row).toBe(true);
      break;
    }
    await expect(free()).resolves.toBe(true);
    await expect(all(service.passedOn(true))).rejects.toThrow('own');
    await expect(free()).resolves.toBe(true);
  });

  test('an async iterable releases the lock when its reader stops while a value is pending', async () => {
    const reader = (await service.idleIterable())[Symbol.asyncIterator]();
    const pending = reader.next();
    await reader.return?.();
    await expect(pending).resolves.toMatchObject({ done: true });
    await until(free);
  });
});

describe('a stream', () => {
  test('a Node.js stream reaches the caller as a Readable, and holds the lock until it has been read', async () => {
    const stream = await service.stream();
    expect(stream).toBeInstanceOf(Readable);
    await expect(free()).resolves.toBe(false);
    await expect(all(stream)).resolves.toEqual(['a', 'b']);
    await until(free);
  });

  test('a Node.js stream releases the lock when it is destroyed', async () => {
    const stream = await service.stream();
    stream.destroy();
    await expect(until(free)).resolves.toBeUndefined();
  });

  test('a Node.js stream releases the lock after a ttl when nobody reads it', async () => {
    const stream = await service.stream();
    await expect(until(free)).resolves.toBeUndefined();
    stream.destroy();
  });

  test('a Web Streams API stream holds the lock until it is read, and produces each chunk under the lock', async () => {
    let pulls = 0;
    const stream = await service.webStream({
      pull(controller) {
        if (++pulls > 3) controller.close();
        else controller.enqueue(`${pulls} ${held()}`);
      },
    });
    expect(stream).toBeInstanceOf(ReadableStream);
    await expect(free()).resolves.toBe(false);
    await expect(all(stream)).resolves.toEqual(['1 true', '2 true', '3 true']);
    await expect(free()).resolves.toBe(true);
  });

  test('a Web Streams API stream releases the lock when it is cancelled while it waits for data', async () => {
    const reasons: unknown[] = [];
    const stream = await service.webStream({ cancel: (reason) => void reasons.push(reason) });
    const reader = stream.getReader();
    const pending = reader.read();
    await reader.cancel('enough');
    await expect(pending).resolves.toMatchObject({ done: true });
    expect(reasons).toEqual(['enough']);
    await until(free);
  });

  test('a Web Streams API stream passes its error to the reader, and releases the lock', async () => {
    const stream = await service.webStream({ start: (controller) => controller.error(new Error('broken')) });
    await expect(all(stream)).rejects.toThrow('broken');
    await until(free);
  });

  test('a Web Streams API stream releases the lock after a ttl when nobody reads it', async () => {
    await expect(service.webStream({})).resolves.toBeDefined();
    await until(free);
  });
});

describe('over HTTP', () => {
  const url = (path: string): string =>
    `http://127.0.0.1:${(app.getHttpServer().address() as AddressInfo).port}/${path}`;

  async function open(path: string): Promise<IncomingMessage> {
    const [response] = (await once(get(url(path)), 'response')) as [IncomingMessage];
    response.on('error', () => undefined);
    return response.setEncoding('utf8');
  }

  test('a StreamableFile holds the lock until it is sent', async () => {
    const response = await open('file');
    const [first] = (await once(response, 'data')) as [string];
    expect(first).toBe('first,');
    await expect(free()).resolves.toBe(false);
    gate.resolve();
    await once(response, 'end');
    await until(free);
  });

  test('a StreamableFile releases the lock when its client disconnects', async () => {
    const response = await open('file');
    await once(response, 'data');
    await expect(free()).resolves.toBe(false);
    response.destroy();
    // The stream gives its pending value, and then finds that it has no reader.
    gate.resolve();
    await until(free);
  });

  test('an Observable, with or without a declared type, runs under its lock and sends its last value', async () => {
    await request(app.getHttpServer()).get('/observable').expect(200, '2 true');
    await expect(free()).resolves.toBe(true);
    await request(app.getHttpServer()).get('/undeclared').expect(200, '2 true');
    await expect(free()).resolves.toBe(true);
  });

  test.each(['events', 'silence'])(
    'the @Sse route "%s" holds the lock until the client disconnects',
    async (path) => {
      const response = await open(path);
      let text = '';
      response.on('data', (chunk: string) => (text += chunk));
      await until(() => text.includes('data:'));
      await renewed(looker, KEY);
      expect(text).not.toContain('data: false');
      await expect(app.get(LockService).tryAcquire('key')).resolves.toBeNull();
      response.destroy();
      await until(free);
    },
  );
});
