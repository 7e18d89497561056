import { AsyncLocalStorage } from 'node:async_hooks';
import type { WatchableLock } from '../telemetry/lock-telemetry.js';
import type { Surrounded } from '../telemetry/lock-telemetry.events.js';
import type { Joined } from '../redlock/held-lock.js';
import type { LockHandle } from '../core/lock-handle.js';
import { NO_SLOT } from '../core/slot-list.js';

/** A lock as what runs under it needs it. */
export interface RunnableLock extends LockHandle, WatchableLock {
  /** What has joined the lock and not left it yet (S18). */
  joined: Joined | undefined;
  /** Takes the lock for lost. */
  lose(reason: string): void;
}

/** What a lock is kept for when its code has ended. */
export interface Outlived {
  readonly isOver: boolean;
}

/** What runs under a lock, and what runs around that. */
interface Frame {
  readonly scope: LockScope;
  readonly outer: Frame | undefined;
}

const frames = new AsyncLocalStorage<Frame>();

/** The innermost scope that the running call is in and that `fits`. */
export function currentScope(fits: (scope: LockScope) => boolean): LockScope | undefined {
  for (let frame = frames.getStore(); frame; frame = frame.outer) {
    if (fits(frame.scope)) return frame.scope;
  }
  return undefined;
}

/** Code that runs under a lock: from the acquisition to the release. */
export class LockScope {
  /** For the list of all that run. */
  slot = NO_SLOT;
  #isOver = false;

  /**
   * @param source - who acquired the lock: two module instances can have different locks of the same key
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

  /** Runs `task` so that it, and all that it starts, finds the lock as its current one. */
  inside<T>(task: () => T): T {
    const run = (): T => frames.run({ scope: this, outer: frames.getStore() }, task);
    return this.around ? this.around(run) : run();
  }

  /** Whether what was started inside is under the lock still, or the lock was lost while it was. */
  get covers(): boolean {
    const { state } = this.lock;
    return state === 'lost' || (state !== 'released' && (!this.#isOver || this.awaitsCommit));
  }

  /** The transaction that the lock was kept for is committed or rolled back. */
  transactionEnded(): void {
    if (this.#isOver) void this.end();
  }

  /** Whether the code has ended and the lock is kept for the transaction around it. */
  get awaitsCommit(): boolean {
    return this.#isOver && this.transaction?.isOver === false;
  }

  /** What had joined the lock has left it, or is not waited for any longer. */
  left(): Promise<void> {
    return this.#isOver ? this.end() : Promise.resolve();
  }

  /**
   * Releases the lock after the code has succeeded.
   * @throws LockLostError when the lock was lost meanwhile, unless that is to be ignored
   */
  finish(): Promise<void> {
    const { loss } = this.lock;
    const ended = this.end();
    if (!loss || this.onLost === 'ignore') return ended;
    return ended.then(() => {
      throw loss;
    });
  }

  /** Ends the run when nobody can reach its result any more, so that nobody can end it (S25). */
  endWith(result: object): void {
    outOfReach.register(result, this);
  }

  /**
   * Releases the lock, whatever became of the code. Never rejects.
   *
   * A nested call that has joined the lock and that nobody waited for goes on, and must not lose the lock (S18). So the
   * lock is released when that ends, and is not waited for here: it could be waiting for the caller of this one. The same
   * goes for a transaction that the lock is to outlive.
   */
  end(): Promise<void> {
    this.#isOver = true;
    // Not waited for here: it is the caller of this one that commits.
    if (this.awaitsCommit) return Promise.resolve();
    const released = this.lock.joined?.isRun ? Promise.resolve() : this.lock.release();
    return released.then(this.ended);
  }
}

const outOfReach = new FinalizationRegistry<LockScope>((run) => void run.end());

/** A run has begun; or, because others hold the lock, there are these values in place of the method's. */
export type Begun =
  { readonly run: LockScope } | { readonly run: undefined; readonly instead: readonly unknown[] };

/** Acquires and begins a run; the signal ends the wait for the lock. */
export type Begin = (signal?: AbortSignal) => Promise<Begun>;
