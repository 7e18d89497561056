import type { LockHolder } from './lock-info.js';
import { joins, type LockKind, nameOfKind } from './lock-mode.js';
import { printable, quoted } from './printable.js';

/** The machine-readable reason of a {@link RedlockError}. */
export type RedlockErrorCode =
  | 'LOCK_HELD'
  | 'LOCK_UNAVAILABLE'
  | 'LOCK_LOST'
  | 'LOCK_NOT_ATTACHED'
  | 'LOCK_NOT_DECLARED'
  | 'LOCK_NOT_DETACHED'
  | 'LOCK_NOT_INJECTED'
  | 'LOCK_UPGRADE'
  | 'MAX_HOLD_REACHED'
  | 'NO_LEADER'
  | 'TOKEN_STALE';

/** Base class of all errors of this package, except the `TypeError` and `RangeError` for bad options. */
export class RedlockError extends Error {
  override readonly name: string = 'RedlockError';

  constructor(
    readonly code: RedlockErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The limit of `retry` that ended a wait, with its value. */
export type RetryLimit = { readonly timeout: number } | { readonly attempts: number };

/**
 * A quorum of nodes answered. Another caller holds the lock, or came earlier and waits for the lock. The nodes work:
 * try again later, or skip the work.
 */
export class LockHeldError extends RedlockError {
  override readonly name = 'LockHeldError';

  constructor(
    /** The requested keys. */
    readonly keys: readonly string[],
    /**
     * Readable name of the holder (the module option `owner` of its process). With several holders, `owner` is the
     * holder for which this call has to wait. With permits that is the holder whose permit ends first. For a call that
     * wants an exclusive lock it is the reader whose lock ends last.
     */
    readonly owner: string,
    /**
     * Milliseconds after which the lock of `owner` has ended, if `owner` does not renew it; `Infinity` if the key has
     * no expiry.
     */
    readonly retryAfter: number,
    details: LockHeldDetails = {},
  ) {
    const { ranTick } = details;
    super(
      'LOCK_HELD',
      ranTick === undefined
        ? `${titleOf(keys, details.lock)} is ${whoHasIt(owner, details)}${whatToDo(retryAfter, details)}`
        : `${titleOf(keys, details.lock)} is not locked: ${printable(owner)} has already run ${nameOfTick(ranTick)}`,
    );
    if (details.lock !== undefined) this.lock = details.lock;
    this.heldByCaller = details.heldByCaller ?? false;
    this.ranTick = ranTick;
    this.limit = details.limit;
    this.holders = details.holders ?? [];
    this.permitsSeen = details.permitsSeen;
    // `afterTrying` and `named` copy the kind. The property is not enumerable, so that a log does not print it.
    Object.defineProperty(this, 'kind', { value: details.kind });
  }

  /**
   * The holders that the nodes named in their refusals. The first of the list is the holder for which this call would
   * have to wait. With permits the list has up to ten holders; `LockService.inspect` returns all. The list is empty
   * when the lock is reserved for `owner`, which came earlier and waits.
   */
  readonly holders: readonly LockHolder[];

  /**
   * `true` if the code that asks for the lock already holds a lock on one of the keys, so that the code waited for
   * itself.
   */
  readonly heldByCaller: boolean;

  /**
   * The time of the tick that has already run, in milliseconds since 1970, or 0 for an `@Interval`. Only with
   * `oncePerTick`, and only when nobody holds the lock; otherwise `undefined`. The process `owner` ran the tick, and
   * the nodes remember the tick for another `retryAfter` milliseconds.
   */
  readonly ranTick: number | undefined;

  /** The limit of `retry` that ended the wait; `undefined` when the call did not wait. */
  readonly limit: RetryLimit | undefined;

  /**
   * Defined only when this call asked for `permits` and another caller recently asked for a larger number. The limit of
   * the key is then the largest number that a recent caller asked for. `permitsSeen` is that number, or a smaller
   * number that is still larger than the number of this call.
   */
  readonly permitsSeen: number | undefined;

  /** The name of the declared lock; absent for other locks. */
  declare readonly lock?: string;

  /** Copies the error, with the limit of `retry` that ended the wait. */
  afterTrying(limit: RetryLimit): LockHeldError {
    return new LockHeldError(this.keys, this.owner, this.retryAfter, { ...this, kind: this.kind, limit });
  }

  /** Copies the error, with the name of the declared lock. */
  named(lock: string): LockHeldError {
    return new LockHeldError(this.keys, this.owner, this.retryAfter, { ...this, kind: this.kind, lock });
  }

  /** The requested kind of lock. */
  declare private readonly kind: LockKind | undefined;
}

/** Further details of a {@link LockHeldError}. */
export interface LockHeldDetails {
  readonly heldByCaller?: boolean;
  readonly ranTick?: number | undefined;
  readonly limit?: RetryLimit | undefined;
  /** The list is empty when nobody holds the lock and the lock is reserved for a waiter. */
  readonly holders?: readonly LockHolder[];
  readonly permitsSeen?: number | undefined;
  /** The requested kind of lock. */
  readonly kind?: LockKind | undefined;
  /** The name of the declared lock. */
  readonly lock?: string | undefined;
}

/** Formats keys for a message, with the name of the declared lock if there is one. */
export function titleOf(keys: readonly string[], lock: string | undefined): string {
  return lock === undefined ? quoted(keys) : `${quoted(keys)} (${printable(lock)})`;
}

/** Formats a tick for a message. */
export function nameOfTick(at: number): string {
  return at === 0 ? 'this interval' : `the tick of ${new Date(at).toISOString()}`;
}

function whoHasIt(owner: string, details: LockHeldDetails): string {
  const { holders, heldByCaller } = details;
  const name = printable(owner);
  if (holders?.length !== 0) return `held by ${name}${otherKind(details)}`;
  return `reserved for ${name}, who ${heldByCaller ? '' : 'came earlier and '}waits in the queue`;
}

/** Two kinds of lock on one key are usually a mistake, so the message says that the kinds differ. */
function otherKind({ holders = [], kind }: LockHeldDetails): string {
  const [holder] = holders;
  if (!holder || !kind || holder.mode === kind.mode) return '';
  const held = holder.mode === 'permits' ? 'with `permits`' : `in the mode '${holder.mode}'`;
  return ` ${held}, which excludes ${nameOfKind(kind)}`;
}

function whatToDo(retryAfter: number, { heldByCaller, limit, holders = [], kind }: LockHeldDetails): string {
  if (heldByCaller) {
    const [holder] = holders;
    if (!holder) {
      return (
        '. That waiter cannot get the lock before the calling code releases it, so this call would wait for itself. Set ' +
        '`reentrant` to join the held lock (parallel calls do not join), or move the common work of both methods ' +
        'to a method without a lock.'
      );
    }
    if (holder && kind && !joins(kind.mode, holder.mode)) {
      return (
        ', and the calling code already holds that lock, so this call would wait for itself. The two kinds of lock cannot join: ' +
        'give both the same `mode` or `permits`, with `reentrant`, or move the common work of both methods to a ' +
        'method without a lock.'
      );
    }
    return (
      ', and the calling code already holds that lock, so this call would wait for itself. Set `reentrant` to join the held lock ' +
      '(parallel calls do not join), or move the common work of both methods to a method without a lock.'
    );
  }
  return Number.isFinite(retryAfter)
    ? ` (for ${Math.ceil(retryAfter)} ms more unless renewed).${gaveUp(limit, ' Gave up')} ` +
        'Try again later, give `retry` a longer `timeout`, or, where one run is enough, ' +
        "use `onBusy: 'skip'` of `@WithLock` or `tryAcquire` of `LockService`."
    : ', without an expiry, so it will never end by itself. ' +
        'Something removed the expiry of the key in Redis; end the lock with `forceRelease`.';
}

function gaveUp(limit: RetryLimit | undefined, verb: string): string {
  if (!limit) return '';
  return 'timeout' in limit
    ? `${verb} after ${limit.timeout} ms (retry.timeout).`
    : `${verb} after ${limit.attempts} attempts (retry.attempts).`;
}

/** The vote of one node in a failed attempt, or the node's answer to a failed `inspect`, `list` or `forceRelease`. */
export interface NodeVote {
  /** The node's address, without credentials. */
  readonly node: string;
  /** `'pending'`: the votes of other nodes decided the attempt before the vote of this node arrived. */
  readonly vote: 'granted' | 'held' | 'free' | 'error' | 'pending';
  /** The reason for a missing or unusable vote; only with `'error'`. */
  readonly error?: Error;
}

/**
 * The origin of a node's data that the same server did not have before (S28). `'server'`: another run of a server wrote
 * it. `'replication'`: it came from a master.
 */
export type YoungBecause = 'server' | 'replication';

const BECAUSE: Readonly<Record<YoungBecause, string>> = {
  server: 'another run of a server wrote its data: a restart, a copy, or another server at this address',
  replication: 'it was a replica, so its data came from its master',
};

/** Says where the data of a node comes from. */
export function becauseOf(because: YoungBecause): string {
  return BECAUSE[because];
}

/** A node may have forgotten locks, so the restart guard does not count its votes yet. */
export class GuardedNodeError extends Error {
  /**
   * @param votesIn - the milliseconds until the votes of the node count again
   * @param because - the origin of the data, if that is the reason
   */
  constructor(
    readonly votesIn: number,
    because?: YoungBecause,
  ) {
    super(
      `started or lost its data a short while ago${because ? ` (${becauseOf(because)})` : ''} and may have forgotten locks; ` +
        `it votes again in ${votesIn} ms (restartGuard)`,
    );
  }
}

/** The remedy for an application when nodes do not vote yet. */
export const WAIT_AT_START =
  ' Set `waitForQuorum` to make the start of the application wait until a quorum votes.';

/** Fewer than a quorum of nodes answered in time and were fit to vote, so it is unknown whether the lock is free. */
export class LockUnavailableError extends RedlockError {
  override readonly name = 'LockUnavailableError';

  constructor(
    /** The requested keys; empty when the call asked for a list of all locks. */
    readonly keys: readonly string[],
    private readonly reason: string,
    votes: readonly NodeVote[] = [],
    /** The operation that failed, such as `lock "a"`. */
    private readonly what = `lock ${quoted(keys)}`,
    /** The limit of `retry` that ended the wait; `undefined` when the call did not wait. */
    readonly limit?: RetryLimit,
    lock?: string,
  ) {
    const errors = votes.flatMap(({ node, error }) => (error ? [`${node}: ${error.message}`] : []));
    const first = votes.find(({ error }) => error);
    const advice = votes.some(({ error }) => error instanceof GuardedNodeError) ? WAIT_AT_START : '';
    const end = gaveUp(limit, '. Gave up') || (advice && '.');
    super(
      'LOCK_UNAVAILABLE',
      `${[`Could not ${what}: ${reason}`, ...errors].join('; ')}${end}${advice}`,
      first && { cause: first.error },
    );
    // These properties are not enumerable: the message contains the reasons, and a log would print each error of the
    // votes at length.
    Object.defineProperty(this, 'votes', { value: votes });
    Object.defineProperty(this, 'reason', { enumerable: false });
    Object.defineProperty(this, 'what', { enumerable: false });
    if (lock !== undefined) this.lock = lock;
  }

  /** The name of the declared lock; absent for other locks. */
  declare readonly lock?: string;

  /** Copies the error, with the limit of `retry` that ended the wait. */
  afterTrying(limit: RetryLimit): LockUnavailableError {
    return new LockUnavailableError(this.keys, this.reason, this.votes, this.what, limit);
  }

  /** Copies the error, with the name of the declared lock. */
  named(lock: string): LockUnavailableError {
    const { keys, reason, votes, limit } = this;
    return new LockUnavailableError(keys, reason, votes, `lock ${titleOf(keys, lock)}`, limit, lock);
  }

  /** Each node's vote, with the cause where a vote is missing. */
  declare readonly votes: readonly NodeVote[];
}

/**
 * The lock ended while its holder still needed it: its validity ran out, or too few nodes still store it. Another
 * process may hold the lock now. Stop writing to the resource that the lock protects.
 */
export class LockLostError extends RedlockError {
  override readonly name = 'LockLostError';

  constructor(
    /** The keys of the lock. */
    readonly keys: readonly string[],
    reason: string,
    lock?: string,
  ) {
    super(
      'LOCK_LOST',
      `The lock on ${titleOf(keys, lock)} is lost: ${reason}. Stop the work that it protects.`,
    );
    if (lock !== undefined) this.lock = lock;
  }

  /** The name of the declared lock; absent for other locks. */
  declare readonly lock?: string;
}

/** Turns a thrown value into an error. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}

/** No time was left to wait for the answer of a node, so its vote is unknown. */
export class NoTimeError extends Error {}

/**
 * A store has not sent a request, or not sent it again, because the lease has ended, or another thread renews it again. The
 * node has not failed, so this error is not published.
 */
export class NotSentError extends Error {
  /** @param cause - the refusal of a first request, which had no effect */
  constructor(cause?: Error) {
    super('the attempt ended before the request was sent', cause && { cause });
  }
}

/**
 * The application closed a store that was not connected yet, for example because it shut down during its start. The
 * error does not mean that a node is down.
 */
export class ClosedStoreError extends Error {
  override readonly name = 'ClosedStoreError';

  constructor() {
    super('the store was closed before it was connected');
  }
}

/**
 * A store has the value of another program under a name of this package, such as after two programs got the same prefix.
 * The store leaves the value as it is. To ask again is useless, so a call does not wait. Callers put the name of the
 * store before the message, which says what to do.
 */
export class ForeignValueError extends Error {
  override readonly name = 'ForeignValueError';
}

/**
 * A store (such as a standby) cannot be used for locks, so the start of the application fails. Callers put the name of
 * the store before the message.
 */
export class UnfitStoreError extends Error {
  override readonly name = 'UnfitStoreError';
}
