import type { ResolvedLockOptions } from '../core/lock-options.js';
import type { Tick } from '../core/tick.js';
import type { LockOrigin } from '../telemetry/lock-origin.js';

/** One request for a lock that another process has detached. The pass has all other options. */
export interface AttachCall extends Pick<LockCall, 'origin' | 'signal'> {
  readonly options: Pick<ResolvedLockOptions, 'renew' | 'maxBlocked' | 'retry'>;
}

/** One request for a lock, in the form in which `@WithLock` and `LockService` give it to the runtime. */
export interface LockCall {
  readonly keys: readonly string[];
  readonly options: ResolvedLockOptions;
  readonly origin: LockOrigin;
  /** Ends the wait for the lock. */
  readonly signal?: AbortSignal | undefined;
  /** The tick of a schedule that the call is for; only with `oncePerTick`. */
  readonly tick?: Tick | undefined;
}
