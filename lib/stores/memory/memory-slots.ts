import type { SlotWish } from '../../core/ports.js';

/** The slots of a key from when the first permit of it is held until none is. Each has a row of tokens of its own. */
export class MemorySlots {
  /** The largest number of permits that was asked for. */
  #permits = 0;
  /** The last token of each slot. */
  readonly #rows: number[] = [];

  /** @param floor - the last token of the key: those of all slots are above it */
  constructor(private readonly floor: number) {}

  get permits(): number {
    return this.#permits;
  }

  take(slot: number, token: number, permits: number): void {
    this.#rows[slot] = token;
    this.#permits = Math.max(this.#permits, permits);
  }

  lastToken(slot: number): number {
    return this.#rows[slot] ?? this.floor;
  }
}

/** The next slot from the wished one on that is not taken, or that one alone. */
export function freeSlot(
  taken: ReadonlySet<number | undefined>,
  permits: number,
  wish: SlotWish | undefined,
  index: number,
): number | undefined {
  const from = wish?.slots[index] ?? 0;
  if (wish?.exactly) return taken.has(from) ? undefined : from;
  for (let step = 0; step < permits; step++) {
    const slot = (from + step) % permits;
    if (!taken.has(slot)) return slot;
  }
  return undefined;
}
