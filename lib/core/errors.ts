import type { LockHolder } from './lock-info.js';
import { joins, type LockKind, nameOfKind } from './lock-mode.js';
import { printable, quoted } from './printable.js';

/** The machine-readable reason of a {@link RedlockError}. */
export type RedlockErrorCode =
  | 'LOCK_HELD'
  | 'LOCK_UNAVAILABLE'
  | 'LOCK_LOST'
  | 'LOCK_NOT_DECLARED'
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
 * A quorum of nodes answered. Another caller holds the lock, or waits for it and came earlier. Redis works: wait, or do
 * without the lock.
 */
export class LockHeldError extends RedlockError {
  override readonly name = 'LockHeldError';

  constructor(
    /** The keys that were asked for. */
    readonly keys: readonly string[],
    /**
     * Readable name of the holder (the module option `owner` of its process). With several holders, the one whose end
     * can admit this call: the first permit to end, or for an exclusive lock the last reader.
     */
    readonly owner: string,
    /**
     * The longest time in milliseconds until that lock ends, if its holder does not renew it; `Infinity` if the key has
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
        : `${titleOf(keys, details.lock)} is not to be locked again: ${nameOfTick(ranTick)} has run already, by ${printable(owner)}`,
    );
    if (details.lock !== undefined) this.lock = details.lock;
    this.heldByCaller = details.heldByCaller ?? false;
    this.ranTick = ranTick;
    this.limit = details.limit;
    this.holders = details.holders ?? [];
    this.permitsSeen = details.permitsSeen;
    // A copy of this error needs it. Not enumerable: a log shows only what helps a person.
    Object.defineProperty(this, 'kind', { value: details.kind });
  }

  /**
   * The holders that the nodes named when they refused. The first is the one that this call waits for. With permits the
   * list has up to ten; `LockService.inspect` returns all. The list is empty when the lock is reserved for `owner`, who
   * waits and came earlier.
   */
  readonly holders: readonly LockHolder[];

  /** `true` if the call itself runs under a lock of one of the keys, and so waited for itself. */
  readonly heldByCaller: boolean;

  /**
   * Only with `oncePerTick`, when nobody holds the lock but the tick has run already: the time of the tick in
   * milliseconds since 1970, or 0 for an `@Interval`. `owner` ran it, and the nodes remember that for another
   * `retryAfter` milliseconds.
   */
  readonly ranTick: number | undefined;

  /** The limit of `retry` that ended the wait; `undefined` when the call did not wait. */
  readonly limit: RetryLimit | undefined;

  /**
   * Only with `permits`, when another caller lately asked for a larger number than this call: that number at least. The
   * largest number is the limit. Otherwise `undefined`.
   */
  readonly permitsSeen: number | undefined;

  /** The name of the declared lock; absent for other locks. */
  declare readonly lock?: string;

  /** A copy for a wait that a limit of `retry` ended. */
  afterTrying(limit: RetryLimit): LockHeldError {
    return new LockHeldError(this.keys, this.owner, this.retryAfter, { ...this, kind: this.kind, limit });
  }

  /** A copy for a caller that asked for a declared lock. */
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
  /** Empty if nobody holds the lock and it is reserved for a waiter. */
  readonly holders?: readonly LockHolder[];
  readonly permitsSeen?: number | undefined;
  /** The requested kind of lock. */
  readonly kind?: LockKind | undefined;
  /** The name of the declared lock. */
  readonly lock?: string | undefined;
}

/** Keys for a message, with the name of the declared lock if there is one. */
export function titleOf(keys: readonly string[], lock: string | undefined): string {
  return lock === undefined ? quoted(keys) : `${quoted(keys)} (${printable(lock)})`;
}

/** The name of a tick for messages. */
export function nameOfTick(at: number): string {
  return at === 0 ? 'this interval' : `the tick of ${new Date(at).toISOString()}`;
}

function whoHasIt(owner: string, details: LockHeldDetails): string {
  const { holders, heldByCaller } = details;
  const name = printable(owner);
  if (holders?.length !== 0) return `held by ${name}${otherKind(details)}`;
  return `kept for ${name}, who ${heldByCaller ? 'waits in line' : 'came earlier and waits in line'}`;
}

/** Two kinds of lock on one key are usually a mistake, so the message says that the kinds differ. */
function otherKind({ holders = [], kind }: LockHeldDetails): string {
  const [holder] = holders;
  if (!holder || !kind || holder.mode === kind.mode) return '';
  const held = holder.mode === 'permits' ? 'as one of several permits' : `in the mode '${holder.mode}'`;
  return ` ${held}, which excludes ${nameOfKind(kind)}`;
}

function whatToDo(retryAfter: number, { heldByCaller, limit, holders = [], kind }: LockHeldDetails): string {
  if (heldByCaller) {
    const [holder] = holders;
    if (!holder) {
      return (
        ' until the very call that asks for it lets go of the lock that it is under. Set `reentrant` to join that one ' +
        '(calls side by side do not join), or move what both methods do to one that is not locked.'
      );
    }
    if (holder && kind && !joins(kind.mode, holder.mode)) {
      return (
        ', by the very call that asks for it. Such a lock cannot join the one that the call is under: give both the same ' +
        '`mode` or `permits`, with `reentrant`, or move what both methods do to one that is not locked.'
      );
    }
    return (
      ', by the very call that asks for it. Set `reentrant` to join the lock that a call is under (calls side by side ' +
      'do not join), or move what both methods do to one that is not locked.'
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

/** The vote of one node when an attempt failed, or its answer about the requested key. */
export interface NodeVote {
  /** The node's address, without credentials. */
  readonly node: string;
  /** `'pending'`: the other votes decided the attempt before this one arrived. */
  readonly vote: 'granted' | 'held' | 'free' | 'error' | 'pending';
  /** The reason for a missing or unusable vote; only with `'error'`. */
  readonly error?: Error;
}

/** The restart guard keeps a node from voting, because the node may have forgotten locks. */
export class GuardedNodeError extends Error {
  /** @param votesIn - the milliseconds until it votes again */
  constructor(votesIn: number) {
    super(
      'started or lost its data a short while ago and may have forgotten locks; ' +
        `it votes again in ${votesIn} ms (restartGuard)`,
    );
  }
}

const WAIT_AT_START = ' Set `waitForQuorum` to have start-up wait for that.';

/** Fewer than a quorum of nodes answered in time and were fit to vote, so it is unknown if the lock is free. */
export class LockUnavailableError extends RedlockError {
  override readonly name = 'LockUnavailableError';

  constructor(
    /** The requested keys; empty when the call asked for a list of all locks. */
    readonly keys: readonly string[],
    private readonly reason: string,
    votes: readonly NodeVote[] = [],
    /** The operation that failed. */
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
    // Not enumerable: the message has the reasons already, and a log would print every error of the list at length.
    Object.defineProperty(this, 'votes', { value: votes });
    Object.defineProperty(this, 'reason', { enumerable: false });
    Object.defineProperty(this, 'what', { enumerable: false });
    if (lock !== undefined) this.lock = lock;
  }

  /** The name of the declared lock; absent for other locks. */
  declare readonly lock?: string;

  /** A copy for a wait that a limit of `retry` ended. */
  afterTrying(limit: RetryLimit): LockUnavailableError {
    return new LockUnavailableError(this.keys, this.reason, this.votes, this.what, limit);
  }

  /** A copy for a caller that asked for a declared lock. */
  named(lock: string): LockUnavailableError {
    const { keys, reason, votes, limit } = this;
    return new LockUnavailableError(keys, reason, votes, `lock ${titleOf(keys, lock)}`, limit, lock);
  }

  /** Each node's vote, with the cause where a vote is missing. */
  declare readonly votes: readonly NodeVote[];
}

/**
 * The lock ended while its holder still needed it: its validity ran out, or the nodes say that another holder has the
 * key. Another process may hold the lock now. Write nothing more to what it protects.
 */
export class LockLostError extends RedlockError {
  override readonly name = 'LockLostError';

  constructor(
    /** The keys of the lock. */
    readonly keys: readonly string[],
    reason: string,
    lock?: string,
  ) {
    super('LOCK_LOST', `The lock on ${titleOf(keys, lock)} is lost: ${reason}. Stop what it protects.`);
    if (lock !== undefined) this.lock = lock;
  }

  /** The name of the declared lock; absent for other locks. */
  declare readonly lock?: string;
}

/** Turns a thrown value into an error. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}

/** There was no time for a node's answer, so its vote is unknown. */
export class NoTimeError extends Error {}

/** A store was closed while it connected, as at a shutdown during the start: no node is missing. */
export class ClosedStoreError extends Error {
  override readonly name = 'ClosedStoreError';

  constructor() {
    super('the store was closed before it was connected');
  }
}

/**
 * A store is not fit for locks, such as a standby, so the start fails. The message continues after the store's name.
 */
export class UnfitStoreError extends Error {
  override readonly name = 'UnfitStoreError';
}
