import type { DispatchLock } from '../../sample-app/dispatch/dispatch.job.js';

/** Largest number of concurrent dispatchers, for strategies with a limit. */
export const PERMITS = 2;

/** A way to let one instance at a time dispatch. */
export interface LockStrategy {
  /**
   * Runs the task if the lock is free.
   * @returns `true` if the lock was free
   */
  attempt(task: (lock?: DispatchLock) => Promise<void>): Promise<boolean>;
}
