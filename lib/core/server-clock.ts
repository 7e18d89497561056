/** How long an estimate counts, in milliseconds: long enough to have met a quick reply, short enough to follow a clock that was set back. */
const WINDOW_MS = 30_000;

/**
 * What is known of a server's clock, from the time in its replies.
 *
 * A reply tells a time that is past when it arrives, by however long it travelled. So every estimate is behind the
 * server's clock, and the largest of the recent ones is the best. Behind is the safe side: a deadline (S16) comes
 * early rather than late.
 */
export class ServerClock {
  #windowStart = -Infinity;
  /** Largest difference to our monotonic clock in this window, and in the one before. */
  #largest = -Infinity;
  #largestBefore = -Infinity;

  /** A reply says that it is, or was when it was sent, `time` milliseconds since 1970. */
  learn(time: number): void {
    const here = performance.now();
    if (here - this.#windowStart > WINDOW_MS) {
      this.#windowStart = here;
      this.#largestBefore = this.#largest;
      this.#largest = -Infinity;
    }
    this.#largest = Math.max(this.#largest, time - here);
  }

  /** The server's time in milliseconds since 1970, or a little less; `undefined` before its first reply. */
  now(): number | undefined {
    const difference = Math.max(this.#largest, this.#largestBefore);
    return Number.isFinite(difference) ? performance.now() + difference : undefined;
  }

  /** Forgets all, as behind a new connection there may be another server, or one whose clock was set. */
  forget(): void {
    this.#windowStart = this.#largest = this.#largestBefore = -Infinity;
  }
}
