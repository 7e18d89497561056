/** Milliseconds between two searches for old rows; each process begins at another time. */
const EVERY_MS = 600_000;

/** The number of rows that one statement removes. */
const PIECE = 1_000;

/** Removes rows that nobody needs any more. A failed removal is repeated the next time. */
export class Sweeper {
  #timer: NodeJS.Timeout | undefined;
  #isEnded = false;

  /** @param sweep - removes rows up to a number, and resolves to `true` if there are more */
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
      // The next run repeats it.
    }
    this.#plan(EVERY_MS * (0.5 + Math.random()));
  }
}
