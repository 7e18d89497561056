import { badNumber, badOption, checkBoolean, checkMilliseconds, checkOptionNames } from './checks.js';
import { EXCLUSIVE, type LockKind, MOST_PERMITS, SHARED } from './lock-mode.js';

/** Limits and delays of the attempts to get a lock that is not free. */
export interface RetryOptions {
  /**
   * Give up after this many milliseconds.
   * @defaultValue 5000; no limit of time when only `attempts` is given
   */
  readonly timeout?: number;

  /**
   * Give up after this many attempts, the first included, with `delay` between them. While this call waits behind other
   * calls of its process, each full period of `delay` + `jitter` / 2 also counts as an attempt.
   * @defaultValue no limit
   */
  readonly attempts?: number;

  /**
   * Milliseconds between two attempts when the waiter does not wait for a message about a release: with `attempts`,
   * while nodes do not answer, and while the connection for messages is down. In all other cases the waiter waits for a
   * message. If no message comes, the waiter asks again when the lock could have expired, but after 5 seconds at the
   * latest.
   * @defaultValue 200
   */
  readonly delay?: number;

  /**
   * Largest number of random milliseconds that are added to each delay, so that waiters do not ask at the same time
   * again and again (S8).
   * @defaultValue 100
   */
  readonly jitter?: number;
}

/** The options of every kind of lock. A module can also set them for all its locks. */
export interface LockOptions {
  /**
   * Milliseconds for which Redis keeps the lock if nobody renews or releases it: a whole number, at least 10. Values
   * below 1000 are risky: a usual pause of the process or of the network is then long enough to lose the lock.
   * @defaultValue 10000
   */
  readonly ttl?: number;

  /**
   * The limits of the wait for a lock that is not free. With `false` the call makes one attempt. Otherwise the call
   * tries again until it gets the lock or reaches one of the limits.
   * @defaultValue `{ timeout: 5000, delay: 200, jitter: 100 }`
   */
  readonly retry?: false | RetryOptions;

  /**
   * Extends the lock after each third of its ttl while the lock is held. With `'thread'` a worker thread of the module
   * does it, with connections of its own, so that a blocked event loop does not lose the lock. It needs nodes that the
   * thread can open itself: URLs of Redis, ioredis options, or a database such as `postgres(...)`, without functions in
   * the options; or the option `threadNodes` of the module. With `nodes: 'memory'` and in the testing module
   * it is the same as `true`.
   * @defaultValue true
   * @see docs/blocked-event-loop.md
   */
  readonly renew?: boolean | 'thread';

  /**
   * Milliseconds for which the thread of `renew: 'thread'` renews the lock although the event loop of its holder is
   * blocked; at least 1000. After that time the lock is not renewed until the event loop runs again, so an endless loop
   * loses its lock after this time and its ttl at the latest. Only with `renew: 'thread'`, given here or in `defaults`;
   * otherwise a TypeError.
   * @defaultValue 60000
   */
  readonly maxBlocked?: number;

  /**
   * The keys stay held for at least this many milliseconds, counted from the request, even if the lock is released
   * sooner. Use it for short tasks that several instances begin at about the same time. `release` returns immediately,
   * but other callers find the keys held until the time has passed. Not together with `mode: 'shared'`.
   *
   * `minHold` may be longer than `ttl`; after a crash only the ttl applies. Nodes that lose their data may free the
   * keys earlier, because by default `restartGuard` covers only the ttl. A nested call that joins a lock (`reentrant`)
   * does not change the `minHold` of that lock.
   * @defaultValue 0
   */
  readonly minHold?: number;

  /**
   * Milliseconds for which the lock can be extended, counted from the acquisition. After this time the lock is not
   * extended any more: it ends when the rest of its ttl has passed, at most one ttl later. If it is still held then,
   * its signal aborts. A nested call that joins a lock (`reentrant`) does not change the `maxHold` of that lock.
   * @defaultValue no limit
   */
  readonly maxHold?: number;

  /**
   * If `true`, a call that is made under a lock of the same keys, in the same asynchronous call chain, joins that lock
   * and keeps its fencing token, instead of waiting for itself. The call that acquired the lock releases it. If a
   * nested call that nobody awaited runs longer than that call, the lock is released when the nested call ends.
   *
   * The call chain ends with the method and its result: later calls acquire a lock of their own. While the method runs,
   * a job of a worker that was made under the lock (a pool, a queue) cannot be told from a nested call. That is so even if
   * another caller submitted the job. Make such a worker with `outside`.
   *
   * Only one call at a time can join a lock: of several calls that start together, as under `Promise.all`, the second
   * call waits as if it were in another process. A call that joins a lost lock throws a `LockLostError`, also when the
   * lock is lost while the call waits. A call joins a lock of its own kind. A shared call also joins an exclusive lock,
   * but an exclusive call does not join a shared lock.
   * @defaultValue false
   */
  readonly reentrant?: boolean;

  /**
   * The reaction to a lock that was lost while the method ran: `'throw'` throws a `LockLostError` after the method has
   * returned, `'ignore'` does nothing. If the method itself throws, the caller gets the error of the method. The signal
   * aborts in both cases.
   * @defaultValue 'throw'
   */
  readonly onLost?: 'throw' | 'ignore';

  /**
   * The time of the release. `'afterMethod'`: when the method or task has ended. `'afterCommit'`: when the method has
   * ended and the surrounding database transaction has been committed or rolled back. Without a transaction both values
   * have the same effect. `'afterCommit'` needs `inTransaction` and `afterTransaction` of the module.
   *
   * Until the release the lock is renewed, within `maxHold`. If the lock is lost after the method has returned, only
   * the signal and the events report the loss. The option does not apply to `acquire` and `tryAcquire`, whose caller
   * releases the lock, and has no effect for a call that joins a lock (`reentrant`).
   * @defaultValue 'afterMethod'
   * @see docs/transactions.md
   */
  readonly release?: 'afterMethod' | 'afterCommit';
}

/**
 * The options that set how many holders a lock admits at a time. Set them for each lock: a module has no defaults for
 * them.
 */
export interface LockKindOptions {
  /**
   * `'shared'`: any number of readers hold the lock together, but not at the same time as an exclusive holder.
   * `'exclusive'`: one writer holds the lock alone. Not together with `permits`.
   * @defaultValue 'exclusive'
   */
  readonly mode?: 'shared' | 'exclusive';

  /**
   * The number of holders at a time, over all processes: a whole number from 1 to 1000. Each holder has a slot of its
   * own (`LockHandle.slot`). With several keys, each key has this number of permits, and the lock takes one permit of
   * each key. If processes give different numbers for a key, which happens during a deployment, the largest is the
   * limit. Not together with `mode`.
   * @defaultValue none: `mode` sets the number of holders
   */
  readonly permits?: number;
}

/** The options of {@link LockService.acquire} and {@link LockService.withLock}. */
export interface AcquireOptions extends LockOptions, LockKindOptions {
  /**
   * The name of the lock in events, traces and metrics. Use a fixed text without ids, because metrics have one series
   * for each name.
   * @defaultValue 'other'
   */
  readonly label?: string;

  /** Ends the wait when it aborts: the call rejects with the signal's reason, and no key stays locked. */
  readonly signal?: AbortSignal;
}

/**
 * The options of {@link LockService.attach}. `retry` limits the attempts while no quorum of nodes answers, or while
 * several callers with one pass each have some of the nodes.
 */
export type AttachOptions = Pick<AcquireOptions, 'renew' | 'maxBlocked' | 'retry' | 'signal' | 'label'>;

/** {@link LockOptions} with a value for every option. */
export interface ResolvedLockOptions {
  /** The name of the declared lock; absent for other locks. */
  readonly lock?: string;
  /** The kind that `mode` and `permits` describe. */
  readonly kind: LockKind;
  readonly ttl: number;
  readonly retry: ResolvedRetry;
  readonly renew: boolean | 'thread';
  readonly maxBlocked: number;
  readonly minHold: number;
  readonly maxHold: number | undefined;
  readonly reentrant: boolean;
  readonly onLost: 'throw' | 'ignore';
  readonly release: 'afterMethod' | 'afterCommit';
}

/** {@link RetryOptions} with a value for every option; `Infinity` means no limit. */
export interface ResolvedRetry {
  readonly timeout: number;
  readonly attempts: number;
  readonly delay: number;
  readonly jitter: number;
}

/** One attempt, without a retry. */
export const NO_RETRY: ResolvedRetry = { timeout: Infinity, attempts: 1, delay: 0, jitter: 0 };

/** The options that {@link checkLockOptions} knows. */
export const LOCK_OPTION_NAMES = [
  'ttl',
  'retry',
  'renew',
  'maxBlocked',
  'minHold',
  'maxHold',
  'reentrant',
  'onLost',
  'release',
] as const;

/** The options that {@link checkLockKind} knows. */
export const LOCK_KIND_OPTION_NAMES = ['mode', 'permits'] as const;

/** The options inside `retry`. */
export const RETRY_OPTION_NAMES: readonly string[] = ['timeout', 'attempts', 'delay', 'jitter'];

/** The options of a module. */
export const MODULE_OPTION_NAMES = [
  'nodes',
  'keyPrefix',
  'nodeTimeout',
  'driftFactor',
  'restartGuard',
  'waitForQuorum',
  'owner',
  'defaults',
  'locks',
  'strict',
  'overrides',
  'onEvent',
  'inTransaction',
  'afterTransaction',
  'shutdownTimeout',
  'threadNodes',
] as const;

/** Advice by the name of an option that users often give to a lock, although it belongs to another object. */
const ELSEWHERE: ReadonlyMap<string, string> = new Map([
  ...RETRY_OPTION_NAMES.map(
    (name) => [name, `It belongs in \`retry\`: \`retry: { ${name}: ... }\``] as const,
  ),
  ...MODULE_OPTION_NAMES.map((name) => [name, 'It is an option of `RedlockModule.forRoot`'] as const),
]);

/** Advice about an option that is unknown for a lock, but known for another object. */
export function whereItBelongs(name: string): string | undefined {
  return ELSEWHERE.get(name);
}

/** The ttl of a lock without a `ttl` option. */
export const DEFAULT_TTL_MS = 10_000;

/** The `maxBlocked` of a lock without that option. */
const DEFAULT_MAX_BLOCKED_MS = 60_000;

/** Shortest `maxBlocked`. A shorter one would take usual pauses for an endless loop: the thread looks every 250 ms. */
const SHORTEST_MAX_BLOCKED_MS = 1_000;

/** Shortest ttl. With a shorter ttl, too little validity would be left after the drift and a round trip. */
export const SHORTEST_TTL_MS = 10;

const RETRY_RULE = '`false` or an object such as `{ timeout: 5000 }` or `{ attempts: 3 }`';

/**
 * @throws TypeError or RangeError naming the option, the rule and the value
 */
export function checkLockOptions({
  ttl,
  retry,
  renew,
  maxBlocked,
  minHold,
  maxHold,
  reentrant,
  onLost,
  release,
}: LockOptions): void {
  if (ttl !== undefined) checkMilliseconds('ttl', ttl, SHORTEST_TTL_MS);
  if (renew !== undefined && typeof renew !== 'boolean' && renew !== 'thread')
    throw badOption('renew', "`true`, `false` or 'thread'", renew);
  if (maxBlocked !== undefined) {
    checkMilliseconds('maxBlocked', maxBlocked, SHORTEST_MAX_BLOCKED_MS);
    if (typeof renew === 'boolean') throw unreadMaxBlocked(renew);
  }
  if (minHold !== undefined) checkMilliseconds('minHold', minHold, 0);
  if (maxHold !== undefined) checkMilliseconds('maxHold', maxHold, 1);
  if (reentrant !== undefined) checkBoolean('reentrant', reentrant);
  if (onLost !== undefined && onLost !== 'throw' && onLost !== 'ignore') {
    throw badOption('onLost', "'throw' or 'ignore'", onLost);
  }
  if (release !== undefined && release !== 'afterMethod' && release !== 'afterCommit') {
    throw badOption('release', "'afterMethod' or 'afterCommit'", release);
  }
  if (retry === undefined || retry === false) return;
  if (typeof retry !== 'object' || retry === null) throw badOption('retry', RETRY_RULE, retry);
  checkOptionNames('retry', retry, RETRY_OPTION_NAMES);
  const { timeout, attempts, delay, jitter } = retry;
  if (timeout !== undefined) checkMilliseconds('retry.timeout', timeout, 1);
  if (delay !== undefined) checkMilliseconds('retry.delay', delay, 1);
  if (jitter !== undefined) checkMilliseconds('retry.jitter', jitter, 0);
  if (attempts !== undefined && !(Number.isInteger(attempts) && attempts >= 1)) {
    throw badNumber('retry.attempts', 'a whole number, at least 1', attempts);
  }
}

/**
 * @throws TypeError or RangeError naming the option, the rule and the value
 */
export function checkLockKind({
  mode,
  permits,
  minHold,
}: LockKindOptions & Pick<LockOptions, 'minHold'>): void {
  if (mode !== undefined && mode !== 'shared' && mode !== 'exclusive') {
    const { message } = badOption(
      'mode',
      "'shared' or 'exclusive' (for a number of holders give `permits`)",
      mode,
    );
    const remedy =
      typeof mode === 'string' && /read|write/i.test(mode)
        ? "; readers take 'shared', writers 'exclusive'"
        : '';
    throw new TypeError(message + remedy);
  }
  if (mode === 'shared' && minHold !== undefined && minHold > 0) throw minHoldOfShared(minHold, '');
  if (permits === undefined) return;
  if (!(Number.isInteger(permits) && permits >= 1 && permits <= MOST_PERMITS)) {
    throw badNumber('permits', `a whole number from 1 to ${MOST_PERMITS}`, permits);
  }
  if (mode !== undefined) {
    throw new TypeError(
      `Expected \`permits\` without a \`mode\`, got \`permits: ${permits}\` with \`mode: '${mode}'\`. ` +
        'Leave out one of them: a lock with permits is another kind of lock, without readers and writers',
    );
  }
}

/**
 * Makes the error for a shared lock with `minHold`: each of many readers would exclude writers for the whole `minHold`
 * after its release.
 */
function minHoldOfShared(minHold: number, whose: string): TypeError {
  return new TypeError(
    `Expected no \`minHold\` with \`mode: 'shared'\`, got ${minHold}${whose}. A shared lock ends with its release; ` +
      'use an exclusive lock to keep runs a minimum time apart',
  );
}

/** Advice about `mode` and `permits` when they are given as options for all locks. */
export function kindBelongsToLock(name: string): string | undefined {
  if (!(LOCK_KIND_OPTION_NAMES as readonly string[]).includes(name)) return undefined;
  const example = name === 'mode' ? "mode: 'shared'" : 'permits: 5';
  return (
    'The number of holders is an option of one lock, not of all locks of a module: ' +
    `\`@WithLock(key, { ${example} })\`, \`acquire(key, { ${example} })\``
  );
}

/** @throws TypeError when `label` is not a string, or empty */
export function checkLabel(label: unknown): void {
  if (typeof label !== 'string' || label === '')
    throw badOption('label', 'a string that is not empty', label);
}

/** The options of one call or decorator; `lock` is the name of a declared lock. */
export type GivenLockOptions = LockOptions & LockKindOptions & Pick<ResolvedLockOptions, 'lock'>;

/** `maxBlocked` of a lock that no thread renews. */
function unreadMaxBlocked(renew: boolean): TypeError {
  return new TypeError(
    `Expected \`maxBlocked\` with \`renew: 'thread'\`, got \`renew: ${renew}\`. Leave out \`maxBlocked\`, or let a ` +
      'thread renew the lock',
  );
}

/**
 * Fills in missing options, first from `defaults`, then from the defaults of the package. The caller has checked both.
 *
 * @throws TypeError for a shared lock when `defaults` have a `minHold`, and for `maxBlocked` without `renew: 'thread'`
 */
export function resolveLockOptions(given: GivenLockOptions, defaults: LockOptions): ResolvedLockOptions {
  const minHold = given.minHold ?? defaults.minHold ?? 0;
  if (given.mode === 'shared' && minHold > 0)
    throw minHoldOfShared(minHold, ' from the `defaults` of the module, so give `minHold: 0`');
  const renew = given.renew ?? defaults.renew ?? true;
  if (given.maxBlocked !== undefined && renew !== 'thread') throw unreadMaxBlocked(renew);
  return {
    ...(given.lock !== undefined && { lock: given.lock }),
    kind: kindOf(given),
    ttl: given.ttl ?? defaults.ttl ?? DEFAULT_TTL_MS,
    retry: resolveRetry(given.retry, defaults.retry),
    renew,
    maxBlocked: given.maxBlocked ?? defaults.maxBlocked ?? DEFAULT_MAX_BLOCKED_MS,
    minHold,
    maxHold: given.maxHold ?? defaults.maxHold,
    reentrant: given.reentrant ?? defaults.reentrant ?? false,
    onLost: given.onLost ?? defaults.onLost ?? 'throw',
    release: given.release ?? defaults.release ?? 'afterMethod',
  };
}

function kindOf({ mode, permits }: LockKindOptions): LockKind {
  if (permits !== undefined) return { mode: 'permits', permits };
  return mode === 'shared' ? SHARED : EXCLUSIVE;
}

function resolveRetry(given: LockOptions['retry'], defaults: LockOptions['retry']): ResolvedRetry {
  if (given === false || (given === undefined && defaults === false)) return NO_RETRY;
  const fallback = defaults || {};
  const attempts = given?.attempts ?? fallback.attempts;
  return {
    timeout: given?.timeout ?? fallback.timeout ?? (attempts === undefined ? 5_000 : Infinity),
    attempts: attempts ?? Infinity,
    delay: given?.delay ?? fallback.delay ?? 200,
    jitter: given?.jitter ?? fallback.jitter ?? 100,
  };
}
