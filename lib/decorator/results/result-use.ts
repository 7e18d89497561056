import { EventEmitter } from 'node:events';
import { isPromise } from 'node:util/types';
import type { Begin, LockScope } from '../../service/lock-scope.js';

/**
 * Methods that read a result to its end, or end it otherwise: when their Promise settles, the result has ended. These
 * are the names of the iterator helpers of JavaScript, of streams, and of the cursors of common database libraries.
 */
const READS_ALL: ReadonlySet<PropertyKey> = new Set([
  ...['toArray', 'forEach', 'reduce', 'some', 'every', 'find', 'all', 'collect', 'eachAsync', 'forEachAsync'],
  ...['pipeTo', 'text', 'json', 'arrayBuffer', 'blob', 'bytes'],
]);
const ENDS: ReadonlySet<PropertyKey> = new Set<PropertyKey>([
  ...['return', 'throw', 'close', 'destroy', 'cancel', 'abort'],
  Symbol.asyncDispose,
  Symbol.dispose,
]);

/** Methods that read one step. They show the end of the result with `null`, `undefined`, `false` or `{ done: true }`. */
const READS_ONE: ReadonlySet<PropertyKey> = new Set(['next', 'hasNext', 'read']);

/** A call of a method of a result. */
export interface MethodCall {
  readonly name: PropertyKey;
  readonly object: object;
  /** The stand-in of the result, for a method that returns the result itself. */
  readonly self: object;
  readonly method: (...args: unknown[]) => unknown;
  readonly args: readonly unknown[];
}

/** Wraps what a method of the result returns, if it is read later; otherwise returns `undefined`. */
export type HoldPart = (part: object, use: ResultUse) => object | undefined;

/**
 * The use of one result of a locked method. Ends the scope when the result has ended, by whatever way it is read (S25).
 *
 * If the end cannot be known, the scope ends when the result has not been used for one ttl.
 */
export class ResultUse {
  /** `true` if an iterator or a stream reads the result, and will end the scope. */
  #isTaken = false;
  #unsettled = 0;
  #unused: NodeJS.Timeout | undefined;
  /** Streams in properties of the result that have not ended, each with a function that tells if somebody reads it. */
  readonly #streams = new Map<object, () => boolean>();
  /** The objects that were handed out for the values of properties of the result. */
  readonly #properties = new WeakMap<object, object>();
  /** The last method that read the result and whose end does not show whether the result has ended. */
  #unclear: PropertyKey | undefined;

  /**
   * @param again - acquires the lock again, for a reader that comes after the end of the scope
   * @param tellUnclear - called with the name of a method, when the scope ends because nobody has used the result for one
   * ttl, and it cannot be known whether the result has ended
   */
  constructor(
    readonly scope: LockScope,
    private readonly again: Begin,
    private readonly tellUnclear: (how: string) => void,
  ) {}

  /** Ends the scope after one ttl without a use. A result that nobody reads must not hold its lock for ever. */
  awaitUse(): void {
    clearTimeout(this.#unused);
    if (this.#isTaken || this.#unsettled > 0 || this.scope.isOver) return;
    this.#unused = setTimeout(() => {
      if (this.scope.isOver) return;
      if (this.#isStreaming) return this.awaitUse();
      if (this.#unclear !== undefined) this.tellUnclear(String(this.#unclear));
      void this.scope.end();
    }, this.scope.lock.ttl).unref();
  }

  get #isStreaming(): boolean {
    return [...this.#streams.values()].some((isInUse) => isInUse());
  }

  /**
   * Lets the scope go on while somebody reads the stream, which is in a property of the result.
   *
   * @returns the function to call when the stream has ended; `undefined` if the stream is known
   */
  watch(stream: object, isInUse: () => boolean): (() => void) | undefined {
    if (this.scope.isOver || this.#streams.has(stream)) return undefined;
    this.#streams.set(stream, isInUse);
    this.awaitUse();
    return () => {
      this.#streams.delete(stream);
      const isOther = this.#isTaken || this.#unsettled > 0 || this.#isStreaming;
      if (isInUse() && !isOther) void this.scope.end();
    };
  }

  /** Returns what `make` makes for a property of the result, and the same object each time. */
  once(value: object, make: () => object | undefined): object {
    const made = this.#properties.get(value) ?? make() ?? value;
    this.#properties.set(value, made);
    return made;
  }

  /** Leaves the end of the scope to an iterator or a stream. */
  take(): LockScope {
    this.#isTaken = true;
    clearTimeout(this.#unused);
    return this.scope;
  }

  /** Gives the present scope to the first reader, and begins a new scope for each later reader. */
  readonly begin: Begin = (signal) => {
    if (this.#isTaken || this.scope.isOver) return this.again(signal);
    return Promise.resolve({ scope: this.take() });
  };

  /** Calls a method of the result under the lock. */
  call({ name, object, self, args, method }: MethodCall, hold: HoldPart): unknown {
    const call = (): unknown => Reflect.apply(method, object, args);
    if (this.scope.isOver) return READS_ALL.has(name) ? this.#callAgain(call) : call();
    this.#unsettled++;
    clearTimeout(this.#unused);
    let result: unknown;
    try {
      result = this.scope.inside(call);
    } catch (error) {
      this.#settled();
      throw error;
    }
    const handOut = (value: unknown): unknown => (value === object ? self : this.#part(name, value, hold));
    if (isPromise(result) && result.constructor === Promise)
      return this.#follow(name, object, result, handOut);
    this.#settled();
    if (ENDS.has(name)) void this.scope.end();
    else if (args.some((arg) => typeof arg === 'function')) this.#calledBack(name, object);
    return handOut(result);
  }

  async #follow(
    name: PropertyKey,
    object: object,
    result: Promise<unknown>,
    handOut: (value: unknown) => unknown,
  ): Promise<unknown> {
    let value: unknown;
    try {
      value = await result;
    } catch (error) {
      this.#settled();
      if (READS_ALL.has(name) || ENDS.has(name)) await this.scope.end();
      throw error;
    }
    this.#settled();
    if (READS_ALL.has(name) || (READS_ONE.has(name) && isEnd(value)) || hasEnded(object))
      await this.scope.finish();
    else if (ENDS.has(name)) await this.scope.end();
    else this.#unclear = name;
    return handOut(value);
  }

  /** Calls a method that reads the whole result, after the end of the scope: under a new lock. */
  async #callAgain(call: () => unknown): Promise<unknown> {
    const begun = await this.again();
    return begun.scope ? begun.scope.run(call) : begun.instead[0];
  }

  /** Wraps the value that a method of the result has returned, if the value is another way to read the result. */
  #part(name: PropertyKey, value: unknown, hold: HoldPart): unknown {
    if (typeof value !== 'object' || value === null || this.scope.isOver) return value;
    try {
      // A thenable that is no Promise, such as a query builder, keeps its members, so nothing shows when it settles.
      if ('then' in value) this.#unclear = name;
      return hold(value, this) ?? value;
    } catch {
      // The value throws when it is inspected, so nothing shows who reads it.
      this.#unclear = name;
      return value;
    }
  }

  /** A function that was passed to the method will get the values. An emitter tells its end; nothing else does. */
  #calledBack(name: PropertyKey, object: object): void {
    if (!(object instanceof EventEmitter)) {
      this.#unclear = name;
      return;
    }
    if (this.#isTaken) return;
    const scope = this.take();
    scope.endWith(object);
    for (const event of ['end', 'close']) object.once(event, () => void scope.end());
  }

  #settled(): void {
    this.#unsettled--;
    this.awaitUse();
  }
}

function isEnd(value: unknown): boolean {
  if (value === null || value === undefined || value === false) return true;
  return typeof value === 'object' && (value as { readonly done?: unknown }).done === true;
}

/** `true` if the result says that it has ended, as cursors and streams do. */
function hasEnded(object: object): boolean {
  try {
    const { closed, destroyed } = object as { readonly closed?: unknown; readonly destroyed?: unknown };
    return closed === true || destroyed === true;
  } catch {
    return false;
  }
}
