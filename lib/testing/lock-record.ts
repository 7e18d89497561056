import type { LockState } from '../core/lock-events.js';
import type { ResolvedLockOptions } from '../core/lock-options.js';

/** The record of an acquired lock in {@link TestLocks}. */
export interface LockRecord {
  /** Keys of the lock, sorted and without repetitions. */
  readonly keys: readonly string[];

  /**
   * The names of the class and of the method with `@WithLock`, such as `'Orders.settle'`; `undefined` for a call of
   * `LockService`.
   */
  readonly method: string | undefined;

  /** Name of the lock in events, traces and metrics: see the option `label`. */
  readonly label: string;

  /** The options of the lock, with the defaults of the module and of the package. `Infinity` means no limit. */
  readonly options: ResolvedLockOptions;

  readonly fencingToken: number;

  /** Present state of the lock. A joined lock (`reentrant`) is released together with the outer lock. */
  readonly state: LockState;
}
