import { LockLostError } from '../../lib/core/errors.js';
import type { HeldLock } from '../../lib/redlock/held-lock.js';
import { until } from '../support/until.js';

/**
 * Resolves when each lock has been renewed: only a renewal makes the remaining time of a lock longer. Rejects when a
 * lock is no longer held.
 */
export async function renewed(locks: readonly HeldLock[]): Promise<void> {
  const left = new Map(locks.map((lock) => [lock, lock.remaining()]));
  await until(() => {
    for (const [lock, before] of left) {
      if (!lock.isHeld())
        throw new Error(`the lock of ${lock.keys.join(', ')} is not held`, { cause: lock.loss });
      const now = lock.remaining();
      if (now > before) left.delete(lock);
      else left.set(lock, now);
    }
    return left.size === 0;
  });
}

/**
 * Extends a lock again and again until the store confirms an extension: the connection may still be cut, or the machine
 * too busy to answer in time. Rejects with the `LockLostError` if the lock is lost.
 */
export async function extendUntilConfirmed(lock: HeldLock): Promise<void> {
  await until(() =>
    lock.extend().then(
      () => true,
      (error: unknown) => {
        if (error instanceof LockLostError) throw error;
        return false;
      },
    ),
  );
}
