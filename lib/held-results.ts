import type { Readable } from 'node:stream';
import { finished } from 'node:stream';
import { isObservable } from 'rxjs';
import { HeldIterator } from './held-iterator.js';
import { heldObservable } from './held-observable.js';
import type { Begin, LockRun } from './lock-run.js';

/**
 * Keeps the lock until what a method's Promise resolved to has ended, if it is something that ends later; otherwise
 * ends the run now. Resolves to the same value or an equivalent one.
 *
 * What nobody has begun to read when a ttl has passed holds its lock no longer.
 *
 * @param again - begins another run, for whoever reads an equivalent value once more, or late
 */
export async function heldUntilEnd(result: unknown, run: LockRun, again: Begin): Promise<unknown> {
  if (isObservable(result)) return heldObservable(firstThen(run, again), () => result);
  const stream = streamOf(result);
  if (stream) {
    holdUntilFinished(stream, run);
    return result;
  }
  if (isAsyncIterable(result)) {
    const begin = firstThen(run, again);
    if (result instanceof ReadableStream) return heldWebStream(result, begin);
    return readThrough(result, () => new HeldIterator(begin, () => result, true));
  }
  await run.finish();
  return result;
}

/**
 * Hands out the run that has begun, once, and begins another for whoever comes later. When nobody comes before a ttl
 * has passed, the run ends: what is never read must not hold its lock for ever.
 */
function firstThen(run: LockRun, again: Begin): Begin {
  let first: LockRun | undefined = run;
  const unread = setTimeout(() => {
    first = undefined;
    void run.end();
  }, run.lock.ttl).unref();
  return (signal) => {
    if (!first) return again(signal);
    clearTimeout(unread);
    first = undefined;
    return Promise.resolve({ run });
  };
}

function holdUntilFinished(stream: Readable, run: LockRun): void {
  const unread = setTimeout(() => {
    // `null` as long as nobody has asked for data, in any way.
    if (stream.readableFlowing === null) void run.end();
  }, run.lock.ttl).unref();
  // Whether the stream fails is told to its reader, not to us.
  finished(stream, () => {
    clearTimeout(unread);
    void run.end();
  });
}

/** Cancelling reaches the source at once, also while a read is pending; the stream's own iterator would wait for that. */
function heldWebStream(stream: ReadableStream<unknown>, begin: Begin): ReadableStream<unknown> {
  const iterate = (): AsyncIterator<unknown> => {
    const reader = stream.getReader();
    return {
      next: () => reader.read() as Promise<IteratorResult<unknown>>,
      return: async (reason) => {
        await reader.cancel(reason);
        return { done: true, value: undefined };
      },
    };
  };
  return ReadableStream.from(new HeldIterator(begin, () => ({ [Symbol.asyncIterator]: iterate }), true));
}

/** `iterable` as it is, but read through the iterators that `iterate` makes. */
function readThrough(iterable: AsyncIterable<unknown>, iterate: () => AsyncGenerator): unknown {
  if (Object.prototype.toString.call(iterable) === '[object AsyncGenerator]') return iterate();
  return new Proxy(iterable, {
    get(target, property) {
      if (property === Symbol.asyncIterator) return iterate;
      const value: unknown = Reflect.get(target, property, target);
      // Methods of classes with private fields work on the object itself only.
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

function isAsyncIterable(value: unknown): value is AsyncIterable<unknown> {
  return typeof value === 'object' && value !== null && Symbol.asyncIterator in value;
}

/** A Node stream, or the one inside of Nest's `StreamableFile`. */
function streamOf(value: unknown): Readable | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  if ('getStream' in value && typeof value.getStream === 'function') return value.getStream() as Readable;
  return 'pipe' in value && 'on' in value ? (value as Readable) : undefined;
}
