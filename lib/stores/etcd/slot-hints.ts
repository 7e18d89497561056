/** Largest number of keys with a hint. With more keys, the oldest hints are dropped. */
const MOST = 1_000;

/**
 * Milliseconds between two requests for the lowest slot; all other requests ask for the slot that is most likely free.
 * The requests for the lowest slot find slots of expired locks, and slots that other processes have released. More
 * frequent requests for that slot are not needed, because no etcd lease is shorter than a second.
 */
const LOOK_EVERY_MS = 500;

interface Hint {
  next: number;
  /** Time of the last request for the lowest slot, by the monotonic clock. */
  looked: number;
  /** `true` while the request for the lowest slot has no answer. */
  isLooking: boolean;
}

/**
 * Remembers for each key the slot that is most likely free. A refusal lists all holders of the key: without hints,
 * 1,000 callers that all begin at slot 0 would read half a million holders.
 */
export class SlotHints {
  readonly #hints = new Map<string, Hint>();

  /** Returns the slot that an acquisition requests first; the next acquisition gets another slot. */
  take(key: string, permits: number): number {
    const now = performance.now();
    const hint = this.#hints.get(key);
    if (!hint) {
      this.#hints.set(key, { next: 1, looked: now, isLooking: false });
      for (const oldest of this.#hints.keys()) {
        if (this.#hints.size <= MOST) break;
        this.#hints.delete(oldest);
      }
      return 0;
    }
    if (now - hint.looked > LOOK_EVERY_MS) {
      hint.looked = now;
      hint.isLooking = true;
      // Only this request asks for the lowest slot. If all requests asked for it, all except one would be refused.
      return 0;
    }
    const slot = hint.next < permits ? hint.next : 0;
    hint.next = slot + 1;
    return slot;
  }

  /**
   * Records that a request for the slot `asked` got the slot `slot`.
   *
   * @param isLowest - `true` if no lower slot was free
   */
  got(key: string, asked: number, slot: number, isLowest: boolean): void {
    const hint = this.#hints.get(key);
    if (!hint) return;
    if (asked === 0 && hint.isLooking) {
      hint.isLooking = false;
      if (isLowest) hint.next = slot + 1;
    } else if (slot !== asked && slot >= hint.next) {
      // Another process had taken the slot `asked`. The next request asks for the slot after the granted slot.
      hint.next = slot + 1;
    }
  }

  free(keys: readonly string[], slots: readonly number[]): void {
    for (const [index, key] of keys.entries()) {
      const hint = this.#hints.get(key);
      const slot = slots[index];
      if (hint && slot !== undefined && slot < hint.next) hint.next = slot;
    }
  }
}
