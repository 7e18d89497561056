import { currentLock } from 'nestjs-redlock';
import type { DispatchLock } from '../../sample-app/dispatch/dispatch.job.js';
import type { Journal } from '../instance/journal.js';

const POLL_MS = 50;

/**
 * Runs the task under the lock of the present call, and reports each renewal of the lock.
 *
 * @returns `true`; `undefined` if the call has no lock
 */
export async function withReportedRenewals(
  journal: Journal,
  task: (lock?: DispatchLock) => Promise<void>,
): Promise<boolean | undefined> {
  const lock = currentLock();
  if (!lock) return undefined;
  let last = performance.now() + lock.remaining();
  const look = (): void => {
    const left = lock.remaining();
    const end = performance.now() + left;
    // Only a renewal makes the end later, by a third of the ttl or more. A lost lock has nothing left.
    if (left === 0 || end < last + POLL_MS) return;
    last = end;
    journal.tell({ kind: 'renewed' });
  };
  const looks = setInterval(look, POLL_MS);
  try {
    await task(lock);
  } finally {
    clearInterval(looks);
    // A task that blocks its event loop may end before the timer fires.
    look();
  }
  return true;
}
