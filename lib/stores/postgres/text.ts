/** Longest key in bytes, with the prefix: an entry of a PostgreSQL index has at most 2,704 bytes. */
const LONGEST_KEY_BYTES = 2_600;

/** Half of a surrogate pair, which has no form in UTF-8. */
const LONE_SURROGATE = /\p{Surrogate}/gu;

/** The stored form of a key. Half of a surrogate pair is stored as U+FFFD, as in Redis. */
export function storedKey(keyPrefix: string, key: string): string {
  return `${keyPrefix}${key}`.replaceAll(LONE_SURROGATE, '\uFFFD');
}

/** The reason why one of the keys cannot be stored; `undefined` when all keys can. */
export function whyNotKeys(stored: readonly string[]): Error | undefined {
  for (const key of stored) {
    if (key.includes('\0')) return new Error('cannot store a key with a NUL character');
    const bytes = Buffer.byteLength(key);
    if (bytes > LONGEST_KEY_BYTES)
      return new Error(
        `cannot store a key of ${bytes} bytes: the limit is ${LONGEST_KEY_BYTES}, with its prefix; use a hash of the key`,
      );
  }
  return undefined;
}

/** The stored form of an owner's name. Only people read the name, so other characters may replace invalid ones. */
export function storedOwner(owner: string): string {
  return owner.replaceAll(LONE_SURROGATE, '\uFFFD').replaceAll('\0', '\uFFFD');
}
