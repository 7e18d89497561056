import { StreamableFile } from '@nestjs/common';
import { EventEmitter } from 'node:events';
import { finished, isReadable, type Readable, Stream } from 'node:stream';
import type { ReadableByteStreamController } from 'node:stream/web';
import { types } from 'node:util';
import { isObservable, Observable, observable as interop } from 'rxjs';
import { HeldIterator } from './held-iterator.js';
import { heldObservable } from './held-observable.js';
import type { Begin, LockScope } from '../../service/lock-scope.js';
import { standIn } from './stand-in.js';

/**
 * Keeps the lock until a deferred result, such as a stream, has ended; for any other result it ends the run now.
 * Resolves to the same value, or to a wrapper that is read under the lock.
 *
 * A result that nobody has started to read within a ttl releases its lock.
 *
 * @param again - begins another run, for a second or late reader of the result
 * @throws LockLostError when the lock was lost, unless that is to be ignored
 */
export async function heldUntilEnd(result: unknown, run: LockScope, again: Begin): Promise<unknown> {
  if (typeof result === 'object' && result !== null) {
    try {
      const held = hold(result, run, again);
      if (held) return held;
    } catch {
      // Inspection of the result throws, so its end is unknown: it is a plain value (S25).
    }
  }
  await run.finish();
  return result;
}

/** Wrapper to return for a deferred result; `undefined` for any other result. */
function hold(result: object, run: LockScope, again: Begin): object | undefined {
  if (isOneObservable(result)) {
    const observable = heldObservable(firstThen(run, again), () => result);
    return standIn(result, membersOf(observable, OF_OBSERVABLE));
  }
  // By more than its `getStream`, which is not ours to call on anything else.
  const stream: unknown = result instanceof StreamableFile ? result.getStream() : result;
  if (isStream(stream)) {
    if (!isOpen(stream)) return undefined;
    holdUntilFinished(stream, run);
    return result;
  }
  if (!isAsyncIterable(result)) return undefined;
  if (result instanceof ReadableStream) {
    return result.locked ? undefined : heldWebStream(result, firstThen(run, again));
  }
  const begin = firstThen(run, again);
  const iterate = (): HeldIterator => new HeldIterator(begin, () => result, true);
  const members = types.isGeneratorObject(result)
    ? membersOf(iterate(), ['next', 'return', 'throw', Symbol.asyncIterator, Symbol.asyncDispose])
    : new Map([[Symbol.asyncIterator, iterate]]);
  return standIn(result, members);
}

/** Reader of an Observable. */
const OF_OBSERVABLE: readonly PropertyKey[] = ['subscribe', 'pipe', 'forEach', 'toPromise', 'lift', interop];

function membersOf(object: object, names: readonly PropertyKey[]): ReadonlyMap<PropertyKey, unknown> {
  const members = object as Readonly<Record<PropertyKey, () => unknown>>;
  return new Map(names.map((name) => [name, members[name]?.bind(object)]));
}

/**
 * Returns the present run to the first reader, and begins another run for each later one. Without a reader the run ends
 * after a ttl: a result that is never read must not hold its lock for ever.
 */
function firstThen(run: LockScope, again: Begin): Begin {
  let first: LockScope | undefined = run;
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

/** Of a stream of Node; one of another package may lack any. */
interface StreamState {
  readonly readableFlowing?: boolean | null;
  readonly writable?: boolean;
  readonly writableFinished?: boolean;
  readonly writableEnded?: boolean;
  readonly writableLength?: number;
  /** Of a response. */
  readonly headersSent?: boolean;
  /** Of a file or a socket. */
  readonly bytesWritten?: number;
}

type NodeStream = EventEmitter & StreamState;

function holdUntilFinished(stream: NodeStream, run: LockScope): void {
  let unread: NodeJS.Timeout | undefined;
  // The stream reports its failure to its reader, not to us.
  finished(stream as Stream as Readable, () => {
    clearTimeout(unread);
    void run.end();
  });
  run.endWith(stream);
  unread = setTimeout(() => {
    if (!isInUse(stream)) void run.end();
  }, run.lock.ttl).unref();
}

/** True if reading or writing has started, as far as a stream shows. */
function isInUse(stream: NodeStream): boolean {
  try {
    const { readableFlowing, writableEnded, headersSent, writableLength = 0, bytesWritten = 0 } = stream;
    // `null` until something asks for data, in any way.
    if (readableFlowing === null) return false;
    return (
      typeof readableFlowing === 'boolean' ||
      writableEnded === true ||
      headersSent === true ||
      writableLength + bytesWritten > 0 ||
      // A pipe into the stream listens to the last of these events; a reader of an old stream to one of the others.
      ['data', 'readable', 'unpipe'].some((event) => stream.listenerCount(event) > 0)
    );
  } catch {
    // A timer asks, whose error would end the process.
    return false;
  }
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
  const held = new HeldIterator(begin, () => ({ [Symbol.asyncIterator]: iterate }), true);
  return new ReadableStream<unknown>(
    {
      type: (isOfBytes(stream) ? 'bytes' : undefined) as undefined,
      pull: async (controller): Promise<void> => {
        const { done, value } = await held.next();
        if (!done) return controller.enqueue(value);
        controller.close();
        // A byte stream that is closed still has to answer who waits for bytes.
        (controller as Partial<ReadableByteStreamController>).byobRequest?.respond(0);
      },
      cancel: async (reason) => void (await held.return(reason)),
    },
    { highWaterMark: 0 },
  );
}

/** True if the stream fills buffers of its reader, which only a trial shows. */
function isOfBytes(stream: ReadableStream<unknown>): boolean {
  try {
    stream.getReader({ mode: 'byob' }).releaseLock();
    return true;
  } catch {
    return false;
  }
}

function isAsyncIterable(value: object): value is AsyncIterable<unknown> {
  return Symbol.asyncIterator in value && typeof value[Symbol.asyncIterator] === 'function';
}

/** True for an Observable of the application's rxjs or of another copy. The test reads more than its methods, which other clients may have, too. */
function isOneObservable(value: object): value is Observable<unknown> {
  if (value instanceof Observable) return true;
  return (
    isObservable(value) && typeof (value as unknown as Record<PropertyKey, unknown>)[interop] === 'function'
  );
}

/** True for a stream of Node, or of a package that follows it. The test reads more than its methods: other objects have `pipe` and `on`, too. */
function isStream(value: unknown): value is NodeStream {
  return value instanceof Stream || (value instanceof EventEmitter && isReadable(value as Readable) !== null);
}

/** True if the stream has an end to wait for. */
function isOpen(stream: NodeStream): boolean {
  const { writable, writableEnded, writableFinished } = stream;
  const isWritten = stream instanceof Stream && (writable || (writableEnded && !writableFinished));
  return isWritten === true || isReadable(stream as Stream as Readable);
}
