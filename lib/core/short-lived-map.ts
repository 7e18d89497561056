/** The map is replaced after this many insertions, or after twice its size if that is more. */
const LEAST_ENTRIES = 256;

/**
 * A map for entries that live for a short time.
 *
 * A plain Map has the same fault as a Set (see `SlotList`): its old tables keep each other, and their former entries,
 * from the collection of young garbage. Replacing the map now and then ends that chain. Of 1.3 kB for each lock that
 * outlived it 10 bytes are left, and of 10.7 microseconds of client CPU about 7 (a loop of acquire and release, 64 in
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
