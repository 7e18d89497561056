/** How often old rows are looked for, in milliseconds; each process begins at another time. */
const EVERY_MS = 600_000;

/** So many rows are removed in one statement. */
const PIECE = 1_000;

/** Has the rows removed that nobody needs any more. What fails is tried again the next time. */
export class Sweeper {
  #timer: NodeJS.Timeout | undefined;
  #isEnded = false;

  /** @param sweep - removes so many rows at most, and tells whether there are more */
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
      // The next time.
    }
    this.#plan(EVERY_MS * (0.5 + Math.random()));
  }
}
