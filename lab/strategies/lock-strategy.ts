import type { DispatchLock } from '../../sample-app/dispatch/dispatch.job.js';

/** Largest number of concurrent dispatchers, for strategies with a limit. */
export const PERMITS = 2;

/**
 * A way to limit the instances that dispatch at the same time. Most strategies admit one instance; others admit
 * {@link PERMITS} instances or any number.
 */
export interface LockStrategy {
  /**
   * Runs the task if the lock is free.
   *
   * @returns true if the lock was free
   */
  attempt(task: (lock?: DispatchLock) => Promise<void>): Promise<boolean>;
}
