/**
 * Milliseconds for which an estimate counts: long enough to include a fast reply, short enough to follow a clock that
 * was set back.
 */
const WINDOW_MS = 30_000;

/**
 * Estimates a server's clock from the time in its replies.
 *
 * When a reply arrives, its time is past by the reply's travel time. So every estimate is behind the server's clock,
 * and the largest recent one is the best. An estimate that is behind is safe: a deadline (S16) comes early rather than
 * late.
 */
export class ServerClock {
  #windowStart = -Infinity;
  /** The largest difference to our monotonic clock, in this window and in the one before. */
  #largest = -Infinity;
  #largestBefore = -Infinity;

  /** Records a reply's time, in milliseconds since 1970. */
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

  /** Discards all estimates: a new connection may lead to another server, or to one whose clock was set. */
  forget(): void {
    this.#windowStart = this.#largest = this.#largestBefore = -Infinity;
  }
}
