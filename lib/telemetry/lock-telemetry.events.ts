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
  /** Name of the lock where its keys would be too many: see the option `label`. */
  readonly label: string;
  /** The class and the method that has `@WithLock`; not for a call of `LockService`. */
  readonly method?: string;
  /** The `name` of the `RedlockModule`; not for the one without a name. */
  readonly instance?: string;
}

/** Fields that a subscriber of `start` may set to run the following work in its own context, such as that of a span. */
export interface Surrounded {
  around?: <T>(task: () => T) => T;
}

/** The context of {@link LOCK_ACQUIRE_CHANNEL}: one object from `start` to `asyncEnd`. */
export interface LockAcquireEvent extends LockSubject, Surrounded {
  /** The option `permits`, if it was given. */
  readonly permits?: number;
  /** Milliseconds. */
  readonly ttl: number;
  /** With `oncePerTick`: the tick, in milliseconds since 1970; 0 for an `@Interval`. */
  readonly tick?: number;
  /** From `asyncStart` on: milliseconds that the acquisition took, waiting included. */
  waited?: number;
  /** From `asyncStart` on, if it was acquired. */
  fencingToken?: number;
  /** From `asyncStart` on, if it was acquired with `permits` and one key. */
  slot?: number;
  /** From `asyncStart` on, if it was acquired with `permits`: the slot of each key. */
  slots?: readonly number[];
  /**
   * Set from `asyncStart` on if another caller recently asked for more permits than this call: their number, or after a
   * refusal a number that is not larger than theirs. The limit is then that number, and not `permits`.
   */
  permitsSeen?: number;
  /** Set from `error` on: a `LockHeldError`, a `LockUnavailableError`, or the reason of a signal. */
  readonly error?: unknown;
}

/** The context of {@link LOCK_HOLD_CHANNEL}: one object from `start` to `asyncEnd`. */
export interface LockHoldEvent extends LockSubject, LockSlots, Surrounded {
  /** `LockHandle.id`. */
  readonly id: string;
  /** `LockHandle.fencingToken`. */
  readonly fencingToken: number;
  /** Milliseconds. */
  readonly ttl: number;
  /** From `asyncStart` on: milliseconds that the lock was held, until it was released or lost. */
  heldFor?: number;
  /** With `error` and from then on: how the lock was lost. */
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
      /** Somebody else held it to the end (`LockHeldError`), no quorum answered, or a signal ended the wait. */
      readonly type: 'refused';
      readonly error: LockHeldError | LockUnavailableError | Error;
      /** Milliseconds that the attempt took. */
      readonly waited: number;
    })
  | (LockSkippedEvent & { readonly type: 'skipped' })
  | (LeaderEvent & { readonly type: 'leader' })
  | (ForceReleaseEvent & { readonly type: 'force-released' })
  | (LockSubject & {
      /**
       * Acquired or refused with `permits`, and others asked for more of a key lately: the largest number is the limit. Normal
       * while a new version is deployed, a mistake otherwise. Told after `'acquired'` or `'refused'` each time; who asks for
       * the most is not told.
       */
      readonly type: 'permits-differ';
      /** Limit that this call asked for. */
      readonly permits: number;
      /** Largest limit of other calls; at least present after a refusal. */
      readonly permitsSeen: number;
    })
  | (HeldSubject & {
      /** A renewal failed; the lock will be lost unless another succeeds in time. */
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

/** The name of the tracing channel of `node:diagnostics_channel` for locks, from their acquisition to their release or loss. */
export const LOCK_HOLD_CHANNEL = 'nestjs-redlock:hold';

export const acquisitions = tracingChannel<unknown, LockAcquireEvent>(LOCK_ACQUIRE_CHANNEL);

export const holds = tracingChannel<unknown, LockHoldEvent>(LOCK_HOLD_CHANNEL);
