/** An entry of a PostgreSQL index has at most 2,704 bytes. */
const LONGEST_KEY_BYTES = 2_600;

/** Half of a surrogate pair, which has no form in UTF-8. */
const LONE_SURROGATE = /\p{Surrogate}/gu;

/** The stored form of a key: as in Redis, half of a surrogate pair is stored as U+FFFD. */
export function storedKey(keyPrefix: string, key: string): string {
  return `${keyPrefix}${key}`.replaceAll(LONE_SURROGATE, '\uFFFD');
}

/** The reason why one of these cannot be a key here; `undefined` when all can. */
export function whyNotKeys(stored: readonly string[]): Error | undefined {
  for (const key of stored) {
    if (key.includes('\0')) return new Error('cannot store a key with a NUL character');
    const bytes = Buffer.byteLength(key);
    if (bytes > LONGEST_KEY_BYTES)
      return new Error(
        `cannot store a key of ${bytes} bytes: ${LONGEST_KEY_BYTES} are the most, with its prefix; use a hash of it`,
      );
  }
  return undefined;
}

/** The owner's name is for people. */
export function storedOwner(owner: string): string {
  return owner.replaceAll(LONE_SURROGATE, '\uFFFD').replaceAll('\0', '\uFFFD');
}
