import { StreamableFile } from '@nestjs/common';
import { EventEmitter } from 'node:events';
import { finished, isReadable, type Readable, Stream } from 'node:stream';
import type { ReadableByteStreamController } from 'node:stream/web';
import { types } from 'node:util';
import { isObservable, Observable, observable as interop } from 'rxjs';
import { HeldIterator } from './held-iterator.js';
import { heldObservable } from './held-observable.js';
import type { Begin, LockScope } from '../../service/lock-scope.js';
import { ResultUse } from './result-use.js';
import { standIn } from './stand-in.js';

/**
 * Keeps the lock until a deferred result, such as a stream, has ended; for any other result releases the lock now.
 * Resolves to the same value, or to a wrapper that is read under the lock.
 *
 * If nobody starts to read the result within one ttl, the lock is released.
 *
 * @param again - acquires the lock again, for a second or late reader of the result
 * @param tellUnclear - called with the name of a method of the result, if it was read with that method and its end
 * cannot be known
 * @throws LockLostError when the lock was lost, unless `onLost` is `'ignore'`
 */
export async function heldUntilEnd(
  result: unknown,
  scope: LockScope,
  again: Begin,
  tellUnclear: (how: string) => void,
): Promise<unknown> {
  if (typeof result === 'object' && result !== null) {
    try {
      const held = hold(result, new ResultUse(scope, again, tellUnclear));
      if (held) return held;
    } catch {
      // The result throws when it is inspected, so its end cannot be known. Treat it as a plain value (S25).
    }
  }
  await scope.finish();
  return result;
}

/** Returns the wrapper or the stream for a deferred result; `undefined` for any other result. */
function hold(result: object, use: ResultUse): object | undefined {
  if (isOneObservable(result)) {
    const observable = heldObservable(use.begin, () => result);
    return used(result, membersOf(observable, OF_OBSERVABLE), use);
  }
  // Check the class before `getStream` is called: on another object, a method of this name may do anything.
  const stream: unknown = result instanceof StreamableFile ? result.getStream() : result;
  if (isStream(stream)) {
    if (!isOpen(stream)) return undefined;
    holdUntilFinished(stream, use.take());
    return result;
  }
  if (!isAsyncIterable(result)) return undefined;
  if (result instanceof ReadableStream) {
    if (result.locked) return undefined;
    if (!isPlainWebStream(result)) {
      // A copy would lack the members of the subclass, or the members that were added to the stream.
      holdUntilFinished(result, use.take());
      return result;
    }
    use.awaitUse();
    return heldWebStream(result, use.begin);
  }
  const iterate = (): HeldIterator => new HeldIterator(use.begin, () => result, true);
  const members = types.isGeneratorObject(result)
    ? membersOf(iterate(), ['next', 'return', 'throw', Symbol.asyncIterator, Symbol.asyncDispose])
    : new Map([[Symbol.asyncIterator, iterate]]);
  return used(result, members, use);
}

/** Makes a wrapper whose `members` are read under the lock, and whose other methods are followed. */
function used(result: object, members: ReadonlyMap<PropertyKey, unknown>, use: ResultUse): object {
  use.awaitUse();
  return standIn(result, members, {
    call: (call) => use.call(call, holdPart),
    property: (value) => holdProperty(value, use),
  });
}

/** Holds what a method of a result has returned, if it is another way to read the result. */
function holdPart(part: object, use: ResultUse): object | undefined {
  const held = hold(part, use);
  if (held) return held;
  // An iterator or a reader: its methods read the result.
  const isReader = ['next', 'read'].some(
    (name) => typeof (part as Readonly<Record<string, unknown>>)[name] === 'function',
  );
  return isReader && !isStream(part) ? used(part, new Map(), use) : undefined;
}

/**
 * Follows the value of a property of a result, if it is another way to read the result. Unlike the call of a method, the
 * look at a property shows no intention to read: so a stream does not take the scope until somebody reads it.
 */
function holdProperty(value: object, use: ResultUse): object {
  try {
    if (isStream(value) || value instanceof ReadableStream) {
      if (isReadable(value as Readable)) watchStream(value, use);
      return value;
    }
    return isAsyncIterable(value) ? use.once(value, () => hold(value, use)) : value;
  } catch {
    // The value throws when it is inspected, so nothing shows who reads it.
    return value;
  }
}

function watchStream(stream: NodeStream | ReadableStream<unknown>, use: ResultUse): void {
  const ended = use.watch(stream, () => isInUse(stream));
  // The callback ignores the stream's error: the stream reports it to its reader.
  if (ended) finished(stream as unknown as Readable, ended);
}

/** Methods of an Observable that the wrapper replaces. */
const OF_OBSERVABLE: readonly PropertyKey[] = ['subscribe', 'pipe', 'forEach', 'toPromise', 'lift', interop];

function membersOf(object: object, names: readonly PropertyKey[]): ReadonlyMap<PropertyKey, unknown> {
  const members = object as Readonly<Record<PropertyKey, () => unknown>>;
  return new Map(names.map((name) => [name, members[name]?.bind(object)]));
}

/** Properties of a stream of Node. A stream of another package may lack any of them. */
interface StreamState {
  readonly readableFlowing?: boolean | null;
  readonly writable?: boolean;
  readonly writableFinished?: boolean;
  readonly writableEnded?: boolean;
  readonly writableLength?: number;
  /** Only a response has this property. */
  readonly headersSent?: boolean;
  /** Only a file or a socket has this property. */
  readonly bytesWritten?: number;
}

type NodeStream = EventEmitter & StreamState;

/** Ends the scope when the stream has ended, by whatever way it is read; and after one ttl in which nobody reads it. */
function holdUntilFinished(stream: NodeStream | ReadableStream<unknown>, scope: LockScope): void {
  let unread: NodeJS.Timeout | undefined;
  // The callback ignores the stream's error: the stream reports it to its reader.
  finished(stream as unknown as Readable, () => {
    clearTimeout(unread);
    void scope.end();
  });
  scope.endWith(stream);
  unread = setTimeout(() => {
    if (!isInUse(stream)) void scope.end();
  }, scope.lock.ttl).unref();
}

/** `true` if reading or writing has started, as far as the stream shows it. */
function isInUse(stream: NodeStream | ReadableStream<unknown>): boolean {
  if (stream instanceof ReadableStream) return stream.locked;
  try {
    const { readableFlowing, writableEnded, headersSent, writableLength = 0, bytesWritten = 0 } = stream;
    // The value stays `null` until a reader asks for data.
    if (readableFlowing === null) return false;
    return (
      typeof readableFlowing === 'boolean' ||
      writableEnded === true ||
      headersSent === true ||
      writableLength + bytesWritten > 0 ||
      // A pipe into this stream listens to `unpipe`; a reader of a stream in the old style listens to `data` or
      // `readable`.
      ['data', 'readable', 'unpipe'].some((event) => stream.listenerCount(event) > 0)
    );
  } catch {
    // A timer calls this function, and an error in a timer would end the process.
    return false;
  }
}

/**
 * Wraps a `ReadableStream` of Web Streams so that a cancellation reaches the source immediately, also during a pending
 * read. The stream's own iterator would wait for that read.
 */
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
        // A closed byte stream must still answer a reader that waits for bytes.
        (controller as Partial<ReadableByteStreamController>).byobRequest?.respond(0);
      },
      cancel: async (reason) => void (await held.return(reason)),
    },
    { highWaterMark: 0 },
  );
}

/** `true` for a stream of the class `ReadableStream` itself, to which the application has added no members. */
function isPlainWebStream(stream: ReadableStream<unknown>): boolean {
  if (Object.getPrototypeOf(stream) !== ReadableStream.prototype) return false;
  return Reflect.ownKeys(stream).every((name) => typeof name === 'symbol' && name !== Symbol.asyncIterator);
}

/** `true` if the stream can fill buffers that its reader provides. Only a trial shows that. */
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

/**
 * `true` for an Observable of any copy of rxjs. A check of the methods alone is not enough, because other objects have
 * methods with the same names.
 */
function isOneObservable(value: object): value is Observable<unknown> {
  if (value instanceof Observable) return true;
  return (
    isObservable(value) && typeof (value as unknown as Record<PropertyKey, unknown>)[interop] === 'function'
  );
}

/**
 * `true` for a stream of Node, or of a package with the same interface. A check of the methods alone is not enough,
 * because other objects also have `pipe` and `on`.
 */
function isStream(value: unknown): value is NodeStream {
  return value instanceof Stream || (value instanceof EventEmitter && isReadable(value as Readable) !== null);
}

/** `true` if the stream has not ended yet. */
function isOpen(stream: NodeStream): boolean {
  const { writable, writableEnded, writableFinished } = stream;
  const isWritten = stream instanceof Stream && (writable || (writableEnded && !writableFinished));
  return isWritten === true || isReadable(stream as Stream as Readable);
}
