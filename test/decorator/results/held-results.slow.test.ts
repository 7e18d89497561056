import 'reflect-metadata';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Injectable, type INestApplication, StreamableFile } from '@nestjs/common';
import { EventEmitter } from 'node:events';
import { OutgoingMessage } from 'node:http';
import { Duplex, finished, PassThrough, Readable, Stream, Transform, Writable } from 'node:stream';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { BehaviorSubject, EMPTY, Observable, observable as interop, Subject } from 'rxjs';
import { LockService, WithLock } from '../../../lib/index.js';
import { startApp } from '../../support/nest-app.js';
import { until } from '../../support/until.js';

// Rule S25: the caller gets every result of a method, and the lock ends. The tests use nodes in memory, because the kind
// of node does not matter.

/** Milliseconds; so long that no lock is lost before its method returns, even if the machine stalls for a moment. */
const TTL = 2_400;

let app: INestApplication;
let service: Service;
let locks: LockService;

@Injectable()
class Service {
  // The method is not async, because a Promise cannot resolve to every value: it would follow a thenable.
  @WithLock((key: string) => key, { ttl: TTL })
  give(_key: string, value: unknown): Promise<unknown> {
    return value as Promise<unknown>;
  }

  @WithLock((key: string) => key, { ttl: TTL })
  watch(_key: string, value: unknown): Observable<unknown> {
    return value as Observable<unknown>;
  }

  @WithLock((key: string) => key, { ttl: TTL })
  async *rows(_key: string): AsyncGenerator<number> {
    try {
      yield 1;
      yield 2;
    } finally {
      yield 3;
    }
  }
}

beforeAll(async () => {
  app = await start();
  service = app.get(Service);
  locks = app.get(LockService);
});
afterAll(() => close(app));

async function start(): Promise<INestApplication> {
  return startApp({ providers: [Service] }, { nodes: 'memory', shutdownTimeout: 60_000 });
}

/** Closes the application. The shutdown waits for every run, so this call also shows that all runs have ended. */
async function close(application: INestApplication): Promise<void> {
  let isClosed = false;
  void application.close().then(() => (isClosed = true));
  await until(() => isClosed);
}

let count = 0;
const newKey = (): string => `key ${++count}`;
const isFree = async (key: string): Promise<boolean> => !(await locks.inspect(key)).held;

/** Always throws. The results below use it as a getter, as the trap of a Proxy or as a method. */
const own = (): never => {
  throw new Error('of the result');
};

const revoked = (): object => {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
};

/** Makes an object that throws at every access except to `then`, which `await` reads. */
const untouchable = (): object =>
  new Proxy(
    {},
    {
      get: (_target, property) => (property === 'then' ? undefined : own()),
      has: own,
      getPrototypeOf: own,
      ownKeys: own,
      getOwnPropertyDescriptor: own,
    },
  );

const throwing = (...properties: PropertyKey[]): object => {
  const result = {};
  for (const property of properties) Object.defineProperty(result, property, { get: own, enumerable: true });
  return result;
};

const noop = (): void => undefined;
const endedStream = async (): Promise<Readable> => {
  const stream = Readable.from(['a']).resume();
  await new Promise((resolve) => finished(stream, resolve));
  return stream;
};
const file = (getStream: () => unknown): StreamableFile =>
  Object.assign(new StreamableFile(Buffer.from('text')), { getStream });

/** Results that only look like a stream or an Observable, or that have ended. The caller gets the same object. */
const PLAIN: readonly [string, () => unknown][] = [
  ['an object with `pipe` and `on`', () => ({ pipe: noop, on: noop })],
  ['an object with `pipe` and `on` that throw', () => ({ pipe: own, on: own })],
  ['an object with `pipe` and `on` that reject', () => ({ pipe: async () => own(), on: async () => own() })],
  ['an object with `pipe`, `on` and `readable`', () => ({ pipe: noop, on: noop, readable: true })],
  ['an object with `pipe` and `on` that are no functions', () => ({ pipe: 1, on: 2 })],
  ['an emitter with `pipe`', () => Object.assign(new EventEmitter(), { pipe: noop })],
  ['an object with `write` and `on`', () => ({ write: noop, on: noop, end: noop, writable: true })],
  ['an object without a prototype', () => Object.assign(Object.create(null), { pipe: noop, on: noop })],
  ['an object with an async `getStream`', () => ({ getStream: async () => Readable.from(['a']) })],
  ['an object with an async `getStream` that rejects', () => ({ getStream: async () => own() })],
  ['an object with a `getStream` that throws', () => ({ getStream: own })],
  ['an object with a `getStream` that returns nothing', () => ({ getStream: noop })],
  [
    'an object with a `getStream` that returns no stream',
    () => ({ getStream: () => ({ pipe: noop, on: noop }) }),
  ],
  ['a file whose `getStream` throws', () => file(own)],
  ['a file whose `getStream` is async', () => file(async () => Readable.from(['a']))],
  ['a file whose `getStream` returns no stream', () => file(() => 7)],
  ['a file around an object with `pipe`', () => new StreamableFile({ pipe: noop } as unknown as Readable)],
  ['a stream that has ended', endedStream],
  ['a stream that is destroyed', () => Readable.from(['a']).destroy()],
  ['a readable stream without its constructor call', () => Object.create(Readable.prototype) as unknown],
  ['a writable stream without its constructor call', () => Object.create(Writable.prototype) as unknown],
  ['a duplex stream without its constructor call', () => Object.create(Duplex.prototype) as unknown],
  ['a response without its constructor call', () => Object.create(OutgoingMessage.prototype) as unknown],
  ['an instance of the base class `Stream`', () => new Stream()],
  ['a web stream without its constructor call', () => Object.create(ReadableStream.prototype) as unknown],
  [
    'a ReadableStream of the Web Streams API that already has a reader',
    () => {
      const stream = new ReadableStream();
      stream.getReader();
      return stream;
    },
  ],
  ['a writable web stream', () => new WritableStream()],
  ['a pair of web streams', () => new TransformStream()],
  ['an object with `subscribe` and `lift`', () => ({ subscribe: noop, lift: noop })],
  ['an object with `subscribe` and `pipe`', () => ({ subscribe: noop, pipe: noop })],
  [
    'an object without a prototype, with `subscribe` and `lift` that throw',
    () => Object.assign(Object.create(null), { subscribe: own, lift: own }),
  ],
  ['an object whose async iterator is a number', () => ({ [Symbol.asyncIterator]: 7 })],
  ['an object whose async iterator is undefined', () => ({ [Symbol.asyncIterator]: undefined })],
  ['an object whose getter for the async iterator throws', () => throwing(Symbol.asyncIterator)],
  [
    'an object with getters that throw',
    () => throwing('pipe', 'on', 'getStream', 'subscribe', 'lift', 'readable'),
  ],
  ['a stream whose getters throw', () => Object.defineProperty(new Readable(), 'readable', { get: own })],
  ['a stream whose `on` throws', () => Object.assign(new Readable({ read: noop }), { on: own })],
  ['a Proxy whose traps throw', untouchable],
  ['a function', () => noop],
  ['a function with an async iterator', () => Object.assign(() => noop, { [Symbol.asyncIterator]: noop })],
  ['a synchronous generator', () => (function* () {})()],
  ['a frozen object', () => Object.freeze({ pipe: noop, on: noop })],
];

describe('results that only look like a stream or an Observable, or that have ended', () => {
  test.each(PLAIN)(
    'the caller gets the result unchanged after the release of the lock when the result is %s',
    async (_name, make) => {
      const key = newKey();
      const value = await make();
      await expect(service.give(key, value).then((given) => given === value)).resolves.toBe(true);
      await expect(isFree(key)).resolves.toBe(true);
    },
  );

  test('an object with `getStream` that is no StreamableFile is returned without a call of `getStream`', async () => {
    let calls = 0;
    await service.give(newKey(), { getStream: () => void calls++ });
    expect(calls).toBe(0);
  });
});

describe('a thenable as the result', () => {
  const thenable = (then: unknown): object => ({ then, pipe: noop, on: noop });
  test.each<[string, unknown, unknown]>([
    ['a thenable', thenable((resolve: (value: number) => void) => resolve(7)), 7],
    [
      'a thenable that resolves with a Promise',
      thenable((r: (v: unknown) => void) => r(Promise.resolve(8))),
      8,
    ],
  ])(
    'the caller gets the value after the release of the lock when the result is %s',
    async (_name, value, outcome) => {
      const key = newKey();
      await expect(service.give(key, value)).resolves.toBe(outcome);
      await expect(isFree(key)).resolves.toBe(true);
    },
  );

  test.each<[string, unknown]>([
    ['a thenable that throws', thenable(own)],
    ['a `then` whose getter throws', throwing('then')],
    ['a revoked Proxy', revoked()],
  ])('the caller gets an error after the release of the lock when the result is %s', async (_name, value) => {
    const key = newKey();
    await expect(service.give(key, value)).rejects.toBeInstanceOf(Error);
    await expect(isFree(key)).resolves.toBe(true);
  });
});

/** Results to read later, such as streams. The test starts to read none of them, so their locks end after a ttl. */
const UNREAD: readonly [string, () => unknown][] = [
  ['a readable stream', () => new Readable({ read: noop })],
  ['a writable stream', () => new Writable()],
  ['a duplex stream', () => new PassThrough()],
  ['a duplex stream with data piped into it', () => Readable.from(['a']).pipe(new PassThrough())],
  [
    'a readable stream with the methods of a transform stream',
    () => Object.setPrototypeOf(new Readable(), Transform.prototype),
  ],
  ['a response', () => new OutgoingMessage()],
  [
    'an emitter with `pipe` and `readable`',
    () => Object.assign(new EventEmitter(), { pipe: noop, readable: true }),
  ],
  [
    'an instance of the base class `Stream` with `readable`',
    () => Object.assign(new Stream(), { readable: true }),
  ],
  ['a file', () => new StreamableFile(Readable.from(['a']))],
  ['a Proxy of a stream', () => new Proxy(new Readable({ read: noop }), {})],
  ['a web stream', () => new ReadableStream()],
  ['a web stream of bytes', () => new ReadableStream({ type: 'bytes' })],
  ['an Observable', () => EMPTY],
  ['a Subject', () => new BehaviorSubject(1)],
  ['an async generator', () => (async function* () {})()],
  ['an async iterable', () => ({ async *[Symbol.asyncIterator]() {} })],
  ['a frozen async iterable', () => Object.freeze({ async *[Symbol.asyncIterator]() {} })],
];

describe('a result that nobody starts to use', () => {
  const keys = UNREAD.map(newKey);
  /** The references keep the results from the garbage collector, which would also end their locks. */
  let given: Promise<unknown>[];
  beforeAll(async () => {
    given = UNREAD.map(([, make], index) => service.give(keys[index]!, make()));
    await Promise.allSettled(given);
  });

  test.each(UNREAD.map(([name], index) => [name, index] as const))(
    'an unused result releases the lock after a ttl: %s',
    async (_name, index) => {
      const result = await given[index];
      await until(() => isFree(keys[index]!));
      expect(typeof result).toBe('object');
    },
  );
});

async function all(source: unknown): Promise<unknown[]> {
  const values: unknown[] = [];
  for await (const value of source as AsyncIterable<unknown>) values.push(value);
  return values;
}

describe('a stream', () => {
  test('a Writable holds the lock until it is finished', async () => {
    const key = newKey();
    const written: string[] = [];
    let done: () => void = noop;
    const target = new Writable({
      write: (chunk, _encoding, callback) => {
        written.push(String(chunk));
        done = callback;
      },
    });
    const source = new PassThrough();
    await expect(service.give(key, source.pipe(target))).resolves.toBe(target);
    source.end('a');
    await until(() => written.length === 1);
    await past();
    expect(await isFree(key)).toBe(false);
    done();
    await until(() => isFree(key));
  });

  test('a stream of another package, whose reader cannot be detected, holds the lock until it is read', async () => {
    const key = newKey();
    const old = Object.assign(new Stream(), { readable: true });
    await expect(service.give(key, old)).resolves.toBe(old);
    const chunks: unknown[] = [];
    old.on('data', (chunk) => chunks.push(chunk));
    await past();
    expect(await isFree(key)).toBe(false);
    old.emit('data', 'a');
    old.emit('end');
    await until(() => isFree(key));
    expect(chunks).toEqual(['a']);
  });
});

/** Waits long enough for a lock without renewal to lapse, and for an unused result to lose its lock. */
async function past(): Promise<void> {
  const since = performance.now();
  await until(() => performance.now() - since > 2 * TTL);
}

test('a byte stream of the Web Streams API fills the buffers of its reader, and releases the lock at its end', async () => {
  const key = newKey();
  const source = new ReadableStream({
    type: 'bytes',
    pull(controller) {
      controller.enqueue(new Uint8Array([1, 2, 3]));
      controller.close();
    },
  });
  const reader = ((await service.give(key, source)) as ReadableStream).getReader({ mode: 'byob' });
  await expect(reader.read(new Uint8Array(2))).resolves.toEqual({
    done: false,
    value: new Uint8Array([1, 2]),
  });
  expect(await isFree(key)).toBe(false);
  await expect(reader.read(new Uint8Array(2))).resolves.toEqual({ done: false, value: new Uint8Array([3]) });
  await expect(reader.read(new Uint8Array(2))).resolves.toMatchObject({ done: true });
  await expect(isFree(key)).resolves.toBe(true);
});

describe('an async iterable', () => {
  const frozen = (): object =>
    Object.freeze({
      rows: 2,
      describe(): string {
        return `${this.rows} rows`;
      },
      async *[Symbol.asyncIterator]() {
        yield 1;
        yield 2;
      },
    });

  test('a frozen async iterable is read under the lock, and keeps its other members', async () => {
    const key = newKey();
    const given = (await service.give(key, frozen())) as ReturnType<typeof frozen> & Record<string, unknown>;
    expect(await isFree(key)).toBe(false);
    expect(given).toMatchObject({ rows: 2 });
    expect(Object.keys(given)).toEqual(['rows', 'describe']);
    expect((given['describe'] as () => string)()).toBe('2 rows');
    expect(() => Object.assign(given, { rows: 3 })).toThrow(TypeError);
    await expect(all(given)).resolves.toEqual([1, 2]);
    await expect(isFree(key)).resolves.toBe(true);
  });

  test('an async iterable keeps its class, and its setters still work', async () => {
    class Rows {
      #limit = 1;
      get limit(): number {
        return this.#limit;
      }
      set limit(value: number) {
        this.#limit = value;
      }
      async *[Symbol.asyncIterator]() {
        for (let i = 0; i < this.#limit; i++) yield i;
      }
    }
    const given = (await service.give(newKey(), new Rows())) as Rows;
    expect(given.constructor).toBe(Rows);
    given.limit = 3;
    expect(given.limit).toBe(3);
    await expect(all(given)).resolves.toEqual([0, 1, 2]);
  });

  test.each<[string, unknown]>([
    ['nothing', undefined],
    ['a number', 7],
    ['an object whose getter throws', throwing('done')],
  ])(
    'an async iterable releases the lock when it gives %s in place of an iterator result',
    async (_name, step) => {
      const key = newKey();
      const broken = { [Symbol.asyncIterator]: () => ({ next: async () => step }) };
      const reading = all(await service.give(key, broken));
      await expect(reading).rejects.toBeInstanceOf(Error);
      await until(() => isFree(key));
    },
  );

  test('an async generator releases the lock when its reader stops, even if its `finally` yields one more value', async () => {
    const key = newKey();
    const rows = service.rows(key);
    for await (const row of rows) {
      expect(row).toBe(1);
      break;
    }
    await expect(isFree(key)).resolves.toBe(true);
    await expect(rows.next()).resolves.toEqual({ done: true, value: undefined });
  });

  test('an async iterable ends after an error, and is not read again without the lock', async () => {
    const key = newKey();
    let reads = 0;
    const next = async (): Promise<never> => {
      reads++;
      return own();
    };
    const given = (await service.give(key, { [Symbol.asyncIterator]: () => ({ next }) })) as AsyncIterable<1>;
    const reader = given[Symbol.asyncIterator]();
    await expect(reader.next()).rejects.toThrow('of the result');
    await expect(isFree(key)).resolves.toBe(true);
    await expect(reader.next()).resolves.toEqual({ done: true, value: undefined });
    expect(reads).toBe(1);
  });

  test('no code of an async iterable runs after its end, even if its reader then calls `return`', async () => {
    const key = newKey();
    let returns = 0;
    const source = {
      next: async () => ({ done: true, value: undefined }),
      return: async () => {
        returns++;
        return { done: true, value: undefined };
      },
    };
    const given = (await service.give(key, { [Symbol.asyncIterator]: () => source })) as AsyncIterable<1>;
    const reader = given[Symbol.asyncIterator]();
    await expect(reader.next()).resolves.toEqual({ done: true, value: undefined });
    await expect(isFree(key)).resolves.toBe(true);
    await expect(reader.return!(7)).resolves.toEqual({ done: true, value: 7 });
    expect(returns).toBe(0);
  });
});

describe('an Observable', () => {
  /** Makes an Observable as another copy of rxjs does: it is no instance of our class `Observable`. */
  const foreign = (source: Observable<unknown>): object => {
    const subscribe = source.subscribe.bind(source);
    const it = { lift: noop, subscribe, [interop]: (): object => it };
    return it;
  };

  test.each([
    ['as the value of a Promise', (key: string, value: object) => service.give(key, value)],
    ['as the declared result', async (key: string, value: object) => service.watch(key, value)],
  ])(
    'an Observable of another copy of rxjs gives its values, and holds the lock until it completes: %s',
    async (_name, call) => {
      const key = newKey();
      const source = new Subject<number>();
      const given = (await call(key, foreign(source))) as Observable<number>;
      const values: number[] = [];
      const ended = new Promise<void>((complete, error) =>
        given.subscribe({ next: (value) => values.push(value), error, complete }),
      );
      await until(() => source.observed);
      source.next(1);
      expect(values).toEqual([1]);
      await past();
      expect(await isFree(key)).toBe(false);
      source.next(2);
      source.complete();
      await ended;
      expect(values).toEqual([1, 2]);
      await expect(isFree(key)).resolves.toBe(true);
    },
  );

  test('an object of a subclass of Observable keeps the members of its class', async () => {
    const key = newKey();
    const subject = new BehaviorSubject(1);
    const given = (await service.give(key, subject)) as BehaviorSubject<number>;
    expect(given).toBeInstanceOf(BehaviorSubject);
    given.next(2);
    expect(given.value).toBe(2);
    const values: number[] = [];
    const ended = new Promise<void>((complete) =>
      given.pipe((source) => source).subscribe({ next: (value) => values.push(value), complete }),
    );
    await until(() => subject.observed);
    expect(await isFree(key)).toBe(false);
    given.complete();
    await ended;
    expect(values).toEqual([2]);
    await expect(isFree(key)).resolves.toBe(true);
  });

  test.each([[undefined], [7], [{ subscribe: noop }]])(
    'an Observable as the declared result fails, and releases the lock, when the method returns %p instead',
    async (value) => {
      const key = newKey();
      const failure = new Promise((error) => service.watch(key, value).subscribe({ error }));
      await expect(failure).resolves.toBeInstanceOf(TypeError);
      await expect(isFree(key)).resolves.toBe(true);
    },
  );
});

describe('a half-read result that nobody closes', () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;

  const begun: readonly [string, (key: string) => Promise<unknown>][] = [
    ['an async generator', (key) => service.rows(key).next()],
    [
      'a stream',
      async (key) => {
        const stream = (await service.give(key, new Readable({ read: noop }))) as Readable;
        stream.resume();
      },
    ],
    [
      'a Writable that is not finished',
      async (key) => {
        const stream = (await service.give(key, new Writable({ write: noop }))) as Writable;
        stream.write('a');
      },
    ],
  ];
  const keys = begun.map(newKey);
  beforeAll(async () => {
    await Promise.all(begun.map(([, begin], index) => begin(keys[index]!)));
    await past();
  });

  test.each(begun.map(([name], index) => [name, index] as const))(
    'a half-read result releases the lock when the result is garbage-collected: %s',
    async (_name, index) => {
      const released = until(async () => {
        collect();
        return isFree(keys[index]!);
      });
      await expect(released).resolves.toBeUndefined();
    },
  );
});

describe('any object', () => {
  /** Gives the same choices for the same seed (mulberry32). */
  function randomOf(seed: number): <T>(choices: readonly T[]) => T {
    let state = seed;
    return (choices) => {
      state = (state + 0x6d2b79f5) | 0;
      let t = Math.imul(state ^ (state >>> 15), 1 | state);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return choices[((t ^ (t >>> 14)) >>> 0) % choices.length]!;
    };
  }

  const BASES: readonly (() => object)[] = [
    () => ({}),
    () => Object.create(null) as object,
    () => [],
    () => new Map(),
    () => new EventEmitter(),
    () => new Stream(),
    () => new Readable({ read: noop }),
    () => Readable.from(['a']),
    () => new Writable({ write: noop }),
    () => new PassThrough().destroy(),
    () => Object.create(Readable.prototype) as object,
    () => Object.create(StreamableFile.prototype) as object,
    () => Object.create(Observable.prototype) as object,
    () => new StreamableFile(Buffer.from('a')),
    () => new Observable(),
    () => (async function* () {})(),
    () => new ReadableStream(),
    () => new OutgoingMessage(),
  ];
  const PROPERTIES: readonly PropertyKey[] = [
    'pipe',
    'on',
    'getStream',
    'readable',
    'writable',
    'writableFinished',
    'readableFlowing',
    'destroyed',
    'closed',
    'lift',
    'subscribe',
    'next',
    interop,
    Symbol.asyncIterator,
    Symbol.toStringTag,
  ];
  const VALUES: readonly (() => PropertyDescriptor)[] = [
    () => ({ value: noop }),
    () => ({ value: own }),
    () => ({ value: true }),
    () => ({ value: null }),
    () => ({ value: {} }),
    () => ({ value: 'AsyncGenerator' }),
    () => ({ get: own }),
    () => ({ value: async () => ({ pipe: noop, on: noop }) }),
    () => ({
      value(this: unknown) {
        return this;
      },
    }),
  ];
  const WRAPPERS: readonly ((object: object) => object)[] = [
    (object) => object,
    (object) => object,
    (object) => new Proxy(object, {}),
    // `Object.freeze` throws for some objects, such as an array of bytes. They only become non-extensible.
    (object) => (Reflect.preventExtensions(object) ? freezeIfPossible(object) : object),
  ];
  function freezeIfPossible(object: object): object {
    try {
      return Object.freeze(object);
    } catch {
      return object;
    }
  }

  test('an object with random properties reaches the caller, and the lock is released', async () => {
    const kept: unknown[] = [];
    const keys: string[] = [];
    const changed: unknown[] = [];
    let notFree: number[] = [];
    for (let seed = 1; seed <= 2_000; seed++) {
      const random = randomOf(seed);
      const object = random(BASES)();
      for (let i = random([0, 1, 2, 3, 4, 5]); i > 0; i--) {
        const descriptor = { configurable: true, ...random(VALUES)() };
        const property = random(PROPERTIES);
        // A stream that reports a reader holds its lock for as long as it reports the reader.
        if (property === 'readableFlowing' && descriptor.value === true) continue;
        Reflect.defineProperty(object, property, descriptor);
      }
      const value = random(WRAPPERS)(object);
      const key = newKey();
      keys.push(key);
      const given = await service.give(key, value).catch((error: unknown) => {
        throw new Error(`seed ${seed}`, { cause: error });
      });
      // The caller gets an object with the same prototype.
      if (Object.getPrototypeOf(given) !== Object.getPrototypeOf(value)) changed.push(given);
      kept.push(given, value);
    }
    const isEveryFree = async (): Promise<boolean> => {
      const free = await Promise.all(keys.map(isFree));
      notFree = free.flatMap((each, index) => (each ? [] : [index + 1]));
      return notFree.length === 0;
    };
    await until(isEveryFree).catch(noop);
    expect(notFree).toEqual([]);
    expect(changed.map((given) => (given as object).constructor)).toEqual([]);
    expect(kept).toHaveLength(4_000);
  });
});

test('shutdown does not wait for a result that only looks like a stream', async () => {
  const other = await start();
  await other.get(Service).give('key', { pipe: own, on: own });
  await expect(close(other)).resolves.toBeUndefined();
});
