import { elapsedSince, type Instant, now } from '../../core/clock.js';
import type { KeyHolder } from '../../core/ports.js';

/** Collects the readers of a lock from several answers of the server. Each reader appears once, in its latest state. */
export class ReaderPages {
  readonly #found = new Map<string, { readonly holder: KeyHolder; readonly at: Instant }>();

  add(page: readonly KeyHolder[]): void {
    const at = now();
    for (const holder of page) this.#found.set(holder.id, { holder, at });
  }

  /**
   * The readers, sorted by the end of their leases, the earliest end first. The list also has the readers whose end has
   * passed, because their leases may have been extended after the page was read.
   */
  get holders(): KeyHolder[] {
    return [...this.#found.values()]
      .map(({ holder, at }) => ({ ...holder, remaining: Math.max(0, holder.remaining - elapsedSince(at)) }))
      .toSorted((some, other) => some.remaining - other.remaining);
  }
}
