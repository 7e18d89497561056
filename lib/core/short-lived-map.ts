/** So many entries come before the map is made anew, or twice as many as it has, if that is more. */
const LEAST_ENTRIES = 256;

/**
 * A map of what comes and goes all the time.
 *
 * Not a Map alone, for the same reason as `SlotList` is no Set: the old tables of a Map keep each other, and what was in
 * them, from the collection of young garbage. One that is made anew now and then ends that chain. Of 1.3 kB of each lock
 * that outlived it 10 bytes are left, and of 10.7 microseconds of client CPU about 7 (a loop of acquire and release, 64 in
 * flight on one node, `--trace-gc`).
 */
export class ShortLivedMap<Key, Value> {
  #entries = new Map<Key, Value>();
  #added = 0;

  has(key: Key): boolean {
    return this.#entries.has(key);
  }

  get(key: Key): Value | undefined {
    return this.#entries.get(key);
  }

  set(key: Key, value: Value): void {
    if (++this.#added > Math.max(LEAST_ENTRIES, 2 * this.#entries.size)) {
      this.#entries = new Map(this.#entries);
      this.#added = 1;
    }
    this.#entries.set(key, value);
  }

  delete(key: Key): void {
    this.#entries.delete(key);
  }
}
