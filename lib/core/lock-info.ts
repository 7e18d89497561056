import type { Entry, LockStore, KeyState } from './ports.js';

/** What one node says of a key. */
export type LockVote =
  | {
      /** The node's address, without credentials. */
      readonly node: string;
      readonly vote: 'held';
      /** The id of the lock that it has there; the value of the key when something else wrote it. */
      readonly id: string;
      readonly owner: string;
      /** By the holder's clock; `undefined` when something else wrote the key. */
      readonly since: Date | undefined;
      /** Milliseconds until the node lets it go unless it is renewed; `Infinity` when the key has no expiry. */
      readonly remaining: number;
      /** The key's fencing counter on this node; `undefined` when there is none. */
      readonly counter: number | undefined;
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

  /** When the holder acquired it, by the holder's clock; `undefined` also when something else wrote the key. */
  readonly since: Date | undefined;

  /**
   * Milliseconds until no quorum has it any more, unless it is renewed; 0 when it is not held, `Infinity` when its key
   * has no expiry. By the clocks of the nodes, so it is a little more than `remaining()` of the holder's handle.
   */
  readonly remaining: number;

  /**
   * The holder's fencing token; `undefined` also when so many nodes are away that no quorum confirms it, or something
   * else wrote the key.
   */
  readonly fencingToken: number | undefined;

  /** What each node says. */
  readonly votes: readonly LockVote[];
}

/** One node's answer as a vote. */
export function voteOf({ name }: LockStore, look: KeyState): LockVote {
  if (look === undefined) return { node: name, vote: 'free' };
  if (look instanceof Error) return { node: name, vote: 'error', error: look };
  return { node: name, vote: 'held', ...look, since: dateOf(look) };
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
  // A node that granted it after the others had decided may have another counter: the token is what a quorum has.
  const fencingToken = holders
    .map(({ counter }) => counter)
    .find((counter) => holders.filter((vote) => vote.counter === counter).length >= quorum);
  return { key, held: true, id, owner, since, remaining, fencingToken, votes };
}

function dateOf({ since }: Entry): Date | undefined {
  return since === undefined ? undefined : new Date(since);
}
