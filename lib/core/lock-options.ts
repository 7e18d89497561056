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
   * Give up after this many attempts, the first included, with `delay` between them. A wait of the same length behind
   * other calls of this process counts as an attempt, too.
   * @defaultValue no limit
   */
  readonly attempts?: number;

  /**
   * Milliseconds between two attempts where no message announces a release: with `attempts`, while nodes do not answer,
   * and while the connection for messages is down. A waiter in the queue gets a message, and otherwise asks only when
   * the lock could have expired, or after 5 seconds.
   * @defaultValue 200
   */
  readonly delay?: number;

  /**
   * Up to this many milliseconds are added at random to each delay, so that waiters do not collide again and again (S8).
   * @defaultValue 100
   */
  readonly jitter?: number;
}

/** The options of every kind of lock, which a module can also set for all its locks. */
export interface LockOptions {
  /**
   * Milliseconds that Redis keeps the lock if nobody renews or releases it. At least 10. Below 1000, an ordinary pause
   * of the process or of the network is enough to lose the lock.
   * @defaultValue 10000
   */
  readonly ttl?: number;

  /**
   * How to wait while the lock is not free: `false` makes one attempt; otherwise the call repeats attempts until it
   * reaches the first limit.
   * @defaultValue `{ timeout: 5000, delay: 200, jitter: 100 }`
   */
  readonly retry?: false | RetryOptions;

  /**
   * Extend the lock every third of the ttl while it is held.
   * @defaultValue true
   */
  readonly renew?: boolean;

  /**
   * Milliseconds that the keys are kept at least, counted from the request, even if the lock is released sooner: for
   * short tasks that several instances begin at about the same time. The handle is released at once; other callers find
   * the keys held until the rest has passed. Not with `mode: 'shared'`.
   *
   * It may be longer than `ttl`; after a crash only the ttl applies. Nodes that lose their data forget the rest,
   * because `restartGuard` covers the ttl unless you set it to more. A nested call that joins a lock (`reentrant`) does
   * not change the value of the call that acquired it.
   * @defaultValue 0
   */
  readonly minHold?: number;

  /**
   * Milliseconds after the acquisition from which the lock is not extended any more. It then ends with the rest of its
   * ttl, no later than `maxHold` plus one ttl after the acquisition, and its signal aborts if it is still held. A
   * nested call that joins a lock (`reentrant`) does not change the limit of the call that acquired it.
   * @defaultValue no limit
   */
  readonly maxHold?: number;

  /**
   * If `true`, a call that is made under a lock of the same keys, in the same asynchronous call chain, joins that lock
   * and keeps its fencing token, instead of waiting for itself. The call that acquired the lock releases it. If a
   * nested call that nobody awaited still runs then, the lock is released when that call ends.
   *
   * Calls that run side by side, as under `Promise.all`, do not join together: the second one waits as if it were
   * another process. Joining a lost lock throws a `LockLostError`, also when the loss comes while the second call
   * waits. A call joins a lock of its own kind, and a shared call also joins an exclusive lock, but not the other way
   * round.
   * @defaultValue false
   */
  readonly reentrant?: boolean;

  /**
   * The reaction to a lock that was lost while the method ran: `'throw'` a `LockLostError` once the method has
   * returned, or `'ignore'` the loss. The method's own error always comes first, and the signal aborts either way.
   * @defaultValue 'throw'
   */
  readonly onLost?: 'throw' | 'ignore';

  /**
   * The time of the release: `'afterMethod'` when the method or task has ended; `'afterCommit'` when, besides, the
   * surrounding database transaction has been committed or rolled back. Outside of a transaction the two are the same.
   * `'afterCommit'` needs `inTransaction` and `afterTransaction` of the module.
   *
   * Until the release the lock is renewed, within `maxHold`. After the method has returned, only the signal and the
   * events report a loss. The option does not apply to `acquire` and `tryAcquire`, whose caller releases the lock, and
   * has no effect for a call that joins a lock (`reentrant`).
   * @defaultValue 'afterMethod'
   * @see docs/transactions.md
   */
  readonly release?: 'afterMethod' | 'afterCommit';
}

/** The number of holders that a lock admits at a time. Set it for each lock: a module has no default for it. */
export interface LockKindOptions {
  /**
   * `'shared'`: any number of readers hold it together, but none beside an exclusive holder. `'exclusive'`: one writer
   * holds it alone. Not together with `permits`.
   * @defaultValue 'exclusive'
   */
  readonly mode?: 'shared' | 'exclusive';

  /**
   * The number of holders at a time, over all processes: a whole number from 1 to 1000. Each holder has a slot of its
   * own (`LockHandle.slot`). With several keys each has its permits, and the lock takes one of each. If processes give
   * different numbers for a key, which happens during a deployment, the largest is the limit. Not together with `mode`.
   * @defaultValue none: the lock has the `mode`
   */
  readonly permits?: number;
}

/** The options of {@link LockService.acquire} and {@link LockService.withLock}. */
export interface AcquireOptions extends LockOptions, LockKindOptions {
  /**
   * The name of the lock in events, traces and metrics. Use a fixed text without ids: metrics count by it.
   * @defaultValue 'other'
   */
  readonly label?: string;

  /** Ends the wait: the call rejects with the signal's reason and leaves no key behind. */
  readonly signal?: AbortSignal;
}

/** {@link LockOptions} with every default filled in. */
export interface ResolvedLockOptions {
  /** The name of the declared lock; absent for other locks. */
  readonly lock?: string;
  /** The kind that `mode` and `permits` describe. */
  readonly kind: LockKind;
  readonly ttl: number;
  readonly retry: ResolvedRetry;
  readonly renew: boolean;
  readonly minHold: number;
  readonly maxHold: number | undefined;
  readonly reentrant: boolean;
  readonly onLost: 'throw' | 'ignore';
  readonly release: 'afterMethod' | 'afterCommit';
}

/** {@link RetryOptions} with every default filled in; `Infinity` stands for no limit. */
export interface ResolvedRetry {
  readonly timeout: number;
  readonly attempts: number;
  readonly delay: number;
  readonly jitter: number;
}

/** One attempt, with no retry. */
export const NO_RETRY: ResolvedRetry = { timeout: Infinity, attempts: 1, delay: 0, jitter: 0 };

/** The options that {@link checkLockOptions} knows. */
export const LOCK_OPTION_NAMES = [
  'ttl',
  'retry',
  'renew',
  'minHold',
  'maxHold',
  'reentrant',
  'onLost',
  'release',
] as const;

/** The options that {@link checkLockKind} knows. */
export const LOCK_KIND_OPTION_NAMES = ['mode', 'permits'] as const;

/** The options in `retry`. */
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
] as const;

/** The place of each option that is often given to a lock although it belongs elsewhere. */
const ELSEWHERE: ReadonlyMap<string, string> = new Map([
  ...RETRY_OPTION_NAMES.map(
    (name) => [name, `It belongs in \`retry\`: \`retry: { ${name}: ... }\``] as const,
  ),
  ...MODULE_OPTION_NAMES.map((name) => [name, 'It is an option of `RedlockModule.forRoot`'] as const),
]);

/** Advice about an option that is unknown for a lock and belongs elsewhere. */
export function whereItBelongs(name: string): string | undefined {
  return ELSEWHERE.get(name);
}

/** The ttl of a lock without a `ttl` option. */
export const DEFAULT_TTL_MS = 10_000;

/** A shorter ttl leaves no useful validity after drift and a round trip. */
export const SHORTEST_TTL_MS = 10;

const RETRY_RULE = '`false` or an object such as `{ timeout: 5000 }` or `{ attempts: 3 }`';

/**
 * @throws TypeError or RangeError naming the option, the rule and the value
 */
export function checkLockOptions({
  ttl,
  retry,
  renew,
  minHold,
  maxHold,
  reentrant,
  onLost,
  release,
}: LockOptions): void {
  if (ttl !== undefined) checkMilliseconds('ttl', ttl, SHORTEST_TTL_MS);
  if (renew !== undefined) checkBoolean('renew', renew);
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
      "'shared' or 'exclusive' (for so many at a time give `permits`)",
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
        'Leave out one of them: permits are a kind of lock of their own, beside which there are no readers',
    );
  }
}

/** Each of many readers would keep writers out for the whole `minHold` after its release. */
function minHoldOfShared(minHold: number, whose: string): TypeError {
  return new TypeError(
    `Expected no \`minHold\` with \`mode: 'shared'\`, got ${minHold}${whose}. A shared lock ends with its release; ` +
      'for runs that are to be kept apart use an exclusive lock',
  );
}

/** Advice for `mode` and `permits` among options of all locks. */
export function kindBelongsToLock(name: string): string | undefined {
  if (!(LOCK_KIND_OPTION_NAMES as readonly string[]).includes(name)) return undefined;
  const example = name === 'mode' ? "mode: 'shared'" : 'permits: 5';
  return (
    'How many may hold a lock is said with the lock, not for all locks of a module: ' +
    `\`@WithLock(key, { ${example} })\`, \`acquire(key, { ${example} })\``
  );
}

/** @throws TypeError when `label` is not a string, or empty */
export function checkLabel(label: unknown): void {
  if (typeof label !== 'string' || label === '')
    throw badOption('label', 'a string that is not empty', label);
}

/** The options given with a lock; `lock` is the name of a declared one. */
export type GivenLockOptions = LockOptions & LockKindOptions & Pick<ResolvedLockOptions, 'lock'>;

/**
 * Fills in missing options, first from `defaults`, then from the defaults of the package. Both are checked already.
 *
 * @throws TypeError for a shared lock when `defaults` have a `minHold`
 */
export function resolveLockOptions(given: GivenLockOptions, defaults: LockOptions): ResolvedLockOptions {
  const minHold = given.minHold ?? defaults.minHold ?? 0;
  if (given.mode === 'shared' && minHold > 0)
    throw minHoldOfShared(minHold, ' from the `defaults` of the module, so give `minHold: 0`');
  return {
    ...(given.lock !== undefined && { lock: given.lock }),
    kind: kindOf(given),
    ttl: given.ttl ?? defaults.ttl ?? DEFAULT_TTL_MS,
    retry: resolveRetry(given.retry, defaults.retry),
    renew: given.renew ?? defaults.renew ?? true,
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
