import { badValue } from './checks.js';

/** The key of a leader is this and its name, so that leaders are locks like any other to the stores and to operators. */
export const LEADER_PREFIX = 'leader:';

/** What can be locked: one key, or several that make one lock. */
export type LockKey = string | readonly string[];

/**
 * The keys of a lock in the order in which every process names them, each once.
 *
 * @param what - how an error names the key
 * @throws TypeError when there is none, or one is not a usable name
 */
export function keysOf(key: LockKey, what = '`key`'): readonly string[] {
  if (isUsable(key)) return [key];
  const keys: readonly unknown[] = Array.isArray(key) ? key : [];
  const usable = keys.filter(isUsable);
  if (keys.length === 0 || usable.length < keys.length) {
    throw badValue(what, 'a string that is not empty and does not begin with "}", or an array of such', key);
  }
  return typeof key === 'string' ? [key] : [...new Set(usable)].toSorted();
}

/**
 * Like {@link keysOf}, where one key is all that makes sense.
 *
 * @throws TypeError when it is not a usable name
 */
export function oneKey(key: string): string {
  if (!isUsable(key)) throw badValue('`key`', 'a string that is not empty and does not begin with "}"', key);
  return key;
}

/** A key that begins with "}" would make an empty hash tag, and its parts could land in different slots (S19). */
function isUsable(key: unknown): key is string {
  return typeof key === 'string' && key !== '' && !key.startsWith('}');
}
