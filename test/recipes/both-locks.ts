import type { LockService } from 'nestjs-redlock';

/** @param underOld - runs a task under the old lock, renews that lock, and aborts the signal when it is lost */
export function underBoth<T>(
  underOld: (task: (old?: AbortSignal) => Promise<T>) => Promise<T>,
  locks: LockService,
  key: string,
  task: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  return underOld((old) =>
    locks.withLock(key, { signal: old }, ({ signal }) => task(old ? AbortSignal.any([old, signal]) : signal)),
  );
}
