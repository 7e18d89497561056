import type { Instant } from './clock.js';
import type { Lease } from './lease.js';
import type { LockMode } from './lock-mode.js';
import type { NodeCheck } from './node-status.js';
import type { WaiterId } from './waiter-id.js';

/** A store's report of the obstacle for a lease: a holder, the first waiter in line, or the process that ran a tick. */
export interface Holder {
  /** Identifies the holder: two nodes that report the same id store the same lease. */
  readonly id: string;
  /** Readable name of the holding process. */
  readonly owner: string;
  /** Milliseconds until the key expires in the store; `Infinity` when the key has no expiry. */
  readonly remaining: number;
}

/** One holder of a key in a store. */
export interface KeyHolder extends Holder {
  /** The time of its request, in milliseconds since 1970 by the holder's clock. */
  readonly since: number;
  readonly fencingToken: number;
  readonly mode: LockMode;
  /** Only with permits. */
  readonly slot?: number;
}

/** The state of a held key in a store. */
export interface HeldKey {
  readonly mode: LockMode;
  /** The largest number of permits that any recent holder of the key asked for; only with permits. */
  readonly permits?: number;
  /** The holders, the first to end first; one for an exclusive lock. */
  readonly holders: readonly KeyHolder[];
}

/**
 * A store's answer about a key: its holders, `undefined` when it has none, or the reason why the store cannot read it.
 */
export type KeyState = HeldKey | Error | undefined;

/** The waiters of one process for a key in one mode, which stand as one in the queue of a store. */
export interface KeyWaiter extends Omit<WaiterId, 'keys'> {
  /** When the first of them came, in milliseconds since 1970, by the clock of the store if it has one. */
  readonly since: number;
}

/** The slots that a lease with permits asks for, one of each key. */
export interface SlotWish {
  readonly slots: readonly number[];
  /**
   * If `true`, the store grants these slots and no others, and frees any other slot of the lease, so that a quorum of
   * nodes ends up with the same slots. Otherwise the store takes the next free ones.
   */
  readonly exactly: boolean;
}

/** One attempt to lock some keys, as every node is asked for it. */
export interface AcquireRequest {
  readonly lease: Lease;
  /** The time of the request by this machine's clock, in milliseconds since 1970; for people. */
  readonly since: number;
  /**
   * Milliseconds after which the caller stops waiting for the answer. A store that knows the time must not store the
   * lease later (S16).
   */
  readonly limit: number;
  /**
   * A node that started or lost its data less than this many milliseconds ago must not vote (S12); 0 turns the rule
   * off.
   */
  readonly guard: number;
  /**
   * The fencing token proposed to all nodes, so that they agree. A node returns a larger one if its clock or the last
   * token of a key is ahead. 0 when there is one node.
   */
  readonly proposal: number;
  /** The caller's position among the waiters; only the node that keeps the queue reads it. */
  readonly position: QueuePosition | undefined;
  /** Only with permits. */
  readonly wish?: SlotWish | undefined;
  /**
   * If `true`, the lock is extended while it is held and freed when it is released, so that it may expire together with
   * other locks of its process.
   * @defaultValue false
   */
  readonly renewed?: boolean;
}

/** The caller's position among the waiters. */
export interface QueuePosition {
  /** The waiter that a refusal adds to the queue. */
  readonly waiter: WaiterId;
  /** Milliseconds that the caller has waited. The caller that came first has the first turn. */
  readonly waited: number;
  /** Milliseconds that the next waiter has waited. It takes over the position when this lease is granted. */
  readonly next: number | undefined;
}

/** A node's vote on a lease. */
export type AcquireReply =
  | {
      readonly granted: true;
      /**
       * Larger than the token of every earlier grant of each of the keys on this node, as long as its clock does not
       * step back by 10 s.
       */
      readonly token: number;
      /** The start of the ttl where it may be before the request: the moment of the store's last confirmation. */
      readonly validFrom?: Instant;
      /** The next waiter, which took over the position ({@link QueuePosition.next}), is first in line. */
      readonly nextIsFirst?: boolean;
      /** One slot of each key, in the order of the keys; only with permits. */
      readonly slots?: readonly number[];
      /** The largest recent request for permits of one of the keys, if it exceeds the lease's own. */
      readonly permits?: number;
    }
  | {
      readonly granted: false;
      /** The holder to wait for: its end may admit the lease. */
      readonly holder: Holder | KeyHolder;
      /** Other holders of the key that the store knows without another request; only with permits. */
      readonly others?: readonly KeyHolder[];
      /** As in a grant. */
      readonly permits?: number;
      /**
       * The lease's tick has run already. `holder` names the process that ran it, and how long the node will remember
       * that.
       */
      readonly ran?: true;
    };

/** A request to release a lease. */
export interface ReleaseRequest {
  readonly lease: Lease;
  /** Milliseconds from now after which the first in line may try; 0 for at once. */
  readonly pause: number;
}

/** The ttls that a store can keep. */
export interface TtlRule {
  /** The shortest, in milliseconds. */
  readonly least: number;
  /** A ttl is a multiple of this number of milliseconds. */
  readonly step: number;
  /** The reason, for messages. */
  readonly reason: string;
}

/** Receives the answer or the error for one request, by the request's index. Called once for each request. */
export type Tell<Reply> = (index: number, reply: Reply | Error) => void;

/**
 * The methods that the algorithm needs from a store; all other ports are optional. Each method sends its requests
 * within one turn of the event loop. `acquire`, `extend` and `release` do not throw: they pass errors to `tell`.
 *
 * An error means that the outcome is unknown, or that the node is not fit to vote. It counts as a vote against, and the
 * lease is released there. The caller has its own time limit; a store need not have one.
 *
 * A request that reaches the server late must do no harm. After a lease has ended ({@link Lease.ended}), a store sends
 * nothing for it but its release. A release undoes every acquisition that was sent before it, even one that is still
 * under way (S6, S15).
 */
export interface LockStore {
  /** The store's name in messages; without credentials. */
  readonly name: string;

  /**
   * Resolves when the store accepts requests. Rejects when the first attempt to reach it failed, with a message that
   * says what to do; the store keeps trying. Rejects with an `UnfitStoreError` when the store must not be used, and the
   * application's start then fails.
   */
  connect(): Promise<void>;

  /**
   * The modes that it can store, `'exclusive'` at least. The algorithm rejects a lock of another mode without a
   * request.
   */
  readonly modes: readonly LockMode[];

  /**
   * The ttls that it can keep. The algorithm rejects a lock with another ttl without a request.
   * @defaultValue any whole number of milliseconds
   */
  readonly ttls?: TtlRule;

  /** `false` if the store knows, without a request, that it cannot answer. */
  readonly available: boolean;

  /**
   * Stores each lease under all its keys. Stores it under none if another lease excludes it from one of them, or if the
   * store remembers that its tick has run. With permits a lease gets a slot of each key that no other lease has at the
   * same time, and each slot a token larger than the slot's earlier ones. A reader that joins other readers may get
   * their token. A repeated request for the same lease gets the same answer.
   *
   * @param ordered - `true` if this node keeps the queue. Then a request is refused while an earlier caller waits, and
   * a refused request with a {@link QueuePosition} joins the queue
   */
  acquire(requests: readonly AcquireRequest[], ordered: boolean, tell: Tell<AcquireReply>): void;

  /**
   * Extends each lease that holds all its keys: the keys live for at least `ttl` milliseconds from now. Reports for
   * each lease whether it holds all its keys. Never shortens a lifetime and never restores an expired key: a late
   * duplicate of an earlier call must not undo a later one. An error of one lease must not prevent the extension of
   * others. Each holder has its own end. The extension of one holder does not change the end of another (S23).
   */
  extend(leases: readonly Lease[], ttl: number, tell: Tell<boolean>): void;

  /**
   * Frees the keys that the lease holds and no others (S7). While {@link Lease.keepFor} is not 0, makes them expire
   * after that many milliseconds instead. Then stores {@link Lease.mark}, even if another lease holds the keys,
   * because the tick has run. Tells the first in line when it may try. Idempotent. The algorithm does not repeat a release that
   * failed: a store that can, releases later; otherwise the lease lasts until its ttl has passed.
   */
  release(requests: readonly ReleaseRequest[], tell: Tell<undefined>): void;

  /** Closes what was opened for this store. */
  close(): Promise<void>;
}

/**
 * Keeps the order of waiters, and tells them when to try. Without this port waiters poll as `retry.delay` says, in no
 * particular order.
 */
export interface WaitQueue {
  /** `true` if messages arrive already, so that `listen` costs nothing. */
  readonly subscribed: boolean;

  /** `true` if other callers waited here for any of the keys a moment ago. */
  contended(keys: readonly string[]): boolean;

  /**
   * Subscribes a waiter to its messages. `onMessage` gets the milliseconds after which the waiter may try. That is 0
   * also when messages begin to arrive (again), and more than 0 when they stop, because then the waiter must poll.
   * `turn` is `true` if the waiter is first in line and the lock is free. `released` is the id of the released lease
   * that made it free.
   */
  listen(
    waiter: WaiterId,
    onMessage: (after: number, turn: boolean, released?: string) => void,
  ): Subscription;

  /** Removes the waiter from the queues. */
  leave(waiter: WaiterId): Promise<void>;
}

/** The messages for one waiter at one store. */
export interface Subscription {
  /** `true` while messages arrive, so that it makes sense to join the queue. */
  readonly ready: boolean;
  stop(): void;
}

/**
 * Prevents starvation by holders that share a key, such as readers: an endless stream of them would keep out a waiter
 * of another mode (S22). For stores with such modes. Without this port that waiter gets the key when the stream ends.
 */
export interface StarvationGuard {
  /**
   * Keeps out later callers of modes that share the key, for a few seconds: an endless stream of them would starve the
   * waiter (S22). The store need not be the one that keeps the queue.
   *
   * @param waited - milliseconds that the waiter has waited, which tell when it came
   * @returns `true` when the store keeps them out until {@link letPass}. `false` while an earlier waiter keeps them out
   * instead, which may stop at any time: the caller then repeats the request until it returns `true`
   */
  holdBack(waiter: WaiterId, waited: number): Promise<boolean>;

  /** Ends the effect of {@link holdBack}. */
  letPass(waiter: WaiterId): Promise<void>;
}

/** Reads locks of any process, and ends them. Without this port `inspect`, `list` and `forceRelease` reject. */
export interface LockDirectory {
  /** The state of each key, in the order of the keys, which need not belong to one lock. Changes nothing. */
  read(keys: readonly string[]): Promise<readonly KeyState[]>;

  /**
   * The possibly held keys that begin with `prefix`, in pages small enough for one `read`. A page may be empty. A key
   * that is held from the first page to the last is included; a key that is acquired or released meanwhile may be, and
   * a key may come twice.
   */
  scan(prefix: string): AsyncIterable<readonly string[]>;

  /** Removes the holders of the key that have one of these ids; resolves to the ids that it removed. */
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
 * The methods that independent stores need to form a quorum. A store without this port, such as one that replicates
 * itself, is the only node of its module.
 */
export interface QuorumStore {
  /** The estimated time of the store's clock, in milliseconds since 1970. */
  time(): number | undefined;

  /**
   * Raises the lease's tokens to `token`, if the lease holds all its keys, and if none of its tokens is larger or it is
   * a reader's. Resolves to `true` if all its tokens are `token` or larger.
   */
  raise(lease: Lease, token: number): Promise<boolean>;
}

/** Reports the fitness of a store. Without this port health and metrics treat it as fit. */
export interface StoreHealth {
  /**
   * Reports if the store is fit to vote. A store that (re)started or lost its data less than `guard` milliseconds ago
   * is not. Rejects when the store does not answer.
   */
  check(guard: number): Promise<NodeCheck>;
}

/** A store with any further ports that it has. */
export type Store = LockStore &
  Partial<WaitQueue & StarvationGuard & LockDirectory & QueueDirectory & QuorumStore & StoreHealth>;
