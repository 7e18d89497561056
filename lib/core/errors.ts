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

/** Base of all errors of this package but those for bad options, which are `TypeError` and `RangeError`. */
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
 * A quorum of nodes answered, and somebody else holds the lock, or came earlier and waits for it. Redis works; wait or do
 * without.
 */
export class LockHeldError extends RedlockError {
  override readonly name = 'LockHeldError';

  constructor(
    /** The keys that were asked for. */
    readonly keys: readonly string[],
    /**
     * Readable name of the holder (the module option `owner` of its process). Of several the one to wait for: the first to
     * end of those who have permits, for an exclusive lock the last reader.
     */
    readonly owner: string,
    /** Milliseconds until that lock ends at the latest if its holder does not renew it; `Infinity` if the key has no expiry. */
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
    // For a copy of this one. Not enumerable: a log shows what a person can use.
    Object.defineProperty(this, 'kind', { value: details.kind });
  }

  /**
   * Those who hold the lock, as far as the nodes named them when they refused: the one to wait for first, and of those who
   * have permits up to ten. `LockService.inspect` names all. None when it is kept for `owner`, who came earlier and waits in line.
   */
  readonly holders: readonly LockHolder[];

  /** Whether the call that asked is itself under a lock of one of the keys, and so waited for itself. */
  readonly heldByCaller: boolean;

  /**
   * With `oncePerTick`, when nobody holds the lock, but the tick has run already: the instant that it is for, in
   * milliseconds since 1970; 0 for an `@Interval`. `owner` ran it, and `retryAfter` is for how long that is remembered.
   */
  readonly ranTick: number | undefined;

  /** The limit of `retry` that ended the wait; `undefined` when nobody waited. */
  readonly limit: RetryLimit | undefined;

  /**
   * With `permits`, how many others asked for lately at least, where that is more than this call asked for: the larger number
   * is the limit. Else `undefined`.
   */
  readonly permitsSeen: number | undefined;

  /** The name of the declared lock that was asked for; absent for others. */
  declare readonly lock?: string;

  /** The same, after a wait that a limit of `retry` ended. */
  afterTrying(limit: RetryLimit): LockHeldError {
    return new LockHeldError(this.keys, this.owner, this.retryAfter, { ...this, kind: this.kind, limit });
  }

  /** The same, for those who asked for a declared lock. */
  named(lock: string): LockHeldError {
    return new LockHeldError(this.keys, this.owner, this.retryAfter, { ...this, kind: this.kind, lock });
  }

  /** What was asked for. */
  declare private readonly kind: LockKind | undefined;
}

/** What else a {@link LockHeldError} can say. */
export interface LockHeldDetails {
  readonly heldByCaller?: boolean;
  readonly ranTick?: number | undefined;
  readonly limit?: RetryLimit | undefined;
  /** An empty list says that nobody holds it, and that it is kept for one who waits. */
  readonly holders?: readonly LockHolder[];
  readonly permitsSeen?: number | undefined;
  /** What was asked for. */
  readonly kind?: LockKind | undefined;
  /** The name of the declared lock. */
  readonly lock?: string | undefined;
}

/** Keys, with the name of the declared lock if they are of one. */
export function titleOf(keys: readonly string[], lock: string | undefined): string {
  return lock === undefined ? quoted(keys) : `${quoted(keys)} (${printable(lock)})`;
}

/** For people. */
export function nameOfTick(at: number): string {
  return at === 0 ? 'this interval' : `the tick of ${new Date(at).toISOString()}`;
}

function whoHasIt(owner: string, details: LockHeldDetails): string {
  const { holders, heldByCaller } = details;
  const name = printable(owner);
  if (holders?.length !== 0) return `held by ${name}${otherKind(details)}`;
  return `kept for ${name}, who ${heldByCaller ? 'waits in line' : 'came earlier and waits in line'}`;
}

/** Two kinds of lock on one key are mostly a mistake. */
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
        'Try again later, give `retry` a longer `timeout`, or use `onBusy: "skip"` where one run is enough.'
    : ', without an expiry, so it will never end by itself. ' +
        'Something removed the expiry of the key in Redis; end the lock with `forceRelease`.';
}

function gaveUp(limit: RetryLimit | undefined, verb: string): string {
  if (!limit) return '';
  return 'timeout' in limit
    ? `${verb} after ${limit.timeout} ms (retry.timeout).`
    : `${verb} after ${limit.attempts} attempts (retry.attempts).`;
}

/** How one node voted when an attempt failed, or what it says of the key that was asked about. */
export interface NodeVote {
  /** The node's address, without credentials. */
  readonly node: string;
  /** `'pending'`: the other votes had decided before this one came. */
  readonly vote: 'granted' | 'held' | 'free' | 'error' | 'pending';
  /** Why there is no usable vote; only with `'error'`. */
  readonly error?: Error;
}

/** A node is kept from voting, as it may have forgotten locks. */
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

/**
 * Fewer than a quorum of nodes answered in time and fit to vote, so nobody can tell whether the lock is free.
 */
export class LockUnavailableError extends RedlockError {
  override readonly name = 'LockUnavailableError';

  constructor(
    /** The keys that were asked for; none when all locks were to be listed. */
    readonly keys: readonly string[],
    private readonly reason: string,
    votes: readonly NodeVote[] = [],
    /** What could not be done. */
    private readonly what = `lock ${quoted(keys)}`,
    /** The limit of `retry` that ended the wait; `undefined` when there was none. */
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
    // Not enumerable: the message has the reasons already, and a log would show every error of it at length.
    Object.defineProperty(this, 'votes', { value: votes });
    Object.defineProperty(this, 'reason', { enumerable: false });
    Object.defineProperty(this, 'what', { enumerable: false });
    if (lock !== undefined) this.lock = lock;
  }

  /** The name of the declared lock that was asked for; absent for others. */
  declare readonly lock?: string;

  /** The same, after a wait that a limit of `retry` ended. */
  afterTrying(limit: RetryLimit): LockUnavailableError {
    return new LockUnavailableError(this.keys, this.reason, this.votes, this.what, limit);
  }

  /** The same, for those who asked for a declared lock. */
  named(lock: string): LockUnavailableError {
    const { keys, reason, votes, limit } = this;
    return new LockUnavailableError(keys, reason, votes, `lock ${titleOf(keys, lock)}`, limit, lock);
  }

  /** Each node's vote and, where there is none, its cause. */
  declare readonly votes: readonly NodeVote[];
}

/**
 * The lock ended while it was still wanted: its validity ran out, or the nodes say that it is no longer ours.
 * Somebody else may hold it now; what it protects must not be written any more.
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

  /** The name of the declared lock; absent for others. */
  declare readonly lock?: string;
}

/** What was thrown, as an error. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}

/** There was no time for a node's answer, so nothing is known of it. */
export class NoTimeError extends Error {}

/** A store must not be used for locks, such as a standby; start-up ends with it. The message goes on after the store's name. */
export class UnfitStoreError extends Error {
  override readonly name = 'UnfitStoreError';
}
