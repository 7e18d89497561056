import type { HistoryEntry } from './messages.js';

/** Milliseconds for which an entry is remembered. */
const MEMORY_MS = 10 * 60_000;

/** Most entries of one key: a key with many holders in turn does not push out the others. */
const MOST_OF_KEY = 200;

/** Most entries of all keys; a few megabytes. */
const MOST = 20_000;

/** The number of entries that are left, about, when there were more than {@link MOST}. */
const LEAST = 16_000;

/** The latest events of locks, bounded in time and number. */
export class History {
  /** By key; the key that was noted last is at the end. */
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
   * Drops the keys without a new entry for longest, many at a time. To find the first key of a Map, the engine skips all
   * that were deleted before it. With one key dropped for each new one, an addition to 20,000 keys took ten times as long
   * (58 and 6 us on Node 20).
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

  /** Returns the latest entries of the keys that begin with `prefix`, those of each key in the order of their addition. */
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
