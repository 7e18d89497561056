/** The stored form of a key. Half of a surrogate pair is stored as U+FFFD, as in Redis. */
export function storedKey(keyPrefix: string, key: string): string {
  return `${keyPrefix}${key}`.toWellFormed();
}

/** The stored form of an owner's name. Only people read the name, so other characters may replace invalid ones. */
export function storedOwner(owner: string): string {
  return owner.toWellFormed().replaceAll('\0', '\uFFFD');
}
