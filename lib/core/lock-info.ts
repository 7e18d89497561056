import type { LockMode } from './lock-mode.js';
import type { KeyHolder, KeyState, LockStore } from './ports.js';

/** One of those who hold a lock. */
export interface LockHolder {
  /** The `id` of its handle. */
  readonly id: string;

  /** Readable name of the process that holds it (its module option `owner`). */
  readonly owner: string;

  /** When it was asked for, by the holder's clock. */
  readonly since: Date;

  /**
   * Milliseconds until it ends unless it is renewed; `Infinity` when its key has no expiry. By the clocks of the nodes, so
   * it is a little more than `remaining()` of the holder's handle.
   */
  readonly remaining: number;

  /** `undefined` when so many nodes are away that no quorum confirms it. */
  readonly fencingToken: number | undefined;

  readonly mode: LockMode;

  /** The one of the `permits` that it has; only with permits. */
  readonly slot?: number;
}

/** A holder as one node knows it; the lock's token is the one that a quorum has. */
export interface NodeHolder extends LockHolder {
  readonly fencingToken: number;
}

/** What one node says of a key. */
export type LockVote =
  | (NodeHolder & {
      /** The node's address, without credentials. */
      readonly node: string;
      /** Held, by the holder that is named here, which is the first of `holders`. */
      readonly vote: 'held';
      /** Those whom it has there, first to end first; one unless the lock is shared or has permits. */
      readonly holders: readonly NodeHolder[];
      /** The most that any of those asked for who have held the key lately; only with permits. */
      readonly permits?: number;
    })
  | { readonly node: string; readonly vote: 'free' }
  | {
      readonly node: string;
      readonly vote: 'error';
      /** Why the node's answer is missing or of no use. */
      readonly error: Error;
    };

/** What the nodes say of a key, at one moment; it may be different by now. */
export interface LockInfo {
  readonly key: string;

  /**
   * Whether a quorum of nodes has it under one id; also while `minHold` keeps it after its release. Without that nobody holds it, unless nodes gave no answer: then a
   * lock that some node has may be held; see {@link votes}.
   */
  readonly held: boolean;

  /** How it is held; only when held. */
  readonly mode: LockMode | undefined;

  /**
   * How many can hold it at a time; only when held with permits. Where processes ask with different numbers, which is so
   * while a new version is deployed, the largest of late.
   */
  readonly permits: number | undefined;

  /** All who hold it, first to end first; none when it is not held. */
  readonly holders: readonly LockHolder[];

  /**
   * The `id` of the holder's handle; only when held, like `owner` and `since`. Of several holders these, `remaining` and
   * `fencingToken` are those of the one whose end lets somebody else in: the first to end with permits, the last when shared.
   */
  readonly id: string | undefined;

  /** Readable name of the process that holds it (its module option `owner`). */
  readonly owner: string | undefined;

  /** When the holder acquired it, by the holder's clock. */
  readonly since: Date | undefined;

  /**
   * Milliseconds until no quorum has it any more, unless it is renewed; 0 when it is not held, `Infinity` when its key
   * has no expiry. By the clocks of the nodes, so it is a little more than `remaining()` of the holder's handle.
   */
  readonly remaining: number;

  /**
   * The holder's fencing token; `undefined` also when so many nodes are away that no quorum confirms it.
   */
  readonly fencingToken: number | undefined;

  /** What each node says. */
  readonly votes: readonly LockVote[];
}

/** One node's answer as a vote. */
export function voteOf({ name }: LockStore, state: KeyState): LockVote {
  if (state instanceof Error) return { node: name, vote: 'error', error: state };
  const holders = (state?.holders ?? []).map(asHolder);
  const [first] = holders;
  if (!state || !first) return { node: name, vote: 'free' };
  const { permits } = state;
  return { node: name, vote: 'held', ...first, holders, ...(permits === undefined ? {} : { permits }) };
}

/** What the votes on a key come to. */
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

/** Those whom a quorum has, in the same slot if it is one; first to end first. */
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

/** One holder, as a quorum of nodes and maybe more know it. */
function holderOf(same: readonly NodeHolder[], quorum: number): LockHolder {
  const [holder] = same as [NodeHolder];
  const remaining = same.map((each) => each.remaining).toSorted((a, b) => b - a)[quorum - 1] ?? 0;
  // A node that granted it after the others had decided may have another one: the token is what a quorum has.
  const fencingToken = same
    .map((each) => each.fencingToken)
    .find((token) => same.filter((each) => each.fencingToken === token).length >= quorum);
  return { ...holder, remaining, fencingToken };
}

/** A holder as people see it. */
export function asHolder({ id, owner, since, remaining, fencingToken, mode, slot }: KeyHolder): NodeHolder {
  return {
    id,
    owner,
    since: new Date(since),
    remaining,
    fencingToken,
    mode,
    ...(slot === undefined ? {} : { slot }),
  };
}
