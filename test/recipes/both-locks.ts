import type { LockService } from 'nestjs-redlock';

/** @param underOld - runs a task under the old lock, and renews that lock for as long as the task takes */
export function underBoth<T>(
  underOld: (task: () => Promise<T>) => Promise<T>,
  locks: LockService,
  key: string,
  task: () => Promise<T>,
): Promise<T> {
  return underOld(() => locks.withLock(key, task));
}
