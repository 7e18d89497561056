/**
 * Milliseconds for which an estimate counts. The window is long enough to contain a fast reply, and short enough to
 * follow a clock that was set back.
 */
const WINDOW_MS = 30_000;

/**
 * Estimates a server's clock from the time in its replies.
 *
 * A reply needs time to arrive, so every estimate is behind the server's clock, and the largest recent estimate is the
 * best. An estimate that is behind is safe: the store acts as if a deadline (S16) came earlier.
 */
export class ServerClock {
  #windowStart = -Infinity;
  /**
   * The largest difference between the server's clock and this process's monotonic clock in the present window.
   * `#largestBefore` is the largest difference in the previous window.
   */
  #largest = -Infinity;
  #largestBefore = -Infinity;

  /** Records the server's time from a reply, in milliseconds since 1970. */
  learn(time: number): void {
    const here = performance.now();
    if (here - this.#windowStart > WINDOW_MS) {
      this.#windowStart = here;
      this.#largestBefore = this.#largest;
      this.#largest = -Infinity;
    }
    this.#largest = Math.max(this.#largest, time - here);
  }

  /** The server's time in milliseconds since 1970, or a little less; `undefined` before the server's first reply. */
  now(): number | undefined {
    const difference = Math.max(this.#largest, this.#largestBefore);
    return Number.isFinite(difference) ? performance.now() + difference : undefined;
  }

  /** Discards all estimates: a new connection may lead to another server, or to a server whose clock was set. */
  forget(): void {
    this.#windowStart = this.#largest = this.#largestBefore = -Infinity;
  }
}
