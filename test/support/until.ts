import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Resolves when the condition has come true.
 *
 * @param within - milliseconds after which the call rejects. The default is far longer than a busy machine takes: the
 * limit only ends a test that hangs.
 */
export async function until(condition: () => Promise<boolean> | boolean, within = 120_000): Promise<void> {
  const deadline = performance.now() + within;
  while (!(await condition())) {
    if (performance.now() > deadline)
      throw new Error(`${String(condition)} did not come true in ${within} ms`);
    await sleep(5);
  }
}
