import type { LockMode } from '../../lib/core/lock-mode.js';

// The processes of a fault test log these events, one JSON object to a line. Times are milliseconds on the monotonic
// clock of the machine, which all its processes share.

/** Returns the present time on the clock that all processes of this machine share. */
export function machineTime(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

interface Base {
  readonly at: number;
  /** Name of the process that logged the event. */
  readonly client: string;
}

/** An event of one attempt to hold the lock; `attempt` is unique within its client. */
interface OfAttempt extends Base {
  readonly attempt: number;
}

export type FaultEvent =
  /** The client asks for a lock. The answer is due within `budget` milliseconds. */
  | (OfAttempt & {
      readonly event: 'invoke';
      readonly keys: readonly string[];
      readonly mode: LockMode;
      /** Set only for permits. */
      readonly permits?: number;
      readonly budget: number;
    })
  | (OfAttempt & {
      readonly event: 'return';
      readonly token: number;
      readonly validUntil: number;
      /** The slot of each key; set only for permits. */
      readonly slots?: readonly number[];
    })
  /** The client got no lock, for the reason in `code`. */
  | (OfAttempt & { readonly event: 'refuse'; readonly code: string; readonly message: string })
  /** A renewal moved the end of the validity. */
  | (OfAttempt & { readonly event: 'renew'; readonly validUntil: number })
  /** The library told the holder that the lock is lost. */
  | (OfAttempt & { readonly event: 'lost' })
  /** The holder stops using the lock and releases it. The release is due within `budget` milliseconds. */
  | (OfAttempt & { readonly event: 'release'; readonly budget: number })
  | (OfAttempt & { readonly event: 'released' })
  /**
   * A reader has read the register, or the register has refused the read. Each reader reads at the beginning and at the
   * end of its hold.
   */
  | (OfAttempt & {
      readonly event: 'read';
      readonly key: string;
      readonly token: number;
      /** The value, or `undefined` if the register refused the read. */
      readonly value?: number | undefined;
    })
  /** The register accepted or refused a write of the holder. */
  | (OfAttempt & { readonly event: 'write'; readonly token: number; readonly accepted: boolean })
  /** The process was stopped, or its thread blocked, for `duration` milliseconds until `at`. */
  | (Base & { readonly event: 'stall'; readonly duration: number })
  /** A promise was rejected without a handler, or an error was thrown and not caught. */
  | (Base & { readonly event: 'unhandled'; readonly message: string })
  /** The process has connected, has stopped its callers, or has shut down. */
  | (Base & { readonly event: 'ready' | 'idle' | 'closed' });

/** An event without the fields that the log adds to every event. */
export type FaultEventBody = FaultEvent extends infer Event
  ? Event extends FaultEvent
    ? Omit<Event, 'at' | 'client'>
    : never
  : never;

/** Parses a log. Ignores a partial last line, which a killed process may leave. */
export function parseLog(log: string): FaultEvent[] {
  const lines = log.split('\n');
  lines.pop();
  return lines.map((line) => JSON.parse(line) as FaultEvent);
}
