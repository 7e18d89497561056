import { badNumber, badOption } from '../core/checks.js';
import { keysOf } from '../core/keys.js';
import type { LockHandle } from '../core/lock-handle.js';
import type { LockMode } from '../core/lock-mode.js';

/**
 * The keys of a lock and its fencing token: a `LockHandle`, or the same fields from a message of a queue or from an
 * HTTP header.
 *
 * Tokens are ordered only among locks of the same key on the same nodes. So always protect a resource with the same
 * key. Two module instances with different nodes must not use the same key in one register.
 */
export interface TokenHolder extends Pick<LockHandle, 'keys' | 'fencingToken'> {
  /**
   * Mode of the lock. The holder of a shared lock only reads, so its token is compared only with the tokens of writers.
   * @defaultValue 'exclusive'
   */
  readonly mode?: LockMode;

  /** The slot of each key with `permits`, in the order of `keys`. Each slot has its own tokens. */
  readonly slots?: readonly number[] | undefined;
}

/** A {@link TokenHolder} with valid values for all properties. */
export interface CheckedHolder extends Required<TokenHolder> {
  /** The slot of each key with permits; otherwise an empty list. */
  readonly slots: readonly number[];
}

/**
 * @returns the holder with sorted keys; the order is the same in every process
 * @throws TypeError or RangeError when `lock` has no usable keys, token, mode or slots
 */
export function checkedHolder(lock: unknown): CheckedHolder {
  if (typeof lock !== 'object' || lock === null) {
    throw badOption('lock', 'a lock handle, or an object with its `keys` and `fencingToken`', lock);
  }
  const { keys, fencingToken, mode = 'exclusive', slots } = lock as TokenHolder;
  if (!Number.isSafeInteger(fencingToken) || fencingToken < 0) {
    throw badNumber('fencingToken', 'a whole number from 0 to 2^53 - 1', fencingToken);
  }
  const sorted = keysOf(keys);
  switch (mode) {
    case 'permits':
      return { keys: sorted, fencingToken, mode, slots: slotsOf(keys, sorted, slots) };
    case 'shared':
    case 'exclusive':
      return { keys: sorted, fencingToken, mode, slots: [] };
    default:
      throw badOption('mode', "'exclusive', 'shared' or 'permits'", mode);
  }
}

/** Returns the slots in the order of the sorted keys. */
function slotsOf(keys: readonly string[], sorted: readonly string[], slots: unknown): number[] {
  const given: readonly unknown[] = Array.isArray(slots) ? slots : [];
  const isUsable =
    given.length === keys.length && given.every((slot) => Number.isInteger(slot) && Number(slot) >= 0);
  if (!isUsable)
    throw badOption('slots', "an array with a whole number for each key, because `mode` is 'permits'", slots);
  return sorted.map((key) => Number(given[keys.indexOf(key)]));
}
