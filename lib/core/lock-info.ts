import type { LockMode } from './lock-mode.js';
import { isDetachedId } from './pass.js';
import type { KeyHolder, KeyState, LockStore } from './ports.js';

/** One holder of a lock. */
export interface LockHolder {
  /** The `id` of its handle. */
  readonly id: string;

  /** Readable name of the holder's process (its module option `owner`). */
  readonly owner: string;

  /** The time at which the holder asked for the lock, by the holder's clock. */
  readonly since: Date;

  /**
   * Milliseconds until the lock of this holder ends, unless it is renewed; `Infinity` when the key has no expiry. The
   * value comes from the nodes' clocks, so it is a little larger than `remaining()` of the holder's handle.
   */
  readonly remaining: number;

  /** The fencing token; `undefined` when too many nodes are unavailable for a quorum to confirm it. */
  readonly fencingToken: number | undefined;

  readonly mode: LockMode;

  /** The number of the holder's permit; only with permits. */
  readonly slot?: number;

  /**
   * `true` if the lock was detached, and waits for the process that attaches it; otherwise absent. `owner` and `since`
   * are then those of the detachment, and `owner` says so, too.
   */
  readonly detached?: true;
}

/**
 * A holder in the answer of one node. The node's token can differ from the lock's token, which a quorum of nodes
 * stores.
 */
export interface NodeHolder extends LockHolder {
  readonly fencingToken: number;
}

/** The answer of one node about a key. */
export type LockVote =
  | (NodeHolder & {
      /** The node's address, without credentials. */
      readonly node: string;
      /** The key is held. The other properties of this vote describe the first of `holders`. */
      readonly vote: 'held';
      /**
       * The holders on this node, in the order in which their locks end; only one unless the lock is shared or has
       * permits.
       */
      readonly holders: readonly NodeHolder[];
      /** The largest number of permits that any recent holder of the key asked for; only with permits. */
      readonly permits?: number;
    })
  | { readonly node: string; readonly vote: 'free' }
  | {
      readonly node: string;
      readonly vote: 'error';
      /** The reason for a missing or unusable answer. */
      readonly error: Error;
    };

/** The answers of the nodes about a key, at one moment. The state of the key may have changed since. */
export interface LockInfo {
  readonly key: string;

  /**
   * `true` if a quorum of nodes stores the key under one id, also while `minHold` keeps the key after the release. If
   * `false` and all nodes answered, nobody holds the lock. If `false` and some nodes did not answer, a lock that at
   * least one node stores may be held; see {@link votes}.
   */
  readonly held: boolean;

  /** The mode of the lock; only when held. */
  readonly mode: LockMode | undefined;

  /**
   * The largest number of holders at a time; only when held with permits. Processes may ask for different numbers
   * during a deployment; the largest recent number counts.
   */
  readonly permits: number | undefined;

  /** All holders, in the order in which their locks end; empty when the lock is not held. */
  readonly holders: readonly LockHolder[];

  /**
   * The `id` of the holder's handle; only when held, like `owner` and `since`. With several holders, `id`, `owner`,
   * `since`, `remaining` and `fencingToken` describe the holder for which other callers have to wait. With permits that
   * is the holder whose permit ends first; with a shared lock it is the reader whose lock ends last.
   */
  readonly id: string | undefined;

  /** Readable name of the holder's process (its module option `owner`). */
  readonly owner: string | undefined;

  /** The time at which the holder asked for the lock, by the holder's clock. */
  readonly since: Date | undefined;

  /**
   * Milliseconds until no quorum stores the lock of this holder any more, unless it is renewed; 0 when the lock is not
   * held, `Infinity` when the key has no expiry. The value comes from the nodes' clocks, so it is a little larger than
   * `remaining()` of the holder's handle.
   */
  readonly remaining: number;

  /**
   * The holder's fencing token; `undefined` when the lock is not held, and when too many nodes are unavailable for a
   * quorum to confirm the token.
   */
  readonly fencingToken: number | undefined;

  /** The answer of each node. */
  readonly votes: readonly LockVote[];
}

/** Converts the answer of one node into a vote. */
export function voteOf({ name }: LockStore, state: KeyState): LockVote {
  if (state instanceof Error) return { node: name, vote: 'error', error: state };
  const holders = (state?.holders ?? []).map(asHolder);
  const [first] = holders;
  if (!state || !first) return { node: name, vote: 'free' };
  const { permits } = state;
  return { node: name, vote: 'held', ...first, holders, ...(permits === undefined ? {} : { permits }) };
}

/** Combines the votes on a key. */
export function infoOf(key: string, votes: readonly LockVote[], quorum: number): LockInfo {
  const holders = holdersOf(votes, quorum);
  const isShared = holders[0]?.mode === 'shared';
  const decisive = isShared ? holders.at(-1) : holders[0];
  const asked = votes.flatMap((vote) =>
    vote.vote === 'held' && vote.permits !== undefined ? [vote.permits] : [],
  );
  const isOfPermits = decisive?.mode === 'permits' && asked.length > 0;
  return {
    key,
    held: holders.length > 0,
    mode: decisive?.mode,
    permits: isOfPermits ? Math.max(...asked) : undefined,
    holders,
    id: decisive?.id,
    owner: decisive?.owner,
    since: decisive?.since,
    remaining: decisive?.remaining ?? 0,
    fencingToken: decisive?.fencingToken,
    votes,
  };
}

/**
 * The holders that a quorum stores, in the order in which their locks end. With permits a quorum must store the holder
 * in the same slot.
 */
function holdersOf(votes: readonly LockVote[], quorum: number): LockHolder[] {
  const found = new Map<string, NodeHolder[]>();
  for (const vote of votes) {
    if (vote.vote !== 'held') continue;
    for (const holder of vote.holders) {
      const name = `${holder.id} ${holder.slot ?? ''}`;
      const same = found.get(name);
      if (same) same.push(holder);
      else found.set(name, [holder]);
    }
  }
  const held = [...found.values()].filter(({ length }) => length >= quorum);
  return held.map((same) => holderOf(same, quorum)).toSorted((a, b) => a.remaining - b.remaining);
}

/** Combines the answers of at least a quorum of nodes about one holder. */
function holderOf(same: readonly NodeHolder[], quorum: number): LockHolder {
  const [holder] = same as [NodeHolder];
  const remaining = same.map((each) => each.remaining).toSorted((a, b) => b - a)[quorum - 1] ?? 0;
  // A node that granted the lock after a quorum had granted it may store another token. The token of the lock is the
  // token that a quorum stores.
  const fencingToken = same
    .map((each) => each.fencingToken)
    .find((token) => same.filter((each) => each.fencingToken === token).length >= quorum);
  return { ...holder, remaining, fencingToken };
}

/** Converts a holder of a store into a holder of the public interface. */
export function asHolder({ id, owner, since, remaining, fencingToken, mode, slot }: KeyHolder): NodeHolder {
  return {
    id,
    owner,
    since: new Date(since),
    remaining,
    fencingToken,
    mode,
    ...(slot === undefined ? {} : { slot }),
    ...(isDetachedId(id) ? { detached: true } : {}),
  };
}
