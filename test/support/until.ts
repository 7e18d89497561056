import { setTimeout as sleep } from 'node:timers/promises';

/** Resolves when the condition has come true; rejects when it has not within so many milliseconds. */
export async function until(condition: () => Promise<boolean> | boolean, within = 30_000): Promise<void> {
  const deadline = performance.now() + within;
  while (!(await condition())) {
    if (performance.now() > deadline)
      throw new Error(`${String(condition)} did not come true in ${within} ms`);
    await sleep(5);
  }
}
