/** Milliseconds for which a key is remembered. */
const MEMORY_MS = 1_000;

/** With fewer keys than this, the removal of old entries is not worth its cost. */
const LEAST_SWEPT = 1_000;

/** Keys that were noted less than a second ago. */
export class RecentKeys {
  readonly #seen = new Map<string, number>();
  #sweepAt = LEAST_SWEPT;

  note(keys: readonly string[]): void {
    if (this.#seen.size >= this.#sweepAt) this.#sweep();
    for (const key of keys) this.#seen.set(key, performance.now());
  }

  any(keys: readonly string[]): boolean {
    if (this.#seen.size === 0) return false;
    const least = performance.now() - MEMORY_MS;
    return keys.some((key) => (this.#seen.get(key) ?? -Infinity) >= least);
  }

  #sweep(): void {
    const least = performance.now() - MEMORY_MS;
    for (const [key, at] of this.#seen) if (at < least) this.#seen.delete(key);
    this.#sweepAt = Math.max(LEAST_SWEPT, 2 * this.#seen.size);
  }
}
