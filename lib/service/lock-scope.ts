import { AsyncLocalStorage } from 'node:async_hooks';
import type { WatchableLock } from '../telemetry/lock-telemetry.js';
import type { Surrounded } from '../telemetry/lock-telemetry.events.js';
import type { Joined } from '../redlock/held-lock.js';
import type { LockHandle } from '../core/lock-handle.js';
import { NO_SLOT } from '../core/slot-list.js';

/** A lock, as the work under it uses it. */
export interface RunnableLock extends LockHandle, WatchableLock {
  /** The nested call that joined the lock and has not left it (S18). */
  joined: Joined | undefined;
  /** Marks the lock as lost. */
  lose(reason: string): void;
}

/** A reason to keep a lock after its code has ended. */
export interface Outlived {
  readonly isOver: boolean;
}

/** One level of nested scopes. */
interface Frame {
  readonly scope: LockScope;
  readonly outer: Frame | undefined;
}

const frames = new AsyncLocalStorage<Frame>();

/** The innermost scope of the running call that `fits`. */
export function currentScope(fits: (scope: LockScope) => boolean): LockScope | undefined {
  for (let frame = frames.getStore(); frame; frame = frame.outer) {
    if (fits(frame.scope)) return frame.scope;
  }
  return undefined;
}

/** Code that runs under a lock: from the acquisition to the release. */
export class LockScope {
  /** The slot in the list of running scopes. */
  slot = NO_SLOT;
  #isOver = false;

  /**
   * @param source - the runtime that acquired the lock: two module instances can have different locks of the same key
   * @param transaction - the lock is kept until it ends
   */
  constructor(
    readonly lock: RunnableLock,
    readonly source: object,
    private readonly onLost: 'throw' | 'ignore',
    private readonly around: Surrounded['around'],
    private readonly ended: () => void,
    private readonly transaction?: Outlived,
  ) {}

  /** Runs `task` so that it, and all that it starts, gets the lock as its current one. */
  inside<T>(task: () => T): T {
    const run = (): T => frames.run({ scope: this, outer: frames.getStore() }, task);
    return this.around ? this.around(run) : run();
  }

  /** `true` if calls that were started inside are still under the lock, or if the lock was lost while they were. */
  get covers(): boolean {
    const { state } = this.lock;
    return state === 'lost' || (state !== 'released' && (!this.#isOver || this.awaitsCommit));
  }

  /** Called when the transaction for which the lock was kept is committed or rolled back. */
  transactionEnded(): void {
    if (this.#isOver) void this.end();
  }

  /** `true` if the code has ended and the lock is kept for the transaction around it. */
  get awaitsCommit(): boolean {
    return this.#isOver && this.transaction?.isOver === false;
  }

  /** Called when the nested call that joined the lock has left it, or is no longer waited for. */
  left(): Promise<void> {
    return this.#isOver ? this.end() : Promise.resolve();
  }

  /**
   * Releases the lock after the code has succeeded.
   * @throws LockLostError when the lock was lost meanwhile, unless `onLost` is `'ignore'`
   */
  finish(): Promise<void> {
    const { loss } = this.lock;
    const ended = this.end();
    if (!loss || this.onLost === 'ignore') return ended;
    return ended.then(() => {
      throw loss;
    });
  }

  /** Ends the scope when its result is no longer reachable, because nobody can end it then (S25). */
  endWith(result: object): void {
    outOfReach.register(result, this);
  }

  /**
   * Releases the lock, whether the code succeeded or not. Never rejects.
   *
   * A nested call that joined the lock and that nobody awaited goes on, and must not lose the lock (S18). The lock is
   * released when that call ends. This method does not wait for that, because the nested call could be waiting for the
   * caller of this one. A transaction that keeps the lock is treated in the same way.
   */
  end(): Promise<void> {
    this.#isOver = true;
    // No wait: the caller of this method commits.
    if (this.awaitsCommit) return Promise.resolve();
    const released = this.lock.joined?.isRun ? Promise.resolve() : this.lock.release();
    return released.then(this.ended);
  }
}

const outOfReach = new FinalizationRegistry<LockScope>((run) => void run.end());

/** A started run or, because others hold the lock, the values in place of the method's. */
export type Begun =
  { readonly run: LockScope } | { readonly run: undefined; readonly instead: readonly unknown[] };

/** Acquires the lock and begins a run; the signal ends the wait for the lock. */
export type Begin = (signal?: AbortSignal) => Promise<Begun>;
