import { machineTime } from './events.js';

const BEAT_MS = 10;
/** A timer that is this many milliseconds late shows that the process did not run. */
const STALL_MS = 20;

export interface Heartbeat {
  /** Looks for a stall now, without waiting for the timer. */
  check(): void;
  end(): void;
}

/**
 * Watches for stalls: times in which this process did not run, so that its timer was late. The judge, which checks the
 * recorded calls, subtracts the stalls from the duration of each call.
 *
 * @param stalled - called after each stall with its duration in milliseconds and its end
 */
export function startHeartbeat(stalled: (duration: number, at: number) => void): Heartbeat {
  let last = machineTime();
  const check = (): void => {
    const at = machineTime();
    const late = at - last - BEAT_MS;
    last = at;
    if (late > STALL_MS) stalled(late, at);
  };
  const timer = setInterval(check, BEAT_MS).unref();
  return { check, end: () => clearInterval(timer) };
}
