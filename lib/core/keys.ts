import { badValue } from './checks.js';

/**
 * The prefix of leader keys. For the stores and for operators, a leader is the holder of a lock whose key has this
 * prefix.
 */
export const LEADER_PREFIX = 'leader:';

/** The key of a lock: one key, or several that make one lock. */
export type LockKey = string | readonly string[];

/**
 * Lists the keys of a lock without repetitions, in the same order in every process.
 *
 * @param what - the key's name in error messages
 * @throws TypeError when the list is empty, or when a key is not usable
 */
export function keysOf(key: LockKey, what = '`key`'): readonly string[] {
  if (isUsable(key)) return [key];
  const keys: readonly unknown[] = Array.isArray(key) ? key : [];
  const usable = keys.filter(isUsable);
  if (keys.length === 0 || usable.length < keys.length) {
    throw badValue(
      what,
      'a string that is not empty and does not begin with "}", or an array of such strings',
      key,
    );
  }
  return typeof key === 'string' ? [key] : [...new Set(usable)].toSorted();
}

/**
 * Checks the key of an operation on exactly one key, as {@link keysOf} does.
 *
 * @throws TypeError when the key is not usable
 */
export function oneKey(key: string): string {
  if (!isUsable(key)) throw badValue('`key`', 'a string that is not empty and does not begin with "}"', key);
  return key;
}

/**
 * All Redis keys of a lock have the key of the lock inside their hash tag. A key that begins with "}" would make the
 * tag empty, and the Redis keys of the lock could be in different hash slots (S19).
 */
function isUsable(key: unknown): key is string {
  return typeof key === 'string' && key !== '' && !key.startsWith('}');
}
