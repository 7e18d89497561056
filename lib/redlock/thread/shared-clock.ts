/**
 * The monotonic clock that all threads of a process share, in milliseconds. `performance.now()` counts from the start of
 * its thread, and `performance.timeOrigin` contains the wall clock, which may be set between the starts of two threads.
 */
function sharedNow(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** Number of measurements of a difference: another process may run between the two readings of one of them. */
const MEASUREMENTS = 8;

/** The difference of the shared clock to this thread's clock, measured at its first use. */
interface Offset {
  /** A few microseconds too small, or exact. */
  readonly least: number;
  /** A few microseconds too large, or exact. */
  readonly largest: number;
}

let measured: Offset | undefined;

function offset(): Offset {
  if (measured) return measured;
  let least = -Infinity;
  let largest = Infinity;
  for (let count = 0; count < MEASUREMENTS; count++) {
    const before = performance.now();
    const shared = sharedNow();
    largest = Math.min(largest, shared - before);
    least = Math.max(least, shared - performance.now());
  }
  return (measured = { least, largest });
}

/** Converts a time of this thread's `performance.now()`; the result is never later than the time. */
export function toSharedTime(monotonic: number): number {
  return monotonic + offset().least;
}

/** Converts a shared time to this thread's `performance.now()`; the result is never later than the time. */
export function fromSharedTime(shared: number): number {
  return shared - offset().largest;
}
