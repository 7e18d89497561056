import { elapsedSince, type Instant, now } from '../../core/clock.js';
import type { KeyHolder } from '../../core/ports.js';

/** The readers of a lock, as they come in pages: each once, as it was told last. */
export class ReaderPages {
  readonly #found = new Map<string, { readonly holder: KeyHolder; readonly at: Instant }>();

  add(page: readonly KeyHolder[]): void {
    const at = now();
    for (const holder of page) this.#found.set(holder.id, { holder, at });
  }

  /** First to end first. One that was to end meanwhile may have been renewed: it is not left out. */
  get holders(): KeyHolder[] {
    return [...this.#found.values()]
      .map(({ holder, at }) => ({ ...holder, remaining: Math.max(0, holder.remaining - elapsedSince(at)) }))
      .toSorted((some, other) => some.remaining - other.remaining);
  }
}
