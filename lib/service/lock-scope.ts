import { AsyncLocalStorage } from 'node:async_hooks';
import { isPromise } from 'node:util/types';
import type { WatchableLock } from '../telemetry/lock-telemetry.js';
import type { Surrounded } from '../telemetry/lock-telemetry.events.js';
import type { Joined } from '../redlock/held-lock.js';
import type { LockHandle } from '../core/lock-handle.js';
import { NO_SLOT } from '../core/slot-list.js';

/** The members of a lock that code under the lock uses. */
export interface RunnableLock extends LockHandle, WatchableLock {
  /** The nested call that joined the lock and has not left it (S18). */
  joined: Joined | undefined;
  /** Tells why the lock must stay with this call, and cannot be detached. */
  boundBy: (() => string | undefined) | undefined;
  /** The signal, for listeners of the library: reading it does not set the context of the application's listeners. */
  readonly lossSignal: AbortSignal;
  /** Marks the lock as lost. */
  lose(reason: string): void;
  /** The properties that `JSON.stringify` and loggers show. */
  described(): object;
}

/** A transaction, or another reason to keep a lock after the code under the lock has ended. */
export interface Outlived {
  readonly isOver: boolean;
}

/** One level of nested scopes. */
interface Frame {
  readonly scope: LockScope;
  outer: Frame | undefined;
}

const frames = new AsyncLocalStorage<Frame | undefined>();

/**
 * The innermost scope of the running call for which `fits` is true. A scope that has ended does not count (S30): a
 * worker that was made under a lock keeps its asynchronous context for ever, and runs jobs of other callers in it.
 */
export function currentScope(fits: (scope: LockScope) => boolean): LockScope | undefined {
  for (let frame = openFrame(frames.getStore()); frame; frame = nextOpen(frame)) {
    if (fits(frame.scope)) return frame.scope;
  }
  return undefined;
}

/** `false` if the running call is surely made under no lock. */
export function isInScope(): boolean {
  return frames.getStore() !== undefined;
}

/**
 * Runs `task` under no lock: `currentLock()` is undefined in it, and a `reentrant` call in it joins no lock of the
 * calling code. All other asynchronous contexts stay the same, such as those of loggers, traces and transactions.
 * Inside an open transaction, a lock that the transaction keeps (`release: 'afterCommit'`) can still be joined.
 *
 * Use it for work that a locked method starts, but that does not belong to the method. Examples are a job in the
 * background, and a pool or a queue that is made on first use. Otherwise that work counts as nested calls of the method
 * while the method runs.
 *
 * @returns the result of `task`
 * @example
 * ```ts
 * import { outside, WithLock } from 'nestjs-redlock';
 *
 * declare class Mailer {
 *   send(text: string): void;
 * }
 *
 * class Orders {
 *   #mailer: Mailer | undefined;
 *
 *   @WithLock((id: number) => `order:${id}`)
 *   async settle(id: number): Promise<void> {
 *     this.#mailer ??= outside(() => new Mailer());
 *     this.#mailer.send(`Order ${id} is settled`);
 *   }
 * }
 * ```
 * @see docs/decorator.md#nested-calls
 */
export function outside<T>(task: () => T): T {
  return frames.run(undefined, task);
}

/** The first frame, from `frame` outwards, whose scope has not ended. */
function openFrame(frame: Frame | undefined): Frame | undefined {
  let open = frame;
  while (open?.scope.isOver) open = open.outer;
  return open;
}

/**
 * The next frame outwards whose scope has not ended. Removes the ended frames between the two: otherwise a method that
 * starts its own next run from inside its lock would make the chain longer with each run.
 */
function nextOpen(frame: Frame): Frame | undefined {
  return (frame.outer = openFrame(frame.outer));
}

/** The frames of the running call whose scopes have not ended. */
function openFrames(): Frame | undefined {
  const innermost = openFrame(frames.getStore());
  for (let frame = innermost; frame;) frame = nextOpen(frame);
  return innermost;
}

/** Code that runs under a lock: from the acquisition to the release. */
export class LockScope {
  /** Position in the list of running scopes. */
  slot = NO_SLOT;
  #isOver = false;
  readonly #source: object;
  readonly #transaction: Outlived | undefined;

  /**
   * @param source - the runtime that acquired the lock: two module instances can have different locks of the same key
   * @param transaction - the transaction that keeps the lock until the transaction ends
   */
  constructor(
    readonly lock: RunnableLock,
    source: object,
    private readonly onLost: 'throw' | 'ignore',
    private readonly around: Surrounded['around'],
    private readonly ended: () => void,
    transaction?: Outlived,
  ) {
    this.#source = source;
    this.#transaction = transaction;
  }

  get source(): object {
    return this.#source;
  }

  /** Runs `task` with the lock as its current lock, also in all calls that `task` starts. */
  inside<T>(task: () => T): T {
    const enter = (): T => frames.run({ scope: this, outer: openFrames() }, task);
    return this.around ? this.around(enter) : enter();
  }

  /**
   * Runs `task` as {@link inside} does. If `task` returns a thenable that begins its work when it is awaited, such as a
   * query builder, the work begins here, under the lock, and only once.
   */
  settle<T>(task: () => T | PromiseLike<T>): T | Promise<T> {
    return this.inside(() => started(task()));
  }

  /** `true` when the code has ended. The lock may be held for longer: see {@link awaitsCommit} and {@link end}. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /**
   * `true` if the calls that are made inside the scope, or inside the transaction that keeps the lock, can join the
   * lock or learn of its loss.
   */
  get covers(): boolean {
    return this.lock.state !== 'released' && (!this.#isOver || this.awaitsCommit);
  }

  /** Called when the transaction for which the lock was kept is committed or rolled back. */
  transactionEnded(): void {
    if (this.#isOver) void this.end();
  }

  /** `true` if the code has ended and the lock is kept for the transaction around it. */
  get awaitsCommit(): boolean {
    return this.#isOver && this.#transaction?.isOver === false;
  }

  /** Called when the nested call that joined the lock has ended, or has given the lock to its caller as a handle. */
  left(): Promise<void> {
    return this.#isOver ? this.end() : Promise.resolve();
  }

  /**
   * Runs `task` under the lock and then releases the lock. The result or error of `task` takes precedence over errors of
   * the lock.
   *
   * @throws LockLostError as {@link finish} does
   */
  async run<T>(task: () => T | PromiseLike<T>): Promise<T> {
    let result: T;
    try {
      result = await this.settle(task);
    } catch (error) {
      await this.end();
      throw error;
    }
    await this.finish();
    return result;
  }

  /**
   * Releases the lock after the code has succeeded.
   * @throws LockLostError when the lock was lost, unless `onLost` is `'ignore'`
   */
  finish(): Promise<void> {
    const { loss } = this.lock;
    const ended = this.end();
    if (!loss || this.onLost === 'ignore') return ended;
    return ended.then(() => {
      throw loss;
    });
  }

  /** Ends the scope when `result` is garbage-collected: after that no other code can end the scope (S25). */
  endWith(result: object): void {
    outOfReach.register(result, this);
  }

  /**
   * Releases the lock after the code has succeeded or failed. Never rejects.
   *
   * A nested call that joined the lock may still run, because nobody awaited it, and must not lose the lock (S18). The
   * lock is then released when the nested call ends. This method does not wait for the nested call, which may itself
   * wait for the caller of this method. The same applies to a transaction that keeps the lock.
   */
  end(): Promise<void> {
    this.#isOver = true;
    // Do not wait for the transaction: the caller of this method commits it.
    if (this.awaitsCommit) return Promise.resolve();
    const released = this.lock.joined?.isCall ? Promise.resolve() : this.lock.release();
    return released.then(this.ended);
  }
}

/**
 * Returns a result that `await` can take without side effects: calls the `then` of a thenable now, in the running
 * asynchronous context, and only here. Query builders (knex, mongoose) begin their work in `then`, in the context of its
 * caller, and once for each call.
 */
function started<T>(result: T | PromiseLike<T>): T | Promise<T> {
  // `await` does not call the `then` of a plain Promise. `isPromise` runs no code of the result, in contrast to
  // `instanceof`.
  if (isPromise(result) && result.constructor === Promise) return result as Promise<T>;
  if (Object(result) !== result) return result as T;
  const { then } = result as { readonly then?: unknown };
  if (typeof then !== 'function') return result as T;
  return new Promise<T>((resolve, reject) => void Reflect.apply(then, result, [resolve, reject]));
}

const outOfReach = new FinalizationRegistry<LockScope>((scope) => void scope.end());

/**
 * The scope that has begun under its lock. If others hold the lock, there is no scope, and the caller gets the values in
 * `instead` in place of the method's values.
 */
export type Begun =
  { readonly scope: LockScope } | { readonly scope: undefined; readonly instead: readonly unknown[] };

/** Acquires the lock and begins a scope; the signal ends the wait for the lock. */
export type Begin = (signal?: AbortSignal) => Promise<Begun>;
