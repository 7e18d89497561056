import type { LockMode } from '../../lib/core/lock-mode.js';

// What the processes of a fault test write down, one JSON object to a line. Times are milliseconds on the monotonic
// clock of the machine, which all its processes share.

/** The present moment on the clock of all processes of this machine. */
export function machineTime(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

interface Base {
  readonly at: number;
  /** Which process wrote it. */
  readonly client: string;
}

/** An event of one attempt to hold the lock; `attempt` is unique within its client. */
interface OfAttempt extends Base {
  readonly attempt: number;
}

export type FaultEvent =
  /** A lock is asked for, and the answer is due within `budget` milliseconds. */
  | (OfAttempt & {
      readonly event: 'invoke';
      readonly keys: readonly string[];
      readonly mode: LockMode;
      /** Only with permits. */
      readonly permits?: number;
      readonly budget: number;
    })
  | (OfAttempt & {
      readonly event: 'return';
      readonly token: number;
      readonly validUntil: number;
      /** Of each key; only with permits. */
      readonly slots?: readonly number[];
    })
  /** There is no lock: `code` says why. */
  | (OfAttempt & { readonly event: 'refuse'; readonly code: string; readonly message: string })
  /** A renewal moved the end of the validity. */
  | (OfAttempt & { readonly event: 'renew'; readonly validUntil: number })
  /** The holder was told that its lock is lost. */
  | (OfAttempt & { readonly event: 'lost' })
  /** The holder stops relying on the lock; the call that gives it back is due within `budget` milliseconds. */
  | (OfAttempt & { readonly event: 'release'; readonly budget: number })
  | (OfAttempt & { readonly event: 'released' })
  /** A reader read the register, or was refused, which it does at the beginning and at the end. */
  | (OfAttempt & {
      readonly event: 'read';
      readonly key: string;
      readonly token: number;
      /** What it read; `undefined` when it was refused. */
      readonly value?: number | undefined;
    })
  /** The register took or refused what the holder wrote. */
  | (OfAttempt & { readonly event: 'write'; readonly token: number; readonly accepted: boolean })
  /** The process was stopped or its thread blocked until `at`, for `duration` milliseconds. */
  | (Base & { readonly event: 'stall'; readonly duration: number })
  /** A promise was rejected and nobody handled it, or an error was thrown and nobody caught it. */
  | (Base & { readonly event: 'unhandled'; readonly message: string })
  /** The process does nothing more until it is told to. */
  | (Base & { readonly event: 'ready' | 'idle' | 'closed' });

/** The event without what every event of a process has. */
export type FaultEventBody = FaultEvent extends infer Event
  ? Event extends FaultEvent
    ? Omit<Event, 'at' | 'client'>
    : never
  : never;

/** The events of a log. A process that was killed may have left half a line at the end. */
export function parseLog(log: string): FaultEvent[] {
  const lines = log.split('\n');
  lines.pop();
  return lines.map((line) => JSON.parse(line) as FaultEvent);
}
