/**
 * A moment on both clocks of this machine, to measure from.
 *
 * Either clock alone can lie about how much time has passed: the monotonic one stops while a machine is
 * suspended, the wall clock can be set back (SAFETY S11). What must not end early, such as the restart guard (S12), goes
 * by the monotonic clock alone, which never shows more than has passed.
 */
export interface Instant {
  readonly monotonic: number;
  readonly wall: number;
}

/** The present moment. */
export function now(): Instant {
  return { monotonic: performance.now(), wall: Date.now() };
}

/** Milliseconds since `start`: the larger of the two clocks' answers, so that a lease is never taken to be longer than it is (S11). */
export function elapsedSince(start: Instant): number {
  return Math.max(performance.now() - start.monotonic, Date.now() - start.wall);
}

/** The earlier one on each clock: what began at either is not taken to last longer than it does. */
export function earlier(a: Instant, b: Instant): Instant {
  return { monotonic: Math.min(a.monotonic, b.monotonic), wall: Math.min(a.wall, b.wall) };
}
