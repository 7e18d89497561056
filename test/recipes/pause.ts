import { createLocks, type LocksOptions } from 'nestjs-redlock/standalone';

/** Keeps the job with this key from running, until `end` aborts. */
export async function pause(key: string, options: LocksOptions, end: AbortSignal): Promise<void> {
  await using locks = createLocks(options);
  const lock = await locks.acquire(key, { signal: end });
  console.log(`${key} is paused`);
  const over = AbortSignal.any([end, lock.signal]);
  if (!over.aborted) await new Promise((resolve) => over.addEventListener('abort', resolve));
  if (!end.aborted) lock.assertHeld(); // throws when the pause has ended by itself
}
