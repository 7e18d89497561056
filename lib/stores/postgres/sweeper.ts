/**
 * Average number of milliseconds between two searches for old rows. The pauses are random, so that processes begin at
 * different times.
 */
const EVERY_MS = 600_000;

/** The number of rows that one statement removes. */
const PIECE = 1_000;

/** Removes rows that are no longer needed. A failed sweep is repeated at the next planned time. */
export class Sweeper {
  #timer: NodeJS.Timeout | undefined;
  #isEnded = false;

  /** @param sweep - removes rows up to a given number, and resolves to `true` if more rows remain */
  constructor(private readonly sweep: (most: number) => Promise<boolean | undefined>) {}

  begin(): void {
    if (!this.#timer) this.#plan(EVERY_MS * Math.random());
  }

  end(): void {
    this.#isEnded = true;
    clearTimeout(this.#timer);
  }

  #plan(delay: number): void {
    if (!this.#isEnded) this.#timer = setTimeout(() => void this.#run(), delay).unref();
  }

  async #run(): Promise<void> {
    try {
      while (!this.#isEnded && (await this.sweep(PIECE)) === true);
    } catch {
      // Ignore the error: the next run repeats the sweep.
    }
    this.#plan(EVERY_MS * (0.5 + Math.random()));
  }
}
