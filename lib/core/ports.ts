import type { Instant } from './clock.js';
import type { Lease } from './lease.js';
import type { LockMode } from './lock-mode.js';
import type { NodeCheck } from './node-status.js';
import type { WaiterId } from './waiter-id.js';

/**
 * The process because of which a store refuses a lease: a holder, the first waiter of the queue, or the process that
 * ran a tick.
 */
export interface Holder {
  /** The id of the holder: two nodes that report the same id store the same lease. */
  readonly id: string;
  /** Readable name of the holder's process. */
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
  /** The slot of the holder; only with permits. */
  readonly slot?: number;
}

/** The state of a held key in a store. */
export interface HeldKey {
  readonly mode: LockMode;
  /** The largest number of permits that any recent holder of the key asked for; only with permits. */
  readonly permits?: number;
  /** The holders, in the order in which their locks end; only one for an exclusive lock. */
  readonly holders: readonly KeyHolder[];
}

/**
 * A store's answer about a key: the holders of the key, `undefined` when there are none, or the reason why the store
 * cannot read the key.
 */
export type KeyState = HeldKey | Error | undefined;

/** The waiters of one process for a key in one mode. They have one entry in the queue of a store. */
export interface KeyWaiter extends Omit<WaiterId, 'keys'> {
  /**
   * The time at which the first of these waiters came, in milliseconds since 1970, by the store's clock if the store
   * has a clock.
   */
  readonly since: number;
}

/** The slots that a lease with permits asks for, one slot of each key. */
export interface SlotWish {
  readonly slots: readonly number[];
  /**
   * If `true`, the store grants these slots and no others, and frees any other slot of the lease, so that a quorum of
   * nodes stores the same slots in the end. Otherwise the store may grant the next free slots.
   */
  readonly exactly: boolean;
}

/** One attempt to lock some keys, in the form that the client sends to every node. */
export interface AcquireRequest {
  readonly lease: Lease;
  /**
   * The time of the request by this machine's clock, in milliseconds since 1970. It is only for people, such as readers
   * of `inspect`.
   */
  readonly since: number;
  /**
   * Milliseconds after which the caller stops waiting for the answer. A store must not store the lease after this limit
   * (S16). A limit that is not positive has already passed.
   */
  readonly limit: number;
  /**
   * A node must not vote when it started or lost its data less than this many milliseconds ago (S12); 0 turns the rule
   * off.
   */
  readonly guard: number;
  /**
   * If `true`, a caller that holds the lock asks a node that does not store the lease to store it (S26). The node then
   * stores the lease with `proposal`, which is its token, in the slots of `wish`, past the queue, marks and ticks. It
   * also does so if its record of the lease has expired, but not after the release of the lease. A last token of the
   * key that is larger stays the last token. A smaller one is raised, also for a reader that joins other readers.
   * Everything else is as for other requests: the time limit, the guard, and that no other lease may exclude this one.
   * Only a store that is one of several nodes gets such a request.
   * @defaultValue false
   */
  readonly heals?: boolean;
  /**
   * The fencing token that the client proposes to all nodes, so that they grant the same token. A node grants a larger
   * token if the node's clock or the last token of a key is ahead of this token. 0 when there is only one node.
   */
  readonly proposal: number;
  /** The caller's position among the waiters; only the node that keeps the queue reads it. */
  readonly position: QueuePosition | undefined;
  /** The wanted slots; only with permits. */
  readonly wish?: SlotWish | undefined;
  /**
   * If `true`, the client extends the lock while it is held, and frees the lock at its release. The store may then give
   * several locks of one process a common expiry.
   * @defaultValue false
   */
  readonly renewed?: boolean;
}

/** The caller's position among the waiters. */
export interface QueuePosition {
  /** The waiter that the store adds to its queue when it refuses the request. */
  readonly waiter: WaiterId;
  /**
   * Milliseconds that the caller has waited. The store orders its queue by this time: the longest wait comes first. The entry
   * of the waiter may be from an earlier call of its process that gave up: a call that came later does not keep its place.
   */
  readonly waited: number;
  /**
   * Milliseconds that the next waiter of this process has waited, if there is one. When the store grants this lease,
   * the next waiter takes over the position in the queue.
   */
  readonly next: number | undefined;
}

/** A node's vote on a lease. */
export type AcquireReply =
  | {
      readonly granted: true;
      /**
       * Fencing token. It is larger than the tokens of all earlier grants of the keys on this node, unless the node's
       * clock is set back by 10 s or more.
       */
      readonly token: number;
      /**
       * The start of the ttl; only when the ttl started before the request, as with a common expiry that the store
       * confirmed earlier ({@link AcquireRequest.renewed}).
       */
      readonly validFrom?: Instant;
      /**
       * `true` when the next waiter ({@link QueuePosition.next}) has taken over the position and is the first of the
       * queue.
       */
      readonly nextIsFirst?: boolean;
      /** One slot of each key, in the order of the keys; only with permits. */
      readonly slots?: readonly number[];
      /**
       * The largest number of permits that a recent caller asked for on any of the keys; only when it is larger than
       * the lease's own number.
       */
      readonly permits?: number;
    }
  | {
      readonly granted: false;
      /** The holder that the caller waits for: the store may grant the lease when the lock of this holder has ended. */
      readonly holder: Holder | KeyHolder;
      /** Other holders of the key that the store knows without another request; only with permits. */
      readonly others?: readonly KeyHolder[];
      /** The largest number of permits that a recent caller asked for, as in a grant. */
      readonly permits?: number;
      /**
       * `true` when the tick of the lease has already run. `holder` then describes the process that ran the tick, and
       * the time for which the node will remember the tick.
       */
      readonly ran?: true;
    };

/** A request to release a lease. */
export interface ReleaseRequest {
  readonly lease: Lease;
  /**
   * Milliseconds from now until the first waiter may try; 0 for no pause. A store that is always the only node may ignore
   * it.
   */
  readonly pause: number;
  /**
   * `true` if the lease was that of a lock, which a quorum of several nodes stored. If this node does not store it, the
   * store tells the first waiter of the queue nevertheless, also while another lease holds the keys here. That lease may
   * hold no lock: its process was killed, or its release did not arrive. The waiter then asks the other nodes, too.
   * A store that is always the only node may ignore it.
   * @defaultValue false
   */
  readonly wasHeld?: boolean;
  /**
   * `true` if a store releases the lease once more because its acquisition got no answer (S27). Such a release stores no
   * tick: the first release has stored it, and a second time would make the node remember it for longer.
   * @internal Only the stores of this package set it.
   */
  readonly isSecond?: boolean;
}

/** The ttls that a store can keep. */
export interface TtlRule {
  /** The shortest ttl, in milliseconds. */
  readonly least: number;
  /** Every ttl must be a multiple of this number of milliseconds. */
  readonly step: number;
  /** The reason for the rule, for messages. */
  readonly reason: string;
}

/**
 * Receives the answer or the error for one request. `index` is the position of the request in the list. A store calls
 * the function once for each request.
 */
export type Tell<Reply> = (index: number, reply: Reply | Error) => void;

/**
 * The methods that the algorithm needs from a store; all other ports are optional. Each method sends its requests
 * within one turn of the event loop. `acquire`, `extend` and `release` do not throw: they pass errors to `tell`.
 *
 * An error means that the outcome is unknown, or that the node is not fit to vote. An error counts as a vote against
 * the lease, and the algorithm releases the lease on that node. The algorithm has its own time limit for answers; a
 * store does not need one.
 *
 * A request that reaches the server late must do no harm. After a lease has ended ({@link Lease.ended}), a store sends
 * only its release. A release undoes every acquisition of the lease that was sent earlier, also an acquisition that is
 * still on its way (S6, S15).
 */
export interface LockStore {
  /** The store's name in messages; without credentials. */
  readonly name: string;

  /**
   * Resolves when the store accepts requests. Rejects when the first attempt to connect failed, with a message that
   * contains the remedy; the store keeps trying. Rejects with an `UnfitStoreError` when the store must not be used; the
   * start of the application then fails.
   */
  connect(): Promise<void>;

  /**
   * The modes that the store can keep; `'exclusive'` must be one of them. The algorithm rejects a lock of another mode
   * without a request.
   */
  readonly modes: readonly LockMode[];

  /**
   * The ttls that the store can keep. The algorithm rejects a lock with another ttl without a request.
   * @defaultValue any whole number of milliseconds
   */
  readonly ttls?: TtlRule;

  /**
   * Returns the reason why the store can never store a lock of these keys in this mode, with the remedy, such as `'a key
   * must not contain a NUL character'`; `undefined` if the store can. The algorithm rejects such a lock at once with a
   * `RangeError`, and sends no request with its keys. Without this rule it would take the store's error for an outage,
   * and would try again until the end of the wait.
   *
   * The method answers from its parameters alone, without a request. Its reason names no key: the message has the keys.
   * The algorithm itself refuses an empty key, a key that begins with "}", and a key of more than 2,000 bytes in UTF-8,
   * or of more than 2,048 bytes together with the `keyPrefix` of the module.
   *
   * @param permits - the number of permits that the lock asks for; only in the mode `'permits'`, and only if the caller
   * takes a lock
   * @defaultValue every other key is accepted
   */
  refuses?(keys: readonly string[], mode: LockMode, permits?: number): string | undefined;

  /** `false` if the store knows, without a request, that it cannot answer. */
  readonly available: boolean;

  /**
   * `true` if nobody has used the connection to the server for a while, so that a network may have forgotten it, and the
   * next answer may need a new connection. The default time limit of that answer is then longer. `false` while requests
   * fail without waiting, because the server is down.
   * @defaultValue false
   */
  readonly idle?: boolean;

  /**
   * Stores each lease under all its keys. Stores a lease under no key if another lease excludes it from one of the
   * keys, or if the store remembers that the tick of the lease has run. With permits a lease gets, for each key, a slot
   * that no other lease has at the same time; the token is larger than all earlier tokens of the slots. A reader that
   * joins other readers may get their token. A repeated request for the same lease gets the same answer.
   *
   * @param ordered - `true` if this node keeps the queue. The node then refuses a request while an earlier caller
   * waits. A refused request with a {@link QueuePosition} joins the queue
   */
  acquire(requests: readonly AcquireRequest[], ordered: boolean, tell: Tell<AcquireReply>): void;

  /**
   * Extends each lease that holds all its keys: the keys then live for at least `ttl` milliseconds from now. Reports
   * for each lease whether it still holds all its keys. Never shortens a lifetime and never restores an expired key: a
   * late duplicate of an earlier request must not undo a later request. The error of one lease must not prevent the
   * extension of other leases. The extension of one holder's lock must not change the time at which another holder's
   * lock ends (S23).
   */
  extend(leases: readonly Lease[], ttl: number, tell: Tell<boolean>): void;

  /**
   * Frees the keys that the lease holds and no others (S7). If {@link Lease.keepFor} is not 0, the keys expire after
   * that many milliseconds instead. Then stores {@link Lease.mark}, if there is one, even if another lease holds the
   * keys by now: the tick has run. Tells the first waiter when it may try. Idempotent.
   *
   * The algorithm does not repeat a failed release. The store may repeat it later; otherwise the lease lasts until its
   * ttl has passed.
   */
  release(requests: readonly ReleaseRequest[], tell: Tell<undefined>): void;

  /** Closes all that `connect` opened. */
  close(): Promise<void>;
}

/**
 * Keeps waiters in order, and tells them when to try. Without this port waiters poll with the delay `retry.delay`, in
 * no particular order.
 */
export interface WaitQueue {
  /** `true` if messages already arrive, so that `listen` needs no new connection. */
  readonly subscribed: boolean;

  /** `true` if other callers recently waited at this store for any of the keys. */
  contended(keys: readonly string[]): boolean;

  /**
   * Subscribes a waiter to its messages. The argument `after` of `onMessage` is the number of milliseconds until the
   * waiter may try. The store also calls `onMessage` when messages begin to arrive (again), with 0, and when messages
   * stop, with a number above 0: the waiter must then poll. `turn` is `true` if the waiter is the first of the queue
   * and the lock is free. `released` is the id of the released lease that made the lock free.
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
  /** `true` while messages arrive, so that joining the queue makes sense. */
  readonly ready: boolean;
  stop(): void;
}

/**
 * Prevents starvation by holders that share a key, such as readers: an endless stream of readers would exclude a waiter
 * of another mode (S22). A store that is one of several nodes and has modes other than `'exclusive'` needs this port:
 * only one of the nodes knows the queue, and the others would grant the stream. A store that is always the only node
 * does not need it, if its `acquire` itself refuses callers behind an earlier waiter, as the stores over etcd and ZooKeeper do.
 * Without either, the waiter gets the key only when the stream ends.
 */
export interface StarvationGuard {
  /**
   * Makes the store refuse later callers whose mode shares the key: an endless stream of these callers would starve the
   * waiter (S22). The effect ends with {@link letPass}, or by itself a few seconds after the last `holdBack`. The
   * algorithm calls `holdBack` on every node, not only on the node that keeps the queue.
   *
   * If the waiter has several keys, this concerns the first key that is held, and the keys that earlier calls concerned:
   * callers of a free key are not in the way of the waiter. A holder of the one key could otherwise wait for the other
   * key until its time-out, because the waiter waits for that holder.
   *
   * @param waited - milliseconds that the waiter has waited, from which the store computes the time of its arrival
   * @returns `true` when the store now refuses callers in favour of this waiter. `false` while it does so in favour of
   * an earlier waiter, whose wait may end at any time: the algorithm then repeats `holdBack` until it returns `true`
   */
  holdBack(waiter: WaiterId, waited: number): Promise<boolean>;

  /** Ends the effect of {@link holdBack}. */
  letPass(waiter: WaiterId): Promise<void>;
}

/**
 * Reads locks of any process, and releases them by force. Without this port `inspect`, `list` and `forceRelease`
 * reject.
 */
export interface LockDirectory {
  /** Reads the state of each key, in the order of `keys`. The keys may belong to different locks. Changes nothing. */
  read(keys: readonly string[]): Promise<readonly KeyState[]>;

  /**
   * Lists the keys that begin with `prefix` and may be held, in pages that are small enough for one `read`. A page may
   * be empty. The pages include every key that is held during the whole scan, and may include a key that is acquired or
   * released meanwhile. A key may occur twice.
   */
  scan(prefix: string): AsyncIterable<readonly string[]>;

  /** Removes the holders of the key that have one of these ids; resolves to the ids that it removed. */
  forceRelease(key: string, ids: readonly string[]): Promise<readonly string[]>;
}

/** Shows the queues to operators. Without this port the board shows only the waiters of its own process. */
export interface QueueDirectory {
  /**
   * Reads the first waiters in the queue of each key, in order: all of them, or at least a hundred. `keys` has no more
   * keys than a page of {@link LockDirectory.scan}. Changes nothing.
   */
  waiting(keys: readonly string[]): Promise<readonly (readonly KeyWaiter[])[]>;
}

/**
 * The methods that independent stores need to form a quorum. Such a store also gets requests that heal ({@link
 * AcquireRequest.heals}). A store without this port, such as a store that replicates
 * itself, must be the only node of its module.
 */
export interface QuorumStore {
  /** The estimated time of the store's clock, in milliseconds since 1970. */
  time(): number | undefined;

  /**
   * Raises the lease's tokens for its keys to `token`, if the lease holds all its keys. If one of the tokens is already
   * larger, the store raises none of them, unless the lease is shared. Resolves to `true` if all tokens of the lease
   * are then at least `token`.
   */
  raise(lease: Lease, token: number): Promise<boolean>;
}

/** A request that puts one lease in the place of others. */
export interface ExchangeRequest extends Pick<AcquireRequest, 'since' | 'limit' | 'guard'> {
  /** The lease that holds the keys afterwards. */
  readonly lease: Lease;
  /** The ids of the leases in whose place it comes. */
  readonly replaces: readonly string[];
}

/**
 * Puts one lease in the place of another, so that a lock can go from one process to another. Without this port
 * `LockHandle.detach` and `LockService.attach` reject.
 */
export interface LeaseExchange {
  /**
   * Looks if the lease itself, or one of the leases in `replaces`, holds each key of the lease, and has not released it
   * (`minHold`). If so, the lease then holds all keys in their place, in one step: under its id, with its `owner` and
   * `since`. Resolves to `true` if the lease then holds all its keys, and to `false` if nothing was changed. Tokens, slots
   * and queues stay as they are, and no end comes sooner: the algorithm extends the lease afterwards, and counts only what
   * that confirms. A store may count the time of the lease that was replaced from this request on. A repeated request
   * gets the same answer.
   *
   * As for {@link LockStore.acquire}, a request changes nothing after its `limit` (S16), and a node that is younger than
   * `guard` must not vote (S12): it rejects, and changes nothing. Rejects when the outcome is unknown.
   */
  exchange(request: ExchangeRequest): Promise<boolean>;
}

/** Reports the fitness of a store. Without this port the health indicator and the metrics count the store as fit. */
export interface StoreHealth {
  /**
   * Reports whether the store is fit to vote. A store that started or lost its data less than `guard` milliseconds ago
   * is not fit. Rejects when the store does not answer.
   */
  check(guard: number): Promise<NodeCheck>;
}

/** A store, with the optional ports that it implements. */
export type Store = LockStore &
  Partial<
    WaitQueue & StarvationGuard & LockDirectory & QueueDirectory & QuorumStore & LeaseExchange & StoreHealth
  >;
