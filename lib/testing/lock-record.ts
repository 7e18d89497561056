import type { LockState } from '../core/lock-events.js';
import type { ResolvedLockOptions } from '../core/lock-options.js';

/** One lock that was acquired, as {@link TestLocks} remembers it. */
export interface LockRecord {
  /** What was locked, sorted and without repetitions. */
  readonly keys: readonly string[];

  /** The class and the method that has `@WithLock`, such as `'Orders.settle'`; `undefined` for a call of `LockService`. */
  readonly method: string | undefined;

  /** What the lock is called in events, traces and metrics: see the option `label`. */
  readonly label: string;

  /** The options of the lock, those of the module and the package filled in; a limit of `Infinity` is none. */
  readonly options: ResolvedLockOptions;

  readonly fencingToken: number;

  /** What the lock is at present. One that was joined (`reentrant`) is released when the lock that it joined is. */
  readonly state: LockState;
}
