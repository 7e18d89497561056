import { badNumber, badOption } from '../core/checks.js';
import { keysOf } from '../core/keys.js';
import type { LockHandle } from '../core/lock-handle.js';

/**
 * What was locked, and the token that was given for it: a `LockHandle`, or what is left of one after a journey
 * through a queue or an HTTP header.
 *
 * Tokens are ordered among the locks of one key, and of one set of nodes. So the key that guards a resource must
 * always be the same, and two module instances with nodes of their own must not use the same key in one register.
 */
export type TokenHolder = Pick<LockHandle, 'keys' | 'fencingToken'>;

/**
 * @returns the keys in the order in which every process names them
 * @throws TypeError or RangeError when it has no usable keys or token
 */
export function checkedHolder(lock: unknown): TokenHolder {
  if (typeof lock !== 'object' || lock === null) {
    throw badOption('lock', 'a lock handle, or an object with its `keys` and `fencingToken`', lock);
  }
  const { keys, fencingToken } = lock as TokenHolder;
  if (!Number.isSafeInteger(fencingToken) || fencingToken < 0) {
    throw badNumber('fencingToken', 'a whole number from 0 to 2^53 - 1', fencingToken);
  }
  return { keys: keysOf(keys), fencingToken };
}
