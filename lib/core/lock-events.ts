import { channel, tracingChannel } from 'node:diagnostics_channel';
import { NotSentError } from './errors.js';
import type { LockMode } from './lock-mode.js';

/** The state of a lock at present: see `LockHandle.state`. */
export type LockState = 'held' | 'unconfirmed' | 'lost' | 'released';

/** The slots of a lock; only with `permits`. */
export interface LockSlots {
  /** `LockHandle.slot`; absent with several keys, see `slots`. */
  readonly slot?: number;
  /** `LockHandle.slots`. */
  readonly slots?: readonly number[];
}

/** @returns the slots as properties of an event; no properties without permits */
export function slotsOf(lock: {
  readonly slot: number | undefined;
  readonly slots: readonly number[] | undefined;
}): LockSlots {
  const { slot, slots } = lock;
  if (slots === undefined) return NO_SLOTS;
  return slot === undefined ? { slots } : { slot, slots };
}

const NO_SLOTS: LockSlots = {};

/** The message on the `node:diagnostics_channel` {@link LOCK_STATE_CHANNEL} when the state of a lock changes. */
export interface LockStateEvent extends LockSlots {
  /** The locked keys, sorted and without repetitions. */
  readonly keys: readonly string[];
  /** `LockHandle.id`. */
  readonly id: string;
  /** Readable name of this process. */
  readonly owner: string;
  /** `LockHandle.fencingToken`. */
  readonly fencingToken: number;
  /** `LockHandle.mode`. */
  readonly mode: LockMode;
  /** The new state. */
  readonly state: LockState;
  /** Milliseconds of validity left. */
  readonly remaining: number;
  /** The reason; only with `'unconfirmed'` and `'lost'`. */
  readonly error?: Error;
}

/** The name of the channel of `node:diagnostics_channel` on which every {@link LockStateEvent} is published. */
export const LOCK_STATE_CHANNEL = 'nestjs-redlock:lock-state';

/**
 * Publishing costs almost no time without subscribers. If a subscriber throws, Node reports an uncaught exception, and
 * the lock is not affected.
 */
export const lockStates = channel(LOCK_STATE_CHANNEL);

/**
 * The context of {@link LOCK_RELEASE_CHANNEL}: one object for all messages of a release, from `start` to `asyncEnd`. It
 * never has an `error`, because a release never rejects.
 */
export interface LockReleaseEvent extends LockSlots {
  /** The locked keys, sorted and without repetitions. */
  readonly keys: readonly string[];
  /** `LockHandle.id`. */
  readonly id: string;
  /** `LockHandle.fencingToken`. */
  readonly fencingToken: number;
  /** `LockHandle.mode`. */
  readonly mode: LockMode;
}

/**
 * The name of the tracing channel of `node:diagnostics_channel` for releases. A release ends when a quorum has
 * confirmed it, or at its time limit.
 */
export const LOCK_RELEASE_CHANNEL = 'nestjs-redlock:release';

export const releases = tracingChannel<unknown, LockReleaseEvent>(LOCK_RELEASE_CHANNEL);

/** The message on the channel {@link NODE_ERROR_CHANNEL} when a node gives no usable answer. */
export interface NodeErrorEvent {
  /** The node's address, without credentials. */
  readonly node: string;
  /** The reason. */
  readonly error: Error;
}

/** The name of the channel of `node:diagnostics_channel` on which every {@link NodeErrorEvent} is published. */
export const NODE_ERROR_CHANNEL = 'nestjs-redlock:node-error';

export const nodeErrors = channel(NODE_ERROR_CHANNEL);

/** Publishes that a node gave no usable answer to a request, unless the request was not sent. */
export function tellNodeError(node: string, error: Error): void {
  if (!nodeErrors.hasSubscribers || error instanceof NotSentError) return;
  const event: NodeErrorEvent = { node, error };
  nodeErrors.publish(event);
}

/** Event on the channel {@link THREAD_CHANNEL} when the thread for `renew: 'thread'` does not renew the locks. */
export interface ThreadEvent {
  /** The `name` of the `RedlockModule`; absent for the module without a name. */
  readonly instance?: string;
  /**
   * `'ended'`: the thread has failed, or could not start, and is not started again. `'slow'`: it has not connected to the
   * nodes for some seconds. `'unreachable'`: it could not renew a lock that the main thread could renew. `'hanging'`: it
   * does not answer. In each case the main thread renews the locks, and can lose them while it is blocked.
   */
  readonly reason: 'ended' | 'slow' | 'unreachable' | 'hanging';
  readonly error: Error;
}

/** The name of the channel of `node:diagnostics_channel` on which every {@link ThreadEvent} is published. */
export const THREAD_CHANNEL = 'nestjs-redlock:thread';

export const threadEvents = channel(THREAD_CHANNEL);

/** `true` if the channel has subscribers. `TracingChannel.hasSubscribers` exists only in later versions of Node. */
export function isWatched({ start, end, asyncStart, asyncEnd, error }: Watchable): boolean {
  // Every lock calls this function, so it allocates nothing.
  return (
    start.hasSubscribers ||
    end.hasSubscribers ||
    asyncStart.hasSubscribers ||
    asyncEnd.hasSubscribers ||
    error.hasSubscribers
  );
}

type Watchable = Readonly<
  Record<'start' | 'end' | 'asyncStart' | 'asyncEnd' | 'error', { readonly hasSubscribers: boolean }>
>;
