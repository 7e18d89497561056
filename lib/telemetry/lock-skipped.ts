import { channel } from 'node:diagnostics_channel';
import type { LockMode } from '../core/lock-mode.js';

/** Event on the channel {@link LOCK_SKIPPED_CHANNEL} for a skipped call (`onBusy: 'skip'`). */
export interface LockSkippedEvent {
  /** The names of the class and of the method; absent for a call of `LockService.oncePerTick`. */
  readonly method?: string;
  /**
   * Name of the lock in metrics, which use it in place of the keys: there are too many different keys. See the option
   * `label`.
   */
  readonly label: string;
  /** The `name` of the `RedlockModule`; absent for the module without a name. */
  readonly instance?: string;
  /** Keys of the lock. */
  readonly keys: readonly string[];
  /** `'exclusive'`, `'shared'` or, with the option `permits`, `'permits'`. */
  readonly mode: LockMode;
  /**
   * The reason of the skip. `'held'`: another caller holds the lock. `'tick-ran'`: the tick has already run
   * (`oncePerTick`). `'shutdown'`: this application is shutting down.
   */
  readonly reason: 'held' | 'tick-ran' | 'shutdown';
  /** Name of the process that holds the lock or ran the tick; absent with `'shutdown'`. */
  readonly owner?: string;
  /** Milliseconds until the lock ends if its holder does not renew it; only with `'held'`. */
  readonly retryAfter?: number;
  /** The tick, in milliseconds since 1970, or 0 for an interval; only with `'tick-ran'`. */
  readonly tick?: number;
}

/** The name of the channel of `node:diagnostics_channel` on which every {@link LockSkippedEvent} is published. */
export const LOCK_SKIPPED_CHANNEL = 'nestjs-redlock:lock-skipped';

/** Publishing costs almost no time without subscribers. */
export const skippedLocks = channel(LOCK_SKIPPED_CHANNEL);
