import { badOption } from '../../core/checks.js';
import { LEADER_PREFIX, oneKey } from '../../core/keys.js';

/**
 * The time for which this process leads. It takes the place of a lock where a resource compares fencing tokens, such as a
 * `FencedRegister`.
 */
export interface LeaderTerm {
  /** The one key that is locked while somebody leads. */
  readonly keys: readonly string[];

  /** The number of the term: larger than that of every term before it, on the conditions of `LockHandle.fencingToken`. */
  readonly fencingToken: number;

  /**
   * Aborts when the term ends: its reason is a `LockLostError` after a loss, otherwise an `Error` that names the cause (the
   * process resigns or shuts down, or the method has ended).
   *
   * A blocked event loop delays it. What a paused leader sends after its term is refused only by a resource that compares
   * fencing tokens.
   */
  readonly signal: AbortSignal;
}

/** The process that leads at present, as a quorum of nodes says. */
export interface CurrentLeader {
  /** Readable name of the process (its module option `owner`). */
  readonly owner: string;
  /** When its term began, by its own clock. */
  readonly since: Date;
  /** `LeaderTerm.fencingToken`; `undefined` when so many nodes are away that no quorum confirms it. */
  readonly fencingToken: number | undefined;
}

export function leaderKey(name: string): string {
  return LEADER_PREFIX + name;
}

/** @throws TypeError when no key can be made of it */
export function checkLeaderName(name: unknown): asserts name is string {
  if (typeof name !== 'string' || name === '') throw badOption('name', 'a string that is not empty', name);
  oneKey(leaderKey(name));
}
