import type { LockState } from '../core/lock-events.js';
import type { ResolvedLockOptions } from '../core/lock-options.js';

/** A lock that was acquired, as recorded by {@link TestLocks}. */
export interface LockRecord {
  /** Keys of the lock, sorted and without repetitions. */
  readonly keys: readonly string[];

  /** The class and the method that has `@WithLock`, such as `'Orders.settle'`; `undefined` for a call of `LockService`. */
  readonly method: string | undefined;

  /** Name of the lock in events, traces and metrics: see the option `label`. */
  readonly label: string;

  /** The options of the lock, those of the module and the package filled in; a limit of `Infinity` is none. */
  readonly options: ResolvedLockOptions;

  readonly fencingToken: number;

  /** Present state of the lock. A joined one (`reentrant`) is released with the lock that it joined. */
  readonly state: LockState;
}
