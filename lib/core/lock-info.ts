import type { KeyState, LockStore } from './ports.js';

/** What one node says of a key. */
export type LockVote =
  | {
      /** The node's address, without credentials. */
      readonly node: string;
      readonly vote: 'held';
      /** The id of the lock that it has there. */
      readonly id: string;
      readonly owner: string;
      /** When it was asked for, by the holder's clock. */
      readonly since: Date;
      /** Milliseconds until the node lets it go unless it is renewed; `Infinity` when the key has no expiry. */
      readonly remaining: number;
      /** The token that this node gave; the lock's is the one that a quorum has. */
      readonly fencingToken: number;
    }
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

  /** The `id` of the holder's handle; only when held, like all that follows. */
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
  if (state === undefined) return { node: name, vote: 'free' };
  if (state instanceof Error) return { node: name, vote: 'error', error: state };
  return { node: name, vote: 'held', ...state, since: new Date(state.since) };
}

/** What the votes on a key come to. */
export function infoOf(key: string, votes: readonly LockVote[], quorum: number): LockInfo {
  const held = votes.filter((vote) => vote.vote === 'held');
  const holders = held
    .map(({ id }) => held.filter((vote) => vote.id === id))
    .find((same) => same.length >= quorum);
  const [holder] = holders ?? [];
  if (!holders || !holder) {
    const nobody = { id: undefined, owner: undefined, since: undefined, fencingToken: undefined };
    return { key, held: false, ...nobody, remaining: 0, votes };
  }
  const { id, owner, since } = holder;
  const remaining = holders.map((vote) => vote.remaining).toSorted((a, b) => b - a)[quorum - 1] ?? 0;
  // A node that granted it after the others had decided may have another one: the token is what a quorum has.
  const fencingToken = holders
    .map((vote) => vote.fencingToken)
    .find((token) => holders.filter((vote) => vote.fencingToken === token).length >= quorum);
  return { key, held: true, id, owner, since, remaining, fencingToken, votes };
}
