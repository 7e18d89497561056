import type { SlotWish } from '../../core/ports.js';

/** The slots of a key, from its first permit until no permit is held. Each slot has its own sequence of tokens. */
export class MemorySlots {
  /** The largest requested number of permits. */
  #permits = 0;
  /** The last token of each slot. */
  readonly #rows: number[] = [];

  /** @param floor - the last token of the key; the tokens of all slots are larger */
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

/**
 * Returns the first free slot, counted from the requested slot; with `wish.exactly`, only the requested slot itself.
 */
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
