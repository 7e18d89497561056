import type { LockLostError } from '../core/errors.js';
import type { Store } from '../core/ports.js';
import type { RenewalThread } from './renewal-ports.js';
import type { RestartGuard } from './restart-guard.js';

/** Settings of all locks of one `Redlock`. */
export interface RedlockSettings {
  /** Readable name of this process, stored with every lock. */
  readonly owner: string;
  readonly driftFactor: number;
  readonly guard: RestartGuard;
  /** Time limit of a node in milliseconds; `undefined` to compute it from each lock's ttl. */
  readonly nodeTimeout: number | undefined;
  /** The prefix that the stores add to each key. */
  readonly keyPrefix?: string;
  /** The thread that renews locks with `renew: 'thread'`. */
  readonly thread?: RenewalThread | undefined;
  /** Called for every lost lock. */
  readonly lost?: (error: LockLostError) => void;
  /** Called for every store that the shutdown could not close. */
  readonly unclosed?: (store: Store, error: Error) => void;
}
