import { runUnder } from './lock-context.js';
import type { Surrounded } from './lock-telemetry.events.js';
import type { LockLostError } from './redlock/errors.js';
import type { LockHandle } from './redlock/lock-handle.js';
import { NO_SLOT } from './redlock/slot-list.js';

/** A lock as what runs under it needs it. */
export interface RunnableLock extends LockHandle {
  /** Milliseconds that the nodes keep the lock. */
  readonly ttl: number;
  /** Whether the lock was lost before it was released, and why. */
  readonly loss: LockLostError | undefined;
  /** Takes the lock for lost. */
  lose(reason: string): void;
}

/** Code that runs under a lock: from the acquisition to the release. */
export class LockRun {
  /** For the list of all that run. */
  slot = NO_SLOT;

  constructor(
    readonly lock: RunnableLock,
    private readonly source: object,
    private readonly onLost: 'throw' | 'ignore',
    private readonly around: Surrounded['around'],
    private readonly ended: () => void,
  ) {}

  /** Runs `task` so that it finds the lock as its current one. */
  inside<T>(task: () => T): T {
    const run = (): T => runUnder(this.lock, this.source, task);
    return this.around ? this.around(run) : run();
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

  /** Releases the lock, whatever became of the code. Never rejects. */
  end(): Promise<void> {
    return this.lock.release().then(this.ended);
  }
}

/** A run has begun; or, because others hold the lock, there are these values in place of the method's. */
export type Begun =
  { readonly run: LockRun } | { readonly run: undefined; readonly instead: readonly unknown[] };

/** Acquires and begins a run; the signal ends the wait for the lock. */
export type Begin = (signal?: AbortSignal) => Promise<Begun>;
