/**
 * A moment on both clocks of this machine, as a starting point for measuring elapsed time.
 *
 * Either clock alone can be wrong: the monotonic clock stops while a machine is suspended, and the wall clock can be
 * set back (S11). A period that must not end early, such as the restart guard (S12), uses the monotonic clock
 * alone, because that clock never shows more time than has passed.
 */
export interface Instant {
  readonly monotonic: number;
  readonly wall: number;
}

/** The present moment. */
export function now(): Instant {
  return { monotonic: performance.now(), wall: Date.now() };
}

/**
 * Milliseconds since `start`. Measures with both clocks and returns the larger result, so that the age of a lease is
 * never underestimated (S11).
 */
export function elapsedSince(start: Instant): number {
  return Math.max(performance.now() - start.monotonic, Date.now() - start.wall);
}

/** Takes the earlier reading of each clock, so that the time since either moment is never underestimated. */
export function earlier(a: Instant, b: Instant): Instant {
  return { monotonic: Math.min(a.monotonic, b.monotonic), wall: Math.min(a.wall, b.wall) };
}
