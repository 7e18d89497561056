import { badOption } from '../../core/checks.js';
import { LEADER_PREFIX, oneKey } from '../../core/keys.js';

/**
 * The period in which this process leads. A `FencedRegister`, or another resource that compares fencing tokens, accepts
 * a term in place of a lock.
 */
export interface LeaderTerm {
  /** The key of the leader's lock, in a list. */
  readonly keys: readonly string[];

  /**
   * The number of the term. It is larger than the number of every earlier term, under the conditions of
   * `LockHandle.fencingToken`.
   */
  readonly fencingToken: number;

  /**
   * Aborts when the term ends. The reason is a `LockLostError` after a loss. Otherwise the reason is an `Error` whose
   * message says why: the process resigns or shuts down, or the method has ended.
   *
   * A blocked event loop delays the signal. Only a resource that compares fencing tokens refuses writes that a paused
   * leader sends after its term.
   */
  readonly signal: AbortSignal;

  /**
   * Aborts when the shutdown of the application begins, which also ends the term. It is the same signal as
   * `LockHandle.closing`.
   */
  readonly closing: AbortSignal;
}

/** The present leader, according to a quorum of nodes. */
export interface CurrentLeader {
  /** Readable name of the process (its module option `owner`). */
  readonly owner: string;
  /** The start of the leader's term, by the leader's clock. */
  readonly since: Date;
  /** `LeaderTerm.fencingToken`; `undefined` when too many nodes are unavailable for a quorum to confirm it. */
  readonly fencingToken: number | undefined;
}

export function leaderKey(name: string): string {
  return LEADER_PREFIX + name;
}

/** @throws TypeError when `name` cannot be part of a key */
export function checkLeaderName(name: unknown): asserts name is string {
  if (typeof name !== 'string' || name === '') throw badOption('name', 'a string that is not empty', name);
  oneKey(leaderKey(name));
}
