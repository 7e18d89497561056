import { isPromise } from 'node:util/types';
import { badValue } from './checks.js';
import { quoted } from './printable.js';

/**
 * The prefix of leader keys. For the stores and for operators, a leader is the holder of a lock whose key has this
 * prefix.
 */
export const LEADER_PREFIX = 'leader:';

/** Most bytes of a key in UTF-8: with a prefix of 48 bytes it fits into the index of every database. */
export const LONGEST_KEY_BYTES = 2_000;

/** A string of this many UTF-16 units or fewer cannot be longer than {@link LONGEST_KEY_BYTES}. */
const SURELY_SHORT = Math.floor(LONGEST_KEY_BYTES / 3);

/** Finds most keys without a missing value in one simple test, because every acquisition asks. */
const PERHAPS = /undefined|null|NaN|\[object |\$\{/;

/** The text of a value that cannot be meant, as a whole word at the end of a part of the key. */
const MISSING = /\$\{|\[object [A-Z]\w*\]|(?<![\p{L}\p{N}])(?:undefined|null|NaN)(?![\p{L}\p{N}_-])/u;

/** The key of a lock: one key, or several that make one lock. */
export type LockKey = string | readonly string[];

/**
 * Lists the keys of a lock without repetitions, in the same order in every process.
 *
 * @param what - the key's name in error messages
 * @throws TypeError when the list is empty, or when a key is not usable; RangeError when a key is longer than 2,000 bytes
 * in UTF-8
 */
export function keysOf(key: LockKey, what = '`key`'): readonly string[] {
  if (isUsable(key)) {
    checkLength(key, what);
    return [key];
  }
  const keys: readonly unknown[] = Array.isArray(key) ? key : [];
  const usable = keys.filter(isUsable);
  if (keys.length === 0 || usable.length < keys.length) {
    refusePromises([key, ...keys], what);
    throw badValue(
      what,
      'a string that is not empty and does not begin with "}", or an array of such strings',
      key,
    );
  }
  for (const each of usable) checkLength(each, what);
  return [...new Set(usable)].toSorted();
}

/**
 * Checks the key of an operation on exactly one key, as {@link keysOf} does.
 *
 * @throws TypeError when the key is not usable; RangeError when it is longer than 2,000 bytes in UTF-8
 */
export function oneKey(key: string): string {
  if (!isUsable(key)) throw badValue('`key`', 'a string that is not empty and does not begin with "}"', key);
  checkLength(key, '`key`');
  return key;
}

/** @throws TypeError when one of the values is a Promise, as an `async` key function returns it */
function refusePromises(values: readonly unknown[], what: string): void {
  const promises = values.filter(isPromise);
  if (promises.length === 0) return;
  // The caller gets the TypeError, so a later rejection must not end the process.
  for (const promise of promises) promise.catch(() => undefined);
  throw new TypeError(
    `Expected ${what} to be a string or an array of strings, got a Promise. A key function cannot be \`async\`: await what the ` +
      'key needs before the call, and pass it as an argument; or await it and lock with `LockService.withLock`',
  );
}

/** The number of bytes of a text in UTF-8. Half of a surrogate pair counts as U+FFFD, as which it is sent. */
export function byteLengthOf(text: string): number {
  return Buffer.byteLength(text);
}

/** Makes the error for a key that is longer than `most` bytes. */
export function tooLong(what: string, key: string, most: number, because = ''): RangeError {
  return new RangeError(
    `Expected ${what} to be at most ${most} bytes long in UTF-8${because}, got ${byteLengthOf(key)} bytes: ` +
      `${quoted([key])}. Lock a hash of a long value, such as its SHA-256`,
  );
}

function checkLength(key: string, what: string): void {
  if (key.length > SURELY_SHORT && byteLengthOf(key) > LONGEST_KEY_BYTES)
    throw tooLong(what, key, LONGEST_KEY_BYTES);
}

/**
 * All Redis keys of a lock have the key of the lock inside their hash tag. A key that begins with "}" would make the
 * tag empty, and the Redis keys of the lock could be in different hash slots (S19).
 */
function isUsable(key: unknown): key is string {
  return typeof key === 'string' && key !== '' && !key.startsWith('}');
}

/** A place in a key where a value is missing. */
export interface MissingValue {
  /** The text in place of the value, such as `undefined`. */
  readonly text: string;
  /** The key up to this text. */
  readonly before: string;
}

/**
 * Finds the text that JavaScript writes in place of a missing value: `order:undefined`, `order:NaN`, `order:[object
 * Object]`, or `order:${id}` in plain quotes. All calls without the value would lock this one key.
 */
export function missingValueIn(key: string): MissingValue | undefined {
  if (!PERHAPS.test(key)) return undefined;
  const found = MISSING.exec(key);
  return found ? { text: found[0], before: key.slice(0, found.index) } : undefined;
}

/**
 * Lists fixed keys as {@link keysOf} does.
 *
 * @throws the errors of {@link keysOf}; TypeError when a value is missing in a key
 */
export function fixedKeysOf(key: LockKey, what = '`key`'): readonly string[] {
  const keys = keysOf(key, what);
  for (const each of keys) {
    const missing = missingValueIn(each);
    if (!missing) continue;
    throw new TypeError(
      `Expected ${what} to be a key without a missing value, got ${quoted([each])}, which would be one lock for all. ` +
        (missing.text === '${'
          ? 'A template needs backticks, in a function of the arguments: (id) => `order:${id}`'
          : `Give the value in place of "${missing.text}"; if it comes with each call, give a function of the arguments: ` +
            '(id) => `order:${id}`'),
    );
  }
  return keys;
}
