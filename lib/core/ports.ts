import type { Lease } from './lease.js';
import type { NodeCheck } from './node-status.js';
import type { WaiterId } from './waiter-id.js';

/** What a node knows of the claim that is in the way. */
export interface Holder {
  /** Tells holders apart: two nodes that name the same id are held by the same claim. */
  readonly id: string;
  /** Readable name of the holding process. */
  readonly owner: string;
  /** Milliseconds until the node lets the key go by itself; `Infinity` when the key has no expiry. */
  readonly remaining: number;
}

/** What a node has under a key. */
export interface Entry extends Holder {
  /** The id of the claim; something else that tells it apart when it is not one of ours. */
  readonly id: string;
  /** When it was acquired, in milliseconds since 1970 by the holder's clock; `undefined` when that is not known. */
  readonly since: number | undefined;
  /** The key's fencing counter on this node; `undefined` when there is none. */
  readonly counter: number | undefined;
}

/** What a node says of a key: what it has there, `undefined` when that is nothing, or why it cannot be read. */
export type KeyState = Entry | Error | undefined;

/** A node's vote on a claim. */
export type AcquireReply =
  | {
      readonly granted: true;
      /** The claim's fencing counter on this node: larger than that of every earlier grant of each of its keys. */
      readonly counter: number;
      /** The next waiter, who got the place ({@link QueuePosition.next}), is the first in line. */
      readonly nextIsFirst?: boolean;
    }
  | {
      readonly granted: false;
      readonly holder: Holder;
      /** The claim's tick has run already; `holder` says where, and for how long the node will know it. */
      readonly ran?: true;
    };

/** On what terms a node is asked to store a claim. */
export interface AcquireTerms {
  /** Milliseconds after which nobody waits for the answer; a node that knows the time must not store it later (S16). */
  readonly limit: number;
  /** A node that started or lost its data less than so many milliseconds ago must not vote (S12); 0 for no matter when. */
  readonly guard: number;
  /** What the fencing counter of a key that has none starts at, if the node's clock is not ahead of it. */
  readonly seed: number;
  /** How far apart counters of different nodes may be: with `'fine'` they follow the clock closely; `'coarse'` ones agree more often. */
  readonly floor: 'fine' | 'coarse';
  /** At the node where waiters queue: nobody passes those who came earlier. Elsewhere there is no order. */
  readonly order?: QueuePosition | undefined;
}

/** Where the one who asks stands among those who wait. */
export interface QueuePosition {
  /** What a refusal puts in line; without one, the caller does not wait. */
  readonly place?: WaiterId | undefined;
  /** Milliseconds that the caller has waited; who came earlier goes first. */
  readonly waited: number;
  /** Milliseconds that the one has waited who gets the place when this claim is granted. */
  readonly next?: number | undefined;
}

/** Messages for one place at one node. */
export interface Listening {
  /** Whether messages arrive at present, so that it makes sense to stand in line. */
  readonly ready: boolean;
  stop(): void;
}

/**
 * What a lock needs from one node. The algorithm knows nothing else of a store, so another store is another
 * implementation of this interface.
 *
 * Rejecting means that the outcome is not known, or that the node is not fit to vote: it counts as a vote against, and
 * the claim is released there. The caller has its own time limit; a node need not have one.
 */
export interface LockStore {
  /** For people, in messages; holds no credentials. */
  readonly name: string;

  /** Resolves when the node can be asked; rejects when the first try to reach it failed, or it must not be used. */
  connect(): Promise<void>;

  /** Whether an answer can be expected, as far as is known without asking. */
  readonly available: boolean;

  /** Whether messages arrive from it already, so that listening costs nothing. */
  readonly subscribed: boolean;

  /** Whether others waited at this node for any of the keys a moment ago. */
  contended(keys: readonly string[]): boolean;

  /** The node's clock as far as it is known here, in milliseconds since 1970. */
  time(): number | undefined;

  /**
   * Stores the claim under all its keys, or, if any of them is held by another claim or the node remembers that its
   * tick has run, under none.
   */
  acquire(claim: Lease, terms: AcquireTerms): Promise<AcquireReply>;

  /**
   * Lifts the claim's fencing counters to `token`, if all keys still hold the claim and no counter is beyond it;
   * resolves to whether they are there.
   */
  raise(claim: Lease, token: number): Promise<boolean>;

  /**
   * Makes the keys of each claim live for at least `ttl` milliseconds from now, if all of them still hold it; the
   * promise for a claim, at its index, resolves to whether they do. Never shortens a life: a late duplicate of an
   * earlier call must not undo a later one. What is wrong with one claim must not keep others from being extended.
   */
  extend(claims: readonly Lease[], ttl: number): readonly Promise<boolean>[];

  /**
   * Removes the keys that hold the claim and no others (S7); or, while {@link Lease.keepFor} is not 0, makes them end
   * after so many milliseconds. Then remembers {@link Lease.mark}, whoever holds the keys: a tick that has run has run.
   * Tells the first in line that it may try `after` milliseconds from now (0), or when the keys end.
   * Idempotent.
   */
  release(claim: Lease, after?: number): Promise<void>;

  /**
   * Listens for the messages to a place. `heard` is called with the milliseconds after which the place may try: 0 also
   * when messages begin to arrive (again), and something more when they cease to, as polling is all that is left then;
   * `turn` is whether it is first in line and the lock free, and `released` the id of the claim whose release made it so.
   */
  listen(place: WaiterId, heard: (after: number, turn: boolean, released?: string) => void): Listening;

  /** Gives up the place in the queues. */
  leave(place: WaiterId): Promise<void>;

  /** What is under each of the keys, in their order; they need not be keys of one lock. Changes nothing. */
  read(keys: readonly string[]): Promise<readonly KeyState[]>;

  /**
   * The keys that begin with `prefix` and have something under them, in pages that are small enough to `look` at in one
   * go, some of them empty. A key that is there from the first page to the last is among them; one that comes or goes
   * meanwhile may be, and a key may come twice.
   */
  scan(prefix: string): AsyncIterable<readonly string[]>;

  /** Removes what is under the key if its id is one of these; resolves to that id. */
  forceRelease(key: string, ids: readonly string[]): Promise<string | undefined>;

  /**
   * How fit the node is to vote, if one that (re)started or lost its data less than `guard` milliseconds ago must not.
   * Rejects when it does not answer.
   */
  check(guard: number): Promise<NodeCheck>;

  /** Ends what was opened for this node. */
  close(): Promise<void>;
}
