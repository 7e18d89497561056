import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Resolves when the condition is true.
 *
 * @param within - milliseconds until the call rejects. The default only ends a test that hangs: even a busy machine
 * needs far less.
 */
export async function until(condition: () => Promise<boolean> | boolean, within = 120_000): Promise<void> {
  const deadline = performance.now() + within;
  while (!(await condition())) {
    if (performance.now() > deadline)
      throw new Error(`${String(condition)} did not come true in ${within} ms`);
    await sleep(5);
  }
}
