import { tracingChannel } from 'node:diagnostics_channel';
import type { ForceReleaseEvent } from './force-release.js';
import type { LeaderEvent } from './leader-event.js';
import type { LockSkippedEvent } from './lock-skipped.js';
import type { LockSlots } from '../core/lock-events.js';
import type { LockMode } from '../core/lock-mode.js';
import type { LockHeldError, LockLostError, LockUnavailableError } from '../core/errors.js';

/** Fields of every event about a lock. */
export interface LockSubject {
  /** Keys of the lock, sorted and without repetitions. */
  readonly keys: readonly string[];
  /** `'exclusive'`, `'shared'` or, with the option `permits`, `'permits'`. */
  readonly mode: LockMode;
  /**
   * Name of the lock in metrics, which use it in place of the keys: there are too many different keys. See the option
   * `label`.
   */
  readonly label: string;
  /** The names of the class and of the method with `@WithLock`; absent for a call of `LockService`. */
  readonly method?: string;
  /** The `name` of the `RedlockModule`; absent for the module without a name. */
  readonly instance?: string;
}

/**
 * A field that a subscriber of `start` may set. The acquisition, or the code under the lock, then runs in the context
 * of the subscriber, such as the context of a span.
 */
export interface Surrounded {
  around?: <T>(task: () => T) => T;
}

/** The context of {@link LOCK_ACQUIRE_CHANNEL}: one object from `start` to `asyncEnd`. */
export interface LockAcquireEvent extends LockSubject, Surrounded {
  /** The option `permits`, if it was set. */
  readonly permits?: number;
  /** Ttl of the lock, in milliseconds. */
  readonly ttl: number;
  /** The tick, in milliseconds since 1970, or 0 for an interval; only with `oncePerTick`. */
  readonly tick?: number;
  /** Milliseconds that the acquisition took, including the wait. Set from `asyncStart` on. */
  waited?: number;
  /** The fencing token of an acquired lock. Set from `asyncStart` on. */
  fencingToken?: number;
  /** The slot of an acquired lock with `permits` and one key. Set from `asyncStart` on. */
  slot?: number;
  /** The slot of each key of an acquired lock with `permits`. Set from `asyncStart` on. */
  slots?: readonly number[];
  /**
   * The largest option `permits` of other recent callers of the key, which is the limit of the key. Set only if it is
   * larger than `permits` of this call. After a refusal it may be the option of a caller below that limit, but is still
   * larger than `permits`. Set from `asyncStart` on.
   */
  permitsSeen?: number;
  /**
   * A `LockHeldError`, a `LockUnavailableError`, or the reason of the signal that aborted the acquisition. Set from
   * `error` on.
   */
  readonly error?: unknown;
}

/** The context of {@link LOCK_HOLD_CHANNEL}: one object from `start` to `asyncEnd`. */
export interface LockHoldEvent extends LockSubject, LockSlots, Surrounded {
  /** `LockHandle.id`. */
  readonly id: string;
  /** `LockHandle.fencingToken`. */
  readonly fencingToken: number;
  /** Ttl of the lock, in milliseconds. */
  readonly ttl: number;
  /** Milliseconds that the lock was held, until it was released or lost. Set from `asyncStart` on. */
  heldFor?: number;
  /** The error of a lost lock. Set from `error` on. */
  readonly error?: LockLostError;
}

/** Event about a lock that is or was held. */
type HeldSubject = LockSubject & LockSlots;

/** Argument of the module's option `onEvent`. */
export type LockEvent =
  | (HeldSubject & {
      readonly type: 'acquired';
      readonly id: string;
      readonly fencingToken: number;
      /** Milliseconds that the acquisition took. */
      readonly waited: number;
    })
  | (LockSubject & {
      /**
       * The lock was not acquired: another caller still held it at the end of the wait (`LockHeldError`), no quorum
       * answered, or a signal ended the wait.
       */
      readonly type: 'refused';
      readonly error: LockHeldError | LockUnavailableError | Error;
      /** Milliseconds until the refusal, including the wait. */
      readonly waited: number;
    })
  | (LockSkippedEvent & { readonly type: 'skipped' })
  | (LeaderEvent & { readonly type: 'leader' })
  | (ForceReleaseEvent & { readonly type: 'force-released' })
  | (LockSubject & {
      /**
       * Other recent callers of a key had a larger option `permits` than this call. The largest such option is the
       * limit of the key. Different options are normal during the deployment of a new version, and otherwise a mistake.
       * The event follows each `'acquired'` or `'refused'` event of a call whose option is smaller than the limit.
       */
      readonly type: 'permits-differ';
      /** The option `permits` of this call. */
      readonly permits: number;
      /**
       * The largest option `permits` of other calls. After a refusal this number may be smaller than the limit of the
       * key, but is still larger than `permits`.
       */
      readonly permitsSeen: number;
    })
  | (HeldSubject & {
      /** A renewal failed. The lock will be lost unless another renewal succeeds in time. */
      readonly type: 'unconfirmed';
      readonly id: string;
      readonly fencingToken: number;
      readonly error: Error;
    })
  | (HeldSubject & {
      readonly type: 'lost';
      readonly id: string;
      readonly fencingToken: number;
      /** Milliseconds that the lock was held. */
      readonly heldFor: number;
      readonly error: Error;
    })
  | (HeldSubject & {
      readonly type: 'released';
      readonly id: string;
      readonly fencingToken: number;
      /** Milliseconds that the lock was held. */
      readonly heldFor: number;
    });

/** The name of the tracing channel of `node:diagnostics_channel` for acquisitions, waiting included. */
export const LOCK_ACQUIRE_CHANNEL = 'nestjs-redlock:acquire';

/**
 * The name of the tracing channel of `node:diagnostics_channel` for held locks, from the acquisition to the release or
 * loss.
 */
export const LOCK_HOLD_CHANNEL = 'nestjs-redlock:hold';

export const acquisitions = tracingChannel<unknown, LockAcquireEvent>(LOCK_ACQUIRE_CHANNEL);

export const holds = tracingChannel<unknown, LockHoldEvent>(LOCK_HOLD_CHANNEL);
