/** How long an estimate counts, in milliseconds: long enough to have met a quick reply, short enough to follow a clock that was set back. */
const WINDOW_MS = 30_000;

/**
 * What is known of the server's clock, from the time in its replies, which is past when they arrive. So every estimate is
 * behind that clock, and the largest of the recent ones is the best. Behind is the safe side: a deadline (S16) comes early
 * rather than late.
 */
export class ServerClock {
  #windowStart = -Infinity;
  /** Largest difference to our monotonic clock in this window, and in the one before. */
  #largest = -Infinity;
  #largestBefore = -Infinity;

  /** A reply says that it is, or was when it was sent, this time, in milliseconds since 1970. */
  learn(time: number): void {
    const here = performance.now();
    if (here - this.#windowStart > WINDOW_MS) {
      this.#windowStart = here;
      this.#largestBefore = this.#largest;
      this.#largest = -Infinity;
    }
    this.#largest = Math.max(this.#largest, time - here);
  }

  /** The server's time in milliseconds since 1970, or a little less. */
  now(): number {
    const difference = Math.max(this.#largest, this.#largestBefore);
    return Number.isFinite(difference) ? performance.now() + difference : 0;
  }

  /** Forgets all, as another server has another clock. */
  forget(): void {
    this.#windowStart = this.#largest = this.#largestBefore = -Infinity;
  }
}
