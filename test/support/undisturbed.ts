import { setTimeout as sleep } from 'node:timers/promises';

/** Milliseconds between two looks at the machine. */
const LOOK_MS = 50;

/** Milliseconds by which a look may be late. A later one is a stall of the machine. */
const LATE_MS = 50;

/** Milliseconds of stalls together that disturb a step. */
const DISTURBED_MS = 1_000;

/** Sends a request that a server answers at once. */
type Ask = () => Promise<unknown>;

const nobody: Ask = () => Promise.resolve();

/**
 * Measures how long the work takes, and for how long the machine stalled meanwhile, both in milliseconds: the time by which
 * looks of this process, with the answers to `ask`, came late.
 */
export async function measured(
  work: Promise<unknown>,
  ask = nobody,
): Promise<{ readonly took: number; readonly stalled: number }> {
  const begun = performance.now();
  const over = new AbortController();
  const watch = (async (): Promise<number> => {
    let stalled = 0;
    while (!over.signal.aborted) {
      const looked = performance.now();
      await ask();
      await sleep(LOOK_MS);
      const late = performance.now() - looked - LOOK_MS;
      if (late > LATE_MS) stalled += late;
    }
    return stalled;
  })();
  const took = await work
    .then(() => performance.now() - begun)
    .finally(() => {
      over.abort();
      return watch;
    });
  return { took, stalled: await watch };
}

/**
 * Resolves to the milliseconds that the step says it takes. Repeats it, up to four times, if that is longer than `limit` and
 * the machine stalled for a second or more together. On a machine that does not stall the step runs once.
 *
 * @param step - called with the number of the repetition
 */
export async function undisturbed(
  limit: number,
  step: (repetition: number) => Promise<number>,
  ask = nobody,
): Promise<number> {
  for (let repetition = 0; ; repetition++) {
    const work = step(repetition);
    const { stalled } = await measured(work, ask);
    const took = await work;
    if (took < limit || stalled < DISTURBED_MS || repetition === 4) return took;
  }
}
