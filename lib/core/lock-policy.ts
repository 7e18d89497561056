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

/** The options of a lock, and of the method that runs under the lock. */
export interface LockPolicy extends LockOptions, LockKindOptions {
  /**
   * The reaction when another caller still holds the lock after the wait. `'throw'` throws the `LockHeldError`;
   * `'skip'` skips the call; with a function, the result of the function replaces the result of the method. A skipped
   * call resolves to `undefined`; an Observable or async iterable ends without a value. With `'skip'` the call makes
   * one attempt, unless the decorator has its own `retry`.
   * @defaultValue 'throw'; `'skip'` with `oncePerTick`
   */
  readonly onBusy?: 'throw' | 'skip' | ((error: LockHeldError) => unknown);

  /**
   * Runs each tick of a schedule on only one instance, although the timers of all instances fire. This also works for a
   * very short method. The method must have `@Cron` or `@Interval` of @nestjs/schedule. Preconditions: the clocks of
   * the instances differ by less than a minute, the nodes keep the record of the last run, and no run crashes or loses
   * its lock.
   *
   * If the tick has already run, or is running on another instance, `onBusy` decides; its default is `'skip'` here. A
   * tick whose process crashed may run again on an instance that fires later; a tick whose method threw counts as run.
   * Not together with `mode: 'shared'` or `permits`.
   *
   * A tick of `@Cron` is a moment that the expression gives, in its time zone. Instances with `@Interval` have no
   * common moments, and their clocks do not matter. The next run begins no sooner than one interval after the previous
   * run, minus a tolerance of 10 % of the interval, at most one second.
   * @defaultValue false
   */
  readonly oncePerTick?: boolean;

  /**
   * The `name` of the `RedlockModule` instance that locks.
   * @defaultValue the instance without a name
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

/**
 * Refuses `oncePerTick` for a lock that can have several holders: a tick counts as run only when the lock is released,
 * so all holders would run the tick.
 */
function refuseTogether({ mode, permits }: LockPolicy): void {
  if (mode !== 'shared' && permits === undefined) return;
  const kind = permits === undefined ? "`mode: 'shared'`" : `\`permits: ${permits}\``;
  throw new TypeError(
    `Expected \`oncePerTick\` with an exclusive lock, got ${kind}. All holders of such a lock would run the ` +
      'tick: leave out one of the two options',
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

/** The options of a call: one that is skipped when the lock is held makes one attempt, unless it has its own `retry`. */
export function optionsFor<Options extends LockOptions>(
  onBusy: LockPolicy['onBusy'],
  options: Options,
): Options {
  return onBusy === 'skip' ? { ...options, retry: options.retry ?? false } : options;
}

/** Computes the mode of a lock from `mode` and `permits`. */
export function modeOf({ mode = 'exclusive', permits }: LockKindOptions): LockMode {
  return permits === undefined ? mode : 'permits';
}
