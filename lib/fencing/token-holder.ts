import { badNumber, badOption } from '../core/checks.js';
import { keysOf } from '../core/keys.js';
import type { LockHandle } from '../core/lock-handle.js';
import type { LockMode } from '../core/lock-mode.js';

/**
 * Keys of a lock, and its fencing token: a `LockHandle`, or the fields of one that came through a queue or an HTTP
 * header.
 *
 * Tokens are ordered among the locks of one key, and of one set of nodes. So the key that guards a resource must
 * always be the same, and two module instances with nodes of their own must not use the same key in one register.
 */
export interface TokenHolder extends Pick<LockHandle, 'keys' | 'fencingToken'> {
  /**
   * Mode of the lock. A shared lock only reads, so its token is compared only with the tokens of writers.
   * @defaultValue 'exclusive'
   */
  readonly mode?: LockMode;

  /** With `permits`: the slot of each key, in the order of `keys`. Each slot has tokens of its own. */
  readonly slots?: readonly number[] | undefined;
}

/** A {@link TokenHolder} that is complete. */
export interface CheckedHolder extends Required<TokenHolder> {
  /** Slot of each key with permits; otherwise none. */
  readonly slots: readonly number[];
}

/**
 * @returns the keys in the order in which every process names them
 * @throws TypeError or RangeError when it has no usable keys, token, mode or slots
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

/** The slot of each of the sorted keys. */
function slotsOf(keys: readonly string[], sorted: readonly string[], slots: unknown): number[] {
  const given: readonly unknown[] = Array.isArray(slots) ? slots : [];
  const isUsable =
    given.length === keys.length && given.every((slot) => Number.isInteger(slot) && Number(slot) >= 0);
  if (!isUsable)
    throw badOption('slots', "a whole number for each of the keys with `mode: 'permits'`", slots);
  return sorted.map((key) => Number(given[keys.indexOf(key)]));
}
