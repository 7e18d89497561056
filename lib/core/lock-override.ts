import { badOption, checkOptionNames, listed } from './checks.js';
import { type DeclaredLock, type DeclaredLocks, isDeclaredLock, withPlace } from './declared-lock.js';
import { checkLockPolicy, type LockPolicy } from './lock-policy.js';
import { nearNames } from './near-names.js';
import { quoted } from './printable.js';

/** The options of a declared lock that a module can replace, usually from its configuration. */
export interface LockOverride extends Pick<LockPolicy, 'ttl' | 'onBusy'> {
  /**
   * The number of permits. Only for a lock that is declared with `permits`: an override must not admit several holders
   * to an exclusive lock.
   */
  readonly permits?: number;
}

/** Overrides by the names of declared locks. */
export type LockOverrides = Readonly<Record<string, LockOverride | undefined>>;

const NAMES: readonly string[] = ['ttl', 'permits', 'onBusy'];

/** @throws TypeError unless `locks` has declared locks only, each under its own name */
export function checkLocks(locks: unknown): asserts locks is DeclaredLocks {
  if (typeof locks !== 'object' || locks === null || isDeclaredLock(locks))
    throw badOption('locks', 'the result of `defineLocks`', locks);
  for (const [name, lock] of Object.entries(locks)) {
    if (!isDeclaredLock(lock))
      throw badOption(`locks[${quoted([name])}]`, 'a lock that `defineLocks` returned', lock);
    if (lock.name !== name) {
      throw new TypeError(
        `Expected \`locks\` to have each lock under its own name, got the lock ${quoted([lock.name])} under ` +
          `${quoted([name])}. Declare the lock under the name that it should have`,
      );
    }
  }
}

/** @throws TypeError or RangeError naming the lock, the option, the rule and the value */
export function checkOverrides(overrides: LockOverrides, locks: DeclaredLocks): void {
  if (typeof overrides !== 'object' || overrides === null || Array.isArray(overrides))
    throw badOption('overrides', 'an object with options under the names of declared locks', overrides);
  for (const [name, override] of Object.entries(overrides)) {
    const lock = Object.hasOwn(locks, name) ? locks[name] : undefined;
    if (!lock) {
      const near = nearNames(name, Object.keys(locks));
      const known = near.length === 0 ? '`locks` is empty' : `Did you mean ${quoted(near)}?`;
      throw new TypeError(`\`overrides\` has ${quoted([name])}, which \`locks\` does not declare. ${known}`);
    }
    if (override === undefined) continue;
    try {
      checkOverride(lock, override);
    } catch (error) {
      throw withPlace(`${quoted([name])} in \`overrides\``, error);
    }
  }
}

function checkOverride(lock: DeclaredLock, override: LockOverride): void {
  checkOptionNames(
    'overrides',
    override,
    NAMES,
    (option) => `Only ${listed(NAMES)} can be overridden. Change \`${option}\` where the lock is declared`,
  );
  checkLockPolicy(overridden(lock.policy, override));
  if (override.permits === undefined || lock.policy.permits !== undefined) return;
  throw new TypeError(
    `Expected no \`permits\`, got ${override.permits}, because the lock is declared without \`permits\`. ` +
      'An override must not admit several holders to such a lock: declare the lock with `permits`',
  );
}

/** Applies the overrides to the policy. An override that is `undefined` changes nothing. */
export function overridden(policy: LockPolicy, { ttl, permits, onBusy }: LockOverride): LockPolicy {
  return {
    ...policy,
    ...(ttl !== undefined && { ttl }),
    ...(permits !== undefined && { permits }),
    ...(onBusy !== undefined && { onBusy }),
  };
}
