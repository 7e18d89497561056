import { checkOptionNames } from '../core/checks.js';
import { checkLabel, whereItBelongs } from '../core/lock-options.js';
import { checkLockPolicy, LOCK_POLICY_NAMES, type LockPolicy } from '../core/lock-policy.js';

/** Options of `@WithLock`: the options of every lock, and a label. */
export interface WithLockOptions extends LockPolicy {
  /**
   * Name of this method's locks in events, traces and metrics. Use a fixed text without ids: metrics have one series
   * for each name.
   * @defaultValue the key if it is a string, else the class and the method, such as `'Orders.settle'`
   */
  readonly label?: string;
}

/**
 * @throws TypeError or RangeError naming the option, the rule and the value
 */
export function checkWithLockOptions(options: WithLockOptions): void {
  checkOptionNames('@WithLock', options, [...LOCK_POLICY_NAMES, 'label', 'instance'], whereItBelongs);
  checkLockPolicy(options);
  if (options.label !== undefined) checkLabel(options.label);
}
