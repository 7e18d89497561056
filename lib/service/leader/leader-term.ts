import { badOption } from '../../core/checks.js';
import { LEADER_PREFIX, oneKey } from '../../core/keys.js';

/**
 * The period in which this process leads. It can replace a lock where a resource compares fencing tokens, such as a
 * `FencedRegister`.
 */
export interface LeaderTerm {
  /** The only key, which is locked while there is a leader. */
  readonly keys: readonly string[];

  /** The number of the term: larger than that of every term before it, on the conditions of `LockHandle.fencingToken`. */
  readonly fencingToken: number;

  /**
   * Aborts when the term ends. Its reason is a `LockLostError` after a loss. Otherwise it is an `Error` that names the
   * cause: the process resigns or shuts down, or the method has ended.
   *
   * A blocked event loop delays the signal. Writes that a paused leader sends after its term are refused only by a
   * resource that compares fencing tokens.
   */
  readonly signal: AbortSignal;
}

/** The present leader, according to a quorum of nodes. */
export interface CurrentLeader {
  /** Readable name of the process (its module option `owner`). */
  readonly owner: string;
  /** The start of its term, by its own clock. */
  readonly since: Date;
  /** `LeaderTerm.fencingToken`; `undefined` when too many nodes are unavailable for a quorum to confirm it. */
  readonly fencingToken: number | undefined;
}

export function leaderKey(name: string): string {
  return LEADER_PREFIX + name;
}

/** @throws TypeError when it cannot be part of a key */
export function checkLeaderName(name: unknown): asserts name is string {
  if (typeof name !== 'string' || name === '') throw badOption('name', 'a string that is not empty', name);
  oneKey(leaderKey(name));
}
