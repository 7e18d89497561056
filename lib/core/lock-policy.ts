import { badOption, checkBoolean } from './checks.js';
import type { LockHeldError } from './errors.js';
import type { LockMode } from './lock-mode.js';
import {
  checkLockKind,
  checkLockOptions,
  LOCK_KIND_OPTION_NAMES,
  LOCK_OPTION_NAMES,
  type LockKindOptions,
  type LockOptions,
} from './lock-options.js';

/** The options of a lock and of the method that it surrounds. */
export interface LockPolicy extends LockOptions, LockKindOptions {
  /**
   * The reaction when another caller holds the lock and waiting is over: `'throw'` the `LockHeldError`; `'skip'` the
   * call; or a function that returns the value in place of the method's. A skipped call resolves to `undefined` (an
   * Observable or async iterable ends without a value), and makes one attempt unless its own `retry` says otherwise.
   * @defaultValue 'throw'; `'skip'` with `oncePerTick`
   */
  readonly onBusy?: 'throw' | 'skip' | ((error: LockHeldError) => unknown);

  /**
   * For a method with `@Cron` or `@Interval` of @nestjs/schedule: runs each tick once, however many instances fire for
   * it and however short the method is. This holds as long as their clocks differ by less than a minute, the nodes keep
   * the record of the last run, and no run crashes or loses its lock.
   *
   * An instance whose tick has run, or runs elsewhere, does as `onBusy` says, which is `'skip'` by default here. A tick
   * that crashed may run again on an instance that fires for it later; a tick whose method threw counts as run. Not
   * together with `mode: 'shared'` or `permits`.
   *
   * With `@Cron` a tick is a moment that the expression names, in its time zone. Instances with `@Interval` share no
   * such moments, and their clocks do not matter: a run begins no sooner than the interval after the run before it,
   * less 10 % or one second, whichever is less.
   * @defaultValue false
   */
  readonly oncePerTick?: boolean;

  /**
   * The `name` of the `RedlockModule` instance that locks.
   * @defaultValue the one without a name
   */
  readonly instance?: string;
}

/** The options that {@link checkLockPolicy} accepts, besides `instance`. */
export const LOCK_POLICY_NAMES = [
  ...LOCK_OPTION_NAMES,
  ...LOCK_KIND_OPTION_NAMES,
  'onBusy',
  'oncePerTick',
] as const;

/** A tick has run when its lock is released. Callers that hold the lock together would all run it. */
function refuseTogether({ mode, permits }: LockPolicy): void {
  if (mode !== 'shared' && permits === undefined) return;
  const kind = permits === undefined ? "`mode: 'shared'`" : `\`permits: ${permits}\``;
  throw new TypeError(
    `Expected \`oncePerTick\` with an exclusive lock, got ${kind}. All holders of a common lock would run the ` +
      'tick: leave one of the two out',
  );
}

/**
 * @throws TypeError or RangeError naming the option, the rule and the value
 */
export function checkLockPolicy(policy: LockPolicy): void {
  checkLockOptions(policy);
  checkLockKind(policy);
  const { onBusy, oncePerTick, instance } = policy;
  if (oncePerTick !== undefined) checkBoolean('oncePerTick', oncePerTick);
  if (oncePerTick === true) refuseTogether(policy);
  if (onBusy !== undefined && onBusy !== 'throw' && onBusy !== 'skip' && typeof onBusy !== 'function') {
    throw badOption('onBusy', "'throw', 'skip' or a function", onBusy);
  }
  if (instance !== undefined && (typeof instance !== 'string' || instance === '')) {
    throw badOption('instance', 'the `name` of a RedlockModule', instance);
  }
}

/** The mode that `mode` and `permits` describe. */
export function modeOf({ mode = 'exclusive', permits }: LockKindOptions): LockMode {
  return permits === undefined ? mode : 'permits';
}
