import { AssertionError } from 'node:assert';
import { inspect, isDeepStrictEqual } from 'node:util';
import { checkOptionNames } from '../core/checks.js';
import { isKeyedLock, type KeyedLock } from '../core/declared-lock.js';
import { keysOf, type LockKey } from '../core/keys.js';
import {
  LOCK_KIND_OPTION_NAMES,
  LOCK_OPTION_NAMES,
  type LockKindOptions,
  type LockOptions,
  NO_RETRY,
} from '../core/lock-options.js';
import type { LockKind } from '../core/lock-mode.js';
import type { LockRecord } from './lock-record.js';
import type { TestLocks } from './test-locks.js';

/** Fields that {@link expectLocked} compares besides the keys; omitted fields are not compared. */
export interface ExpectedLock
  extends LockOptions, LockKindOptions, Partial<Pick<LockRecord, 'method' | 'label' | 'state'>> {
  /** The fencing token of a lock that the test got from `LockService` or saw before. */
  readonly fencingToken?: number;
}

const OWN_NAMES = ['method', 'label', 'state', 'fencingToken'] as const;

/**
 * Asserts that a lock of exactly these keys was acquired; a decorated method acquires its lock before it runs. With a
 * declared lock and its arguments, also asserts that the acquisition used that declared lock.
 *
 * @returns the record of the last lock that fits
 * @throws AssertionError of `node:assert`, with the locks that were acquired instead
 * @example
 * ```ts
 * import { expectLocked, TestLocks } from 'nestjs-redlock/testing';
 *
 * const locks = new TestLocks();
 * // after something called `orders.settle({ id: 7 })`
 * const { fencingToken } = expectLocked(locks, 'order:7', { method: 'Orders.settle', ttl: 10_000 });
 * ```
 */
export function expectLocked(
  locks: TestLocks,
  key: LockKey | KeyedLock,
  expected: ExpectedLock = {},
): LockRecord {
  checkOptionNames('expectLocked', expected, [...OWN_NAMES, ...LOCK_OPTION_NAMES, ...LOCK_KIND_OPTION_NAMES]);
  const wanted = isKeyedLock(key)
    ? { keys: key.keys, label: key.lock.name, ...expected }
    : { keys: keysOf(key), ...expected };
  const found = locks.history.findLast((record) => isSuch(wanted, seen(record)));
  if (found) return found;
  const actual = locks.history.map(seen);
  const acquired = actual.length === 0 ? 'none' : actual.map(line).join('');
  throw new AssertionError({
    message: `Expected this lock:${line(wanted)}\nThese were acquired: ${acquired}`,
    expected: wanted,
    actual,
    operator: 'expectLocked',
    stackStartFn: expectLocked,
  });
}

type Seen = Omit<LockRecord, 'options'> & Omit<LockRecord['options'], 'kind'> & LockKind;

function seen({ keys, method, label, fencingToken, state, options }: LockRecord): Seen {
  const { kind, ...others } = options;
  return { keys, method, label, fencingToken, state, ...kind, ...others };
}

/** `true` if every expected value equals the recorded value. */
function isSuch({ retry = {}, ...wanted }: ExpectedLock & Pick<LockRecord, 'keys'>, actual: Seen): boolean {
  const retries = retry === false ? NO_RETRY : { ...actual.retry, ...given(retry) };
  return isDeepStrictEqual({ ...actual, ...given(wanted), retry: retries }, actual);
}

function given(options: object): object {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

function line(value: object): string {
  return `\n  ${inspect(value, { depth: 3, breakLength: Infinity })}`;
}
