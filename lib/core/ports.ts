import type { Instant } from './clock.js';
import type { Lease } from './lease.js';
import type { LockMode } from './lock-mode.js';
import type { NodeCheck } from './node-status.js';
import type { WaiterId } from './waiter-id.js';

/** What a store knows of what is in the way of a lease: a holder, the one whose turn it is, or who ran a tick. */
export interface Holder {
  /** Tells holders apart: two nodes that name the same id are held by the same lease. */
  readonly id: string;
  /** Readable name of the holding process. */
  readonly owner: string;
  /** Milliseconds until the store lets the key go by itself; `Infinity` when the key has no expiry. */
  readonly remaining: number;
}

/** One of those who hold a key in a store. */
export interface KeyHolder extends Holder {
  /** When it was asked for, in milliseconds since 1970 by the holder's clock. */
  readonly since: number;
  readonly fencingToken: number;
  readonly mode: LockMode;
  /** Only with permits. */
  readonly slot?: number;
}

/** What a store has under a key that is held. */
export interface HeldKey {
  readonly mode: LockMode;
  /** The most that any of those asked for who have held the key lately; only with permits. */
  readonly permits?: number;
  /** One in an exclusive lock. First to end first. */
  readonly holders: readonly KeyHolder[];
}

/** What a store says of a key: who holds it, `undefined` when nobody does, or why it cannot be read. */
export type KeyState = HeldKey | Error | undefined;

/** The waiters of one process for a key in one mode, which stand as one in the queue of a store. */
export interface KeyWaiter extends Omit<WaiterId, 'keys'> {
  /** When the first of them came, in milliseconds since 1970, by the clock of the store if it has one. */
  readonly since: number;
}

/** The slots that a lease with permits is to get, one of each key. */
export interface SlotWish {
  readonly slots: readonly number[];
  /**
   * These and no others, and what the lease has of others it gives up: so that a quorum of nodes comes to the same. Else the
   * store takes the next ones that are free.
   */
  readonly exactly: boolean;
}

/** What is asked of every node for one attempt to lock some keys. */
export interface AcquireRequest {
  readonly lease: Lease;
  /** When it is asked for, by this machine's clock, in milliseconds since 1970; for people. */
  readonly since: number;
  /** Milliseconds after which nobody waits for the answer. A store that knows the time must not store the lease later (S16). */
  readonly limit: number;
  /** A node that started or lost its data less than so many milliseconds ago must not vote (S12); 0 for no matter when. */
  readonly guard: number;
  /**
   * The fencing token that all nodes are to give, so that they agree on it; larger where a node's clock or the last token of
   * a key is. 0 when there is one node.
   */
  readonly proposal: number;
  /** Where the one who asks stands among those who wait; only the node that keeps the order reads it. */
  readonly position: QueuePosition | undefined;
  /** Only with permits. */
  readonly wish?: SlotWish | undefined;
  /**
   * The lock is extended for as long as it is held and freed when it is released, so that it may end together with others of
   * its process.
   * @defaultValue false
   */
  readonly renewed?: boolean;
}

/** Where the one who asks stands among those who wait. */
export interface QueuePosition {
  /** What a refusal puts in line. */
  readonly waiter: WaiterId;
  /** Milliseconds that the caller has waited; who came earlier goes first. */
  readonly waited: number;
  /** Milliseconds that the one has waited who takes over the place when this lease is granted. */
  readonly next: number | undefined;
}

/** A node's vote on a lease. */
export type AcquireReply =
  | {
      readonly granted: true;
      /** Larger than the token of every earlier grant of each of the keys on this node, as long as its clock does not fall by 10 s. */
      readonly token: number;
      /** Since when its ttl counts, where that may be earlier than when it was asked for: what the store has confirmed last. */
      readonly validFrom?: Instant;
      /** The next waiter, who took over the place ({@link QueuePosition.next}), is the first in line. */
      readonly nextIsFirst?: boolean;
      /** Of each key, in their order; only with permits. */
      readonly slots?: readonly number[];
      /** The most permits that anybody asked for lately for one of the keys, where that is more than the lease asks for. */
      readonly permits?: number;
    }
  | {
      readonly granted: false;
      /** The one to wait for: whose end may admit the lease. */
      readonly holder: Holder | KeyHolder;
      /** Others who hold the key, as far as they are known without asking more; only with permits. */
      readonly others?: readonly KeyHolder[];
      /** As with a grant. */
      readonly permits?: number;
      /** The lease's tick has run already; `holder` says where, and for how long the node will know it. */
      readonly ran?: true;
    };

/** A lease that a store is to let go. */
export interface ReleaseRequest {
  readonly lease: Lease;
  /** Milliseconds from now after which the first in line may try; 0 for at once. */
  readonly pause: number;
}

/** Which ttls a store can keep. */
export interface TtlRule {
  /** Milliseconds. */
  readonly least: number;
  /** A ttl is a multiple of so many milliseconds. */
  readonly step: number;
  /** Why, for messages. */
  readonly reason: string;
}

/** Takes the answer to a request by its index; called once for each, also with an error. */
export type Tell<Reply> = (index: number, reply: Reply | Error) => void;

/**
 * What the algorithm needs from a store; all else is optional. Each method takes what is asked of it within one turn of the
 * event loop. `acquire`, `extend` and `release` do not throw: they tell an error.
 *
 * An error means that the outcome is not known, or that the node is not fit to vote: it counts as a vote against, and
 * the lease is released there. The caller has its own time limit; a store need not have one.
 *
 * What reaches the server later than asked must do no harm. A store starts nothing for a lease that has ended but its release
 * ({@link Lease.ended}), and a release undoes an acquisition that was sent before it, also one that is still under way (S6, S15).
 */
export interface LockStore {
  /** For people, in messages; holds no credentials. */
  readonly name: string;

  /**
   * Resolves when the store can be asked. Rejects when the first try to reach it failed, with a message that says what to do
   * about it; the store goes on trying. Rejects with an `UnfitStoreError` when it must not be used: that ends the start.
   */
  connect(): Promise<void>;

  /** What it can store, `'exclusive'` at least; a lock of another mode is refused with an error before it is asked for. */
  readonly modes: readonly LockMode[];

  /**
   * The ttls that it can keep; a lock with another one is refused with an error before it is asked for.
   * @defaultValue any whole number of milliseconds
   */
  readonly ttls?: TtlRule;

  /** Whether an answer can be expected, as far as is known without asking. */
  readonly available: boolean;

  /**
   * Stores each lease under all its keys, or, if any of them is held by another lease beside which it cannot be, or the
   * store remembers that its tick has run, under none. With permits a lease gets a slot of each key, which no other has
   * while it lasts, and each slot a token larger than those that it had before. A reader that joins others may get the
   * token that they have. Whoever asks again with the same lease gets the same.
   *
   * @param ordered - whether this node keeps the order of those who wait: then nobody passes those who came earlier, and
   * who is refused and has a {@link QueuePosition} is put in line
   */
  acquire(requests: readonly AcquireRequest[], ordered: boolean, tell: Tell<AcquireReply>): void;

  /**
   * Makes the keys of each lease live for at least `ttl` milliseconds from now, if it holds all of them; the answer is
   * whether it does. Never shortens a life, and revives nothing: a late duplicate of an earlier call must not undo a later
   * one. What is wrong with one lease must not keep others from being extended. Each holder has an end of its own: nobody's
   * extension touches another's (S23).
   */
  extend(leases: readonly Lease[], ttl: number, tell: Tell<boolean>): void;

  /**
   * Frees the keys that the lease holds and no others (S7); or, while {@link Lease.keepFor} is not 0, makes them end
   * after so many milliseconds. Then remembers {@link Lease.mark}, whoever holds the keys: a tick that has run has run.
   * Tells the first in line when it may try. Idempotent. After an error nobody asks again: a store that can, releases later,
   * else the lease lasts until its ttl has passed.
   */
  release(requests: readonly ReleaseRequest[], tell: Tell<undefined>): void;

  /** Ends what was opened for this store. */
  close(): Promise<void>;
}

/**
 * Keeps the order of those who wait, and tells them when to try. Without it they poll as `retry.delay` says, and who comes
 * next is chance.
 */
export interface WaitQueue {
  /** Whether messages arrive already, so that listening costs nothing. */
  readonly subscribed: boolean;

  /** Whether others waited here for any of the keys a moment ago. */
  contended(keys: readonly string[]): boolean;

  /**
   * Listens for the messages to a waiter. `onMessage` is called with the milliseconds after which the waiter may try: 0
   * also when messages begin to arrive (again), and something more when they cease to, as polling is all that is left then;
   * `turn` is whether it is first in line and the lock free, and `released` the id of the lease whose release made it so.
   */
  listen(
    waiter: WaiterId,
    onMessage: (after: number, turn: boolean, released?: string) => void,
  ): Subscription;

  /** Takes the waiter out of the queues. */
  leave(waiter: WaiterId): Promise<void>;
}

/** Messages for one waiter at one store. */
export interface Subscription {
  /** Whether messages arrive at present, so that it makes sense to stand in line. */
  readonly ready: boolean;
  stop(): void;
}

/**
 * Keeps a stream of those who can hold a key together, such as readers, from starving one who waits for it in another mode
 * (S22). For stores that have such modes. Without it that one gets the key when the stream ends.
 */
export interface StarvationGuard {
  /**
   * Keeps those out for a few seconds who ask later than the waiter in another mode which several can hold at a time: a
   * stream of them that never ends would starve it (S22). The store need not be the one at which waiters queue.
   *
   * @param waited - milliseconds that the waiter has waited; it goes by when it came
   * @returns `true` when those are kept out until {@link letPass}; `false` while somebody who waits, too, keeps others out in
   * its place, and may cease to at any time: then it is asked again until it is `true`
   */
  holdBack(waiter: WaiterId, waited: number): Promise<boolean>;

  /** Ends what {@link holdBack} began. */
  letPass(waiter: WaiterId): Promise<void>;
}

/** Shows locks from outside, and ends them. Without it `inspect`, `list` and `forceRelease` reject. */
export interface LockDirectory {
  /** What is under each of the keys, in their order; they need not be keys of one lock. Changes nothing. */
  read(keys: readonly string[]): Promise<readonly KeyState[]>;

  /**
   * The keys that begin with `prefix` and may be held, in pages that are small enough to `read` in one go, some of them
   * empty. A key that is held from the first page to the last is among them; one that comes or goes meanwhile may be, and a
   * key may come twice.
   */
  scan(prefix: string): AsyncIterable<readonly string[]>;

  /** Ends those of the key's holders that have one of these ids; resolves to the ids of those that it ended. */
  forceRelease(key: string, ids: readonly string[]): Promise<readonly string[]>;
}

/** Shows the queues from outside. Without it the board shows those waiters alone that its own process has. */
export interface QueueDirectory {
  /**
   * The first waiters in the queue of each key, in order, and at least a hundred of them; no more keys than a page of
   * {@link LockDirectory.scan} has. Changes nothing.
   */
  waiting(keys: readonly string[]): Promise<readonly (readonly KeyWaiter[])[]>;
}

/**
 * What only stores need that are used several at a time, and know nothing of each other. Without it a store is the only node
 * of its module: one that replicates itself.
 */
export interface QuorumStore {
  /** The store's clock as far as it is known here, in milliseconds since 1970. */
  time(): number | undefined;

  /**
   * Lifts the lease's tokens to `token`, if it holds all its keys, and none has a larger one or it is a reader's; resolves
   * to whether they are at least there.
   */
  raise(lease: Lease, token: number): Promise<boolean>;
}

/** Tells how fit a store is. Without it health and metrics take it for fit. */
export interface StoreHealth {
  /**
   * How fit the store is to vote, if one that (re)started or lost its data less than `guard` milliseconds ago must not.
   * Rejects when it does not answer.
   */
  check(guard: number): Promise<NodeCheck>;
}

/** A store with whatever else it can do. */
export type Store = LockStore &
  Partial<WaitQueue & StarvationGuard & LockDirectory & QueueDirectory & QuorumStore & StoreHealth>;
