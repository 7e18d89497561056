import { setTimeout as sleep } from 'node:timers/promises';

/** Milliseconds between two looks, at first and at most. Many looks at a browser or a server take a processor from the others. */
const FIRST_MS = 5;
const LONGEST_MS = 25;

/**
 * Resolves when the condition is true.
 *
 * @param within - milliseconds until the call rejects. The default only ends a test that hangs: even a busy machine
 * needs far less.
 */
export async function until(condition: () => Promise<boolean> | boolean, within = 120_000): Promise<void> {
  const began = performance.now();
  while (!(await condition())) {
    const waited = performance.now() - began;
    if (waited > within) throw new Error(`${String(condition)} did not come true in ${within} ms`);
    await sleep(Math.min(FIRST_MS + waited / 20, LONGEST_MS));
  }
}
