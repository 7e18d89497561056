import type { DispatchLock } from '../../sample-app/dispatch/dispatch.job.js';

/** Largest number of concurrent dispatchers, for strategies with a limit. */
export const PERMITS = 2;

/** A way to have one instance at a time dispatch. */
export interface LockStrategy {
  /**
   * Runs the task if the lock is free.
   * @returns whether it was
   */
  attempt(task: (lock?: DispatchLock) => Promise<void>): Promise<boolean>;
}
