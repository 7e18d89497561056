import 'reflect-metadata';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Injectable, type INestApplication } from '@nestjs/common';
import { createInterface } from 'node:readline';
import { PassThrough, Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { firstValueFrom, Observable, toArray } from 'rxjs';
import { currentLock, LockService, WithLock } from '../../../lib/index.js';
import { LogLines } from '../../support/log-lines.js';
import { startApp } from '../../support/nest-app.js';
import { until } from '../../support/until.js';

// Rule S25: the lock ends when the result has ended, by whatever way the result is read.

/** Milliseconds; so long that no lock ends by itself during a test. */
const TTL = 60_000;
/**
 * Milliseconds without a use after which a lock ends whose result is read in an unknown way; so long that a busy machine
 * does not lose the lock between two renewals.
 */
const SHORT_TTL = 2_000;

/** A read of a cursor: whether the lock was held, and whether the read was under it. */
interface Read {
  readonly isHeld: boolean;
  readonly isUnder: boolean;
}

/** A cursor of a database library, with several ways to read it. */
class Cursor {
  readonly reads: Read[] = [];
  #left = 3;

  constructor(private readonly key: string) {}

  async next(): Promise<number | null> {
    const { held } = await locks.inspect(this.key);
    this.reads.push({ isHeld: held, isUnder: currentLock(this.key) !== undefined });
    return this.#left > 0 ? this.#left-- : null;
  }

  async hasNext(): Promise<boolean> {
    return this.#left > 0;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<number> {
    for (let each = await this.next(); each !== null; each = await this.next()) yield each;
  }

  async toArray(): Promise<number[]> {
    const values: number[] = [];
    for await (const each of this) values.push(each);
    return values;
  }

  async forEach(see: (each: number) => void): Promise<void> {
    for await (const each of this) see(each);
  }

  async all(): Promise<number[]> {
    await this.next();
    throw new Error('of the cursor');
  }

  /** The name and the result of the method do not show whether the cursor has ended. */
  async batch(): Promise<(number | null)[]> {
    return [await this.next()];
  }

  each(see: (each: number) => void): void {
    void this.forEach(see);
  }

  sort(): this {
    return this;
  }

  map<T>(change: (each: number) => T): AsyncIterable<T> {
    const values = this[Symbol.asyncIterator]();
    return (async function* () {
      for await (const each of values) yield change(each);
    })();
  }

  stream(): Readable {
    return Readable.from(this);
  }

  toReadableStream(): ReadableStream<number> {
    const values = this[Symbol.asyncIterator]();
    return new ReadableStream({
      pull: async (controller) => {
        const { done, value } = await values.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
    });
  }

  getReader(): { read(): Promise<{ done: boolean; value: number | null }> } {
    return {
      read: async () => {
        const value = await this.next();
        return { done: value === null, value };
      },
    };
  }

  async close(): Promise<void> {
    this.#left = 0;
  }
}

/** A model stream with members of its own, as of a client of a language model. */
class ModelStream extends ReadableStream<string> {
  readonly #model = 'm1';

  get model(): string {
    return this.#model;
  }

  static of(...chunks: readonly string[]): ModelStream {
    const left = [...chunks];
    return new ModelStream({
      pull: (controller) => {
        const chunk = left.shift();
        if (chunk === undefined) controller.close();
        else controller.enqueue(chunk);
      },
    });
  }
}

/** An Observable with a method that reads it. */
class Query extends Observable<number> {
  list(): Promise<number[]> {
    return firstValueFrom(this.pipe(toArray()));
  }
}

@Injectable()
class Service {
  @WithLock((key: string) => key, { ttl: TTL })
  async give<T>(_key: string, make: () => T): Promise<T> {
    return make();
  }

  @WithLock((key: string) => key, { ttl: SHORT_TTL })
  async giveBriefly<T>(_key: string, make: () => T): Promise<T> {
    return make();
  }
}

let app: INestApplication;
let service: Service;
let locks: LockService;
const lines = new LogLines('WithLock');
beforeAll(async () => {
  app = await startApp({ providers: [Service] }, { nodes: 'memory', shutdownTimeout: 1 }, { logger: lines });
  service = app.get(Service);
  locks = app.get(LockService);
});
afterAll(() => app.close());

let count = 0;
let key: string;
beforeEach(() => {
  key = `key ${++count}`;
});
const isFree = async (): Promise<boolean> => !(await locks.inspect(key)).held;
const UNDER: Read = { isHeld: true, isUnder: true };

async function all<T>(values: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const value of values) found.push(value);
  return found;
}

describe('a cursor', () => {
  const give = (): Promise<Cursor> => service.give(key, () => new Cursor(key));

  test.each<[string, (cursor: Cursor) => Promise<unknown>]>([
    ['for await', (cursor) => all(cursor)],
    ['toArray()', (cursor) => cursor.toArray()],
    ['sort().toArray()', (cursor) => cursor.sort().toArray()],
    ['forEach()', (cursor) => cursor.forEach(() => undefined)],
    ['map()', (cursor) => all(cursor.map(String))],
    ['toReadableStream()', (cursor) => all(cursor.toReadableStream() as unknown as AsyncIterable<number>)],
    [
      'next() until null',
      async (cursor) => {
        while ((await cursor.next()) !== null);
      },
    ],
    [
      'hasNext() and next()',
      async (cursor) => {
        while (await cursor.hasNext()) await cursor.next();
      },
    ],
    [
      'hasNext(), then for await',
      async (cursor) => {
        await cursor.hasNext();
        await all(cursor);
      },
    ],
    [
      'getReader()',
      async (cursor) => {
        const reader = cursor.getReader();
        while (!(await reader.read()).done);
      },
    ],
  ])(
    'the lock is held until the cursor has ended, and no longer, when it is read with %s',
    async (_name, read) => {
      const cursor = await give();
      await read(cursor);
      await expect(isFree()).resolves.toBe(true);
      expect(cursor.reads.length).toBeGreaterThanOrEqual(3);
      for (const seen of cursor.reads) expect(seen).toEqual(UNDER);
    },
  );

  test('the lock is held until a stream of Node that the cursor has made has ended', async () => {
    const cursor = await give();
    await expect(all(cursor.stream())).resolves.toEqual([3, 2, 1]);
    await until(isFree);
    expect(cursor.reads.map(({ isHeld }) => isHeld)).toEqual([true, true, true, true]);
  });

  test('the lock ends when the cursor is closed', async () => {
    const cursor = await give();
    await cursor.next();
    await expect(isFree()).resolves.toBe(false);
    await cursor.close();
    await expect(isFree()).resolves.toBe(true);
  });

  test('the lock ends when a method that reads the whole cursor fails, and the caller gets the error', async () => {
    const cursor = await give();
    await expect(cursor.all()).rejects.toThrow('of the cursor');
    await expect(isFree()).resolves.toBe(true);
  });

  test('a second `toArray()` is under a new lock', async () => {
    const cursor = await give();
    await expect(cursor.toArray()).resolves.toEqual([3, 2, 1]);
    await expect(cursor.toArray()).resolves.toEqual([]);
    expect(cursor.reads.at(-1)).toEqual(UNDER);
    await expect(isFree()).resolves.toBe(true);
  });

  describe('that is read in a way that does not show its end', () => {
    test.each<[string, (cursor: Cursor) => unknown]>([
      ['batch', (cursor) => cursor.batch()],
      ['each', (cursor) => cursor.each(() => undefined)],
    ])(
      'the lock ends after one ttl without a use, and a warning names the method once: %s',
      async (_name, read) => {
        const cursor = await service.giveBriefly(key, () => new Cursor(key));
        await read(cursor);
        await expect(isFree()).resolves.toBe(false);
        await until(isFree);
        expect(cursor.reads[0]).toEqual(UNDER);
        const warnings = lines.of('warn');
        expect(warnings).toHaveLength(1);
        expect(warnings[0]).toContain('Service.giveBriefly: its result was read with `batch`');
      },
    );

    test('each use of the cursor starts the ttl again', async () => {
      const cursor = await service.giveBriefly(key, () => new Cursor(key));
      const began = performance.now();
      while (performance.now() - began < 1.5 * SHORT_TTL) {
        await cursor.batch();
        await expect(isFree()).resolves.toBe(false);
        await sleep(20);
      }
    });
  });
});

test('a method that reads an Observable holds the lock until its Promise has settled', async () => {
  const seen: Read[] = [];
  const query = await service.give(
    key,
    () =>
      new Query((subscriber) => {
        void isFree().then((free) => {
          seen.push({ isHeld: !free, isUnder: currentLock(key) !== undefined });
          subscriber.next(7);
          subscriber.complete();
        });
      }),
  );
  await expect(query.list()).resolves.toEqual([7]);
  expect(seen).toEqual([UNDER]);
});

test('an emitter with an async iterator holds the lock until it is closed', async () => {
  const input = new PassThrough();
  const reader = await service.giveBriefly(key, () => createInterface({ input }));
  const read: string[] = [];
  reader.on('line', (line) => read.push(line));
  const began = performance.now();
  await until(() => performance.now() - began > 1.5 * SHORT_TTL);
  await expect(isFree()).resolves.toBe(false);
  input.end('a\nb\n');
  await until(isFree);
  expect(read).toEqual(['a', 'b']);
});

describe('a result with other ways to read it in its properties', () => {
  /** As the handle of a child process: its own iterator reads `stdout`. */
  class Output {
    readonly stdout = new PassThrough();
    readonly stderr = new PassThrough();
    readonly web = Readable.toWeb(new PassThrough()) as unknown as ReadableStream<string>;
    readonly lines = new Cursor(key);

    [Symbol.asyncIterator](): AsyncIterator<unknown> {
      return this.stdout[Symbol.asyncIterator]();
    }
  }

  test('the lock is held while a stream in a property is read, until the stream has ended', async () => {
    const output = await service.giveBriefly(key, () => new Output());
    const { stdout, stderr } = output;
    expect(stdout).toBe(output.stdout);
    const began = performance.now();
    const read = all(stdout);
    stderr.end();
    await until(() => performance.now() - began > 1.5 * SHORT_TTL);
    await expect(isFree()).resolves.toBe(false);
    stdout.end('a');
    await expect(read).resolves.toEqual([Buffer.from('a')]);
    await until(isFree);
  });

  test('a look at a property takes nothing from the iterator of the result', async () => {
    const output = await service.give(key, () => new Output());
    output.stderr.destroy();
    expect(output.web.locked).toBe(false);
    output.stdout.end('a');
    for await (const chunk of output) {
      expect(String(chunk)).toBe('a');
      await expect(isFree()).resolves.toBe(false);
    }
    await expect(isFree()).resolves.toBe(true);
  });

  test('an async iterable in a property is read under the lock, until its end', async () => {
    const output = await service.give(key, () => new Output());
    const { lines: rows } = output;
    expect(output.lines).toBe(rows);
    await expect(rows.toArray()).resolves.toEqual([3, 2, 1]);
    expect(rows.reads).toEqual([UNDER, UNDER, UNDER, UNDER]);
    await expect(isFree()).resolves.toBe(true);
  });
});

describe('a subclass of ReadableStream, or a stream with members of its own', () => {
  test.each<[string, (stream: ReadableStream<string>) => Promise<unknown>]>([
    ['for await', (stream) => all(stream as unknown as AsyncIterable<string>)],
    [
      'a reader',
      async (stream) => {
        const reader = stream.getReader();
        while (!(await reader.read()).done);
      },
    ],
    ['pipeTo', (stream) => stream.pipeTo(new WritableStream())],
    ['a Response', (stream) => new Response(stream.pipeThrough(new TextEncoderStream())).text()],
    [
      'tee',
      (stream) => Promise.all(stream.tee().map((each) => all(each as unknown as AsyncIterable<string>))),
    ],
    ['cancel', (stream) => stream.cancel()],
  ])('the caller gets the stream itself, and the lock is held until its end: %s', async (_name, read) => {
    const stream = ModelStream.of('a', 'b');
    const given = await service.give(key, () => stream);
    expect(given).toBe(stream);
    expect(given.model).toBe('m1');
    await expect(isFree()).resolves.toBe(false);
    await read(given);
    await until(isFree);
  });

  test('a stream with an added member keeps it', async () => {
    const stream = Object.assign(new ReadableStream<string>(), { usage: () => 7 });
    const given = await service.give(key, () => stream);
    expect(given.usage()).toBe(7);
    await given.cancel();
    await until(isFree);
  });

  test('the lock ends when the stream fails', async () => {
    const failing = new ModelStream({ pull: () => Promise.reject(new Error('of the stream')) });
    const given = await service.give(key, () => failing);
    await expect(all(given as unknown as AsyncIterable<string>)).rejects.toThrow('of the stream');
    await until(isFree);
  });

  test('a stream that nobody reads releases the lock after a ttl', async () => {
    const given = await service.giveBriefly(key, () => ModelStream.of('a'));
    await until(isFree);
    await expect(all(given as unknown as AsyncIterable<string>)).resolves.toEqual(['a']);
  });
});
