import { setTimeout as pause } from 'node:timers/promises';

/**
 * Average number of milliseconds between two sweeps, and between two requests of a process to be the one that sweeps. The
 * pauses are random, so that processes begin at different times.
 */
const EVERY_MS = 10_000;

/** Milliseconds for which one process alone sweeps. It claims the sweep again before that, and so keeps it. */
const CLAIM_MS = 2 * EVERY_MS;

/**
 * Planned duration of a statement, in milliseconds. The duration of the last statement decides how many rows the next
 * one examines, between `LEAST_ROWS` and `MOST_ROWS`: a row can cost a hundred times more on a cold cache.
 */
const STATEMENT_MS = 20;
const LEAST_ROWS = 50;
const MOST_ROWS = 1_000;

/** The pause after a statement, as a multiple of its duration: the sweep takes a quarter of a connection's time. */
const PAUSE_FACTOR = 3;

/** The functions that examine rows, with the position before the first row of each table. */
const PARTS: readonly (readonly [name: string, begin: readonly string[]])[] = [
  ['sweep_locks', ['']],
  ['sweep_holders', ['', '']],
  ['sweep_ticks', ['', '']],
];

export interface SweeperTerms {
  /** Claims the sweep for some milliseconds. Resolves to `true` if this process is now the one that sweeps. */
  readonly claim: (lasts: number) => Promise<boolean | undefined>;
  /**
   * Examines rows from a position on, and removes those that are no longer needed. Resolves to the next position;
   * `undefined` after the last row.
   */
  readonly sweep: (
    part: string,
    after: readonly string[],
    most: number,
  ) => Promise<readonly string[] | undefined>;
}

/**
 * Removes rows that are no longer needed, one process of all at a time. A failed sweep begins again at the next planned
 * time.
 */
export class Sweeper {
  #timer: NodeJS.Timeout | undefined;
  readonly #end = new AbortController();
  #rows = LEAST_ROWS;

  constructor(private readonly terms: SweeperTerms) {}

  begin(): void {
    if (!this.#timer) this.#plan(EVERY_MS * Math.random());
  }

  end(): void {
    this.#end.abort();
    clearTimeout(this.#timer);
  }

  #plan(delay: number): void {
    if (!this.#end.signal.aborted) this.#timer = setTimeout(() => void this.#run(), delay).unref();
  }

  async #run(): Promise<void> {
    try {
      for (const [part, begin] of PARTS) if (!(await this.#sweepAll(part, begin))) break;
    } catch {
      // Ignore the error: the next run repeats the sweep.
      this.#rows = LEAST_ROWS;
    }
    this.#plan(EVERY_MS * (0.5 + Math.random()));
  }

  /** Resolves to `false` if another process sweeps. */
  async #sweepAll(part: string, begin: readonly string[]): Promise<boolean> {
    let after: readonly string[] | undefined = begin;
    for (let asked = -Infinity; after;) {
      if (performance.now() - asked > EVERY_MS / 2) {
        asked = performance.now();
        if ((await this.terms.claim(CLAIM_MS)) !== true) return false;
      }
      const begun = performance.now();
      after = await this.terms.sweep(part, after, this.#rows);
      const took = Math.max(performance.now() - begun, 1);
      this.#rows = Math.round(
        Math.min(Math.max((this.#rows * STATEMENT_MS) / took, LEAST_ROWS), MOST_ROWS, 2 * this.#rows),
      );
      await pause(took * PAUSE_FACTOR, undefined, { ref: false, signal: this.#end.signal });
    }
    return true;
  }
}
