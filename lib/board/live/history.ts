import type { HistoryEntry } from './messages.js';

/** Milliseconds for which an entry is shown after its end. */
const MEMORY_MS = 10 * 60_000;

/**
 * Largest number of entries of one key, so that a key with many successive holders does not remove the entries of other
 * keys.
 */
const MOST_OF_KEY = 200;

/** Largest number of entries of all keys; a few megabytes. */
const MOST = 20_000;

/** When there are more than {@link MOST} entries, the oldest are dropped until about this number is left. */
const LEAST = 16_000;

/** The latest events of locks. Their age and their number are limited. */
export class History {
  /** The entries by key; the key with the latest entry is at the end. */
  readonly #entries = new Map<string, HistoryEntry[]>();
  #size = 0;

  add<Entry extends HistoryEntry>(entry: Entry): Entry {
    const { key } = entry;
    const before = this.#entries.get(key);
    const entries = before ?? [];
    entries.push(entry);
    if (entries.length > MOST_OF_KEY) entries.shift();
    else this.#size++;
    if (before) this.#entries.delete(key);
    this.#entries.set(key, entries);
    if (this.#size > MOST) this.#forget();
    return entry;
  }

  clear(): void {
    this.#entries.clear();
    this.#size = 0;
  }

  /**
   * Drops the keys whose latest entry is oldest. Drops many at a time, because each drop makes the next search slower:
   * to find the first key of a Map, V8 skips all deleted entries before it. With one drop for each new key, an addition
   * to 20,000 keys took ten times as long (58 us instead of 6 us on Node 20).
   */
  #forget(): void {
    for (const [oldest, { length }] of this.#entries) {
      if (this.#size <= LEAST) break;
      this.#entries.delete(oldest);
      this.#size -= length;
    }
  }

  of(key: string): readonly HistoryEntry[] {
    return recent(this.#entries.get(key) ?? []);
  }

  /**
   * Returns the latest entries of the keys that begin with `prefix`. The entries of each key are in the order of their
   * addition.
   */
  beginningWith(prefix: string, most: number): readonly HistoryEntry[] {
    const found: HistoryEntry[] = [];
    for (const key of [...this.#entries.keys()].toReversed()) {
      if (found.length >= most) break;
      if (key.startsWith(prefix)) found.push(...this.of(key));
    }
    return found.slice(0, most);
  }
}

function recent(entries: readonly HistoryEntry[]): readonly HistoryEntry[] {
  const least = Date.now() - MEMORY_MS;
  return entries.filter((entry) => (('at' in entry ? entry.at : entry.to) ?? Infinity) >= least);
}
