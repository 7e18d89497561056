/** With more keys than this those are forgotten that were asked for first. */
const MOST = 1_000;

/**
 * Which slot of a key with permits is most likely free: the one after the last that this process asked for, until a smaller one
 * is freed. A refusal shows all holders of the key, so that 1,000 which each begin at slot 0 read half a million.
 */
export class SlotHints {
  readonly #next = new Map<string, number>();

  /** The slot to ask for; the next call gets another one. */
  take(key: string, permits: number): number {
    const next = this.#next.get(key) ?? 0;
    const slot = next < permits ? next : 0;
    this.#next.set(key, slot + 1);
    for (const oldest of this.#next.keys()) {
      if (this.#next.size <= MOST) break;
      this.#next.delete(oldest);
    }
    return slot;
  }

  free(keys: readonly string[], slots: readonly number[]): void {
    for (const [index, key] of keys.entries()) {
      const next = this.#next.get(key);
      const slot = slots[index];
      if (next !== undefined && slot !== undefined && slot < next) this.#next.set(key, slot);
    }
  }
}
