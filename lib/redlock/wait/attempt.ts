import type { LockHeldError, LockUnavailableError } from '../../core/errors.js';
import type { LockHandle } from '../../core/lock-handle.js';
import type { QueuePosition } from '../../core/ports.js';

/** The settings of one attempt. */
export interface AttemptPlan {
  /** Milliseconds within which the attempt must end. */
  readonly left: number;
  /** The index of the node that keeps the queue of waiters. */
  readonly queueNode: number;
  readonly position?: QueuePosition | undefined;
  /**
   * If `true`, the attempt first asks only the queue node, and asks the other nodes after the queue node has granted.
   * While other callers wait, requests to all nodes cost more and split the votes.
   */
  readonly queueNodeFirst: boolean;
  /** `true` if a message has told that it is the turn of this process. */
  readonly isTurn: boolean;
  /**
   * The number of attempts without progress before this one: they split the vote, or only other nodes than the queue node
   * refused.
   */
  readonly splits: number;
}

/** The members of an acquired lock that waiting uses. */
export interface AcquiredLock extends Pick<LockHandle, 'id' | 'fencingToken' | 'mode' | 'slot'> {
  readonly ttl: number;
  /** Called when the release of the lock has been sent. */
  follower: (() => void) | undefined;
}

/** The outcome of an attempt. */
export interface AttemptResult<Lock extends AcquiredLock = AcquiredLock> {
  readonly outcome: Lock | LockHeldError | LockUnavailableError;
  /**
   * The queue node's vote. `'granted'`: it has also removed the waiter from its queue. `'refused'`: it has also added
   * the waiter to its queue, if the request had a `position`. `'pending'`: other nodes decided the attempt before the
   * queue node's vote arrived.
   */
  readonly atQueueNode: 'granted' | 'refused' | 'failed' | 'pending';
  /**
   * `true` if the queue node granted the lock at any time of the attempt. With permits it may have refused the slots of
   * the other nodes afterwards, and has then freed the slots that it granted.
   */
  readonly wasGranted: boolean;
  /** `true` if the votes show no caller with a quorum, so that the next attempt should follow soon. */
  readonly split: boolean;
  /**
   * `true` if the attempt had less time than a node may take for its answer: a missing answer then does not show that
   * the node is down.
   */
  readonly cutShort: boolean;
  /** `true` if the lock was granted, and the next waiter of this process is the first of the queue. */
  readonly nextIsFirst: boolean;
  /** `true` if another attempt would be useless, such as for a tick that has already run. */
  readonly isFinal: boolean;
  /**
   * `true` if so many nodes answered with errors that the other nodes are too few for a quorum. More time for the other
   * nodes is then useless.
   */
  readonly isRuledOut: boolean;
}

/** Receives the result of an attempt. The attempt calls exactly one of these methods, and calls it once. */
export interface AttemptCaller<Lock extends AcquiredLock = AcquiredLock> {
  attempted(result: AttemptResult<Lock>): void;
  /** Called when a signal ended the attempt, with the reason of the signal. */
  aborted(reason: unknown): void;
}
