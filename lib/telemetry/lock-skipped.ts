import { channel } from 'node:diagnostics_channel';
import type { LockMode } from '../core/lock-mode.js';

/** Event on the channel {@link LOCK_SKIPPED_CHANNEL} for a skipped call (`onBusy: 'skip'`). */
export interface LockSkippedEvent {
  /** The class and the method. */
  readonly method: string;
  /** Name of the lock where its keys would be too many: see the option `label`. */
  readonly label: string;
  /** The `name` of the `RedlockModule`; not for the one without a name. */
  readonly instance?: string;
  /** Keys of the lock. */
  readonly keys: readonly string[];
  /** `'exclusive'`, `'shared'` or, with the option `permits`, `'permits'`. */
  readonly mode: LockMode;
  /**
   * `'held'`: another caller holds the lock. `'tick-ran'`: with `oncePerTick`, the tick has run already. `'shutdown'`: this
   * application is shutting down.
   */
  readonly reason: 'held' | 'tick-ran' | 'shutdown';
  /** Owner of the lock, or of the run of the tick; not with `'shutdown'`. */
  readonly owner?: string;
  /** With `'held'`: milliseconds until the lock ends if its holder does not renew it. */
  readonly retryAfter?: number;
  /** With `'tick-ran'`: the tick, in milliseconds since 1970; 0 for an `@Interval`. */
  readonly tick?: number;
}

/** The name of the channel of `node:diagnostics_channel` on which every {@link LockSkippedEvent} is published. */
export const LOCK_SKIPPED_CHANNEL = 'nestjs-redlock:lock-skipped';

/** Costs next to nothing without subscribers. */
export const skippedLocks = channel(LOCK_SKIPPED_CHANNEL);
