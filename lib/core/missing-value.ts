import { type LockKey, keysOf } from './keys.js';
import { quoted } from './printable.js';

/** Finds most keys without a missing value in one simple test, because every acquisition asks. */
const PERHAPS = /undefined|null|NaN|\[object |\$\{/;

/** The text of a value that cannot be meant, as a whole word at the end of a part of the key. */
const MISSING = /\$\{|\[object [A-Z]\w*\]|(?<![\p{L}\p{N}])(?:undefined|null|NaN)(?![\p{L}\p{N}_-])/u;

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
