import { now } from '../../core/clock.js';
import { canHoldTogether, type LockMode } from '../../core/lock-mode.js';
import type { QueuePosition } from '../../core/ports.js';
import { MARK_MS } from '../../core/store-times.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { type Life, remainingOf } from './memory-life.js';

interface Mark extends Life {
  readonly waiter: WaiterId;
  /** The arrival of the waiter. */
  readonly came: number;
}

/**
 * The marks of `holdBack`. A waiter sets a mark while the key is held in another mode that admits several holders. The
 * mark excludes later callers in such modes (S22).
 */
export class MemoryMarks {
  readonly #marks = new Map<string, Mark>();

  /**
   * Sets the waiter's mark for the first of its keys that is held, and renews its other marks. A key with the mark of an
   * earlier waiter keeps that mark: the result is then `false`.
   */
  set(waiter: WaiterId, waited: number, isHeld: (key: string) => boolean): boolean {
    let stands = true;
    const came = performance.now() - waited;
    const first = waiter.keys.length === 1 ? waiter.keys[0] : waiter.keys.find(isHeld);
    for (const key of waiter.keys) {
      const mark = this.#standing(key);
      if (mark?.waiter !== waiter && key !== first) continue;
      if (mark && mark.waiter !== waiter && mark.came <= came) stands = false;
      else this.#marks.set(key, { waiter, came, began: now(), ttl: MARK_MS });
    }
    return stands;
  }

  remove(waiter: WaiterId): void {
    for (const key of waiter.keys) if (this.#marks.get(key)?.waiter === waiter) this.#marks.delete(key);
  }

  /** The waiter whose mark keeps this caller out, with the milliseconds until the mark expires. */
  against(
    key: string,
    mode: LockMode,
    position: QueuePosition | undefined,
  ): { readonly waiter: WaiterId; readonly remaining: number } | undefined {
    // A mark does not exclude exclusive locks, because they cannot starve a waiter: between two of them the key is free
    // for a moment, and the first waiter of the queue can get it. Holders that share a key leave no such moment.
    const mark = mode === 'exclusive' ? undefined : this.#standing(key);
    if (!mark || canHoldTogether(mark.waiter.mode, mode)) return undefined;
    if (position && performance.now() - position.waited < mark.came) return undefined;
    return { waiter: mark.waiter, remaining: remainingOf(mark) };
  }

  sweep(): void {
    for (const key of this.#marks.keys()) if (!this.#standing(key)) this.#marks.delete(key);
  }

  clear(): void {
    this.#marks.clear();
  }

  #standing(key: string): Mark | undefined {
    const mark = this.#marks.get(key);
    return mark && remainingOf(mark) > 0 ? mark : undefined;
  }
}
