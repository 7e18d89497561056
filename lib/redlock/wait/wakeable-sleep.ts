import { LONGEST_TIMER_MS } from '../../core/checks.js';
import { type AbortWatch, onAbort } from '../../core/on-abort.js';

/**
 * A wait that other code can shorten, even before it begins. The wait keeps the process alive, because a caller awaits
 * it.
 */
export class WakeableSleep {
  /** The latest end, by the monotonic clock. A limit that was set before the wait began counts, too. */
  #end = Infinity;
  #timer: NodeJS.Timeout | undefined;
  #resolve: (() => void) | undefined;

  /**
   * Resolves after `delay` milliseconds or earlier when the wait is shortened. Rejects with the reason of the first
   * signal that aborts before that. Leaves no listener and no timer behind.
   */
  async for(delay: number, signals: readonly AbortSignal[]): Promise<void> {
    for (const signal of signals) signal.throwIfAborted();
    let watches: readonly AbortWatch[] = [];
    try {
      await new Promise<void>((resolve, reject) => {
        this.#resolve = resolve;
        const target = { aborted: ({ reason }: AbortSignal): void => reject(reason as Error) };
        watches = signals.map((signal) => onAbort(signal, target));
        this.#end = Math.min(this.#end, performance.now() + delay);
        this.#setTimer();
      });
    } finally {
      for (const watch of watches) watch.stop();
      clearTimeout(this.#timer);
      this.#resolve = undefined;
      this.#end = Infinity;
    }
  }

  /** `true` while a call of {@link for} has not ended. */
  get isOngoing(): boolean {
    return this.#resolve !== undefined;
  }

  /** Shortens the wait: it ends `delay` milliseconds from now at the latest. */
  cutTo(delay: number): void {
    const end = performance.now() + delay;
    if (end >= this.#end) return;
    this.#end = end;
    if (this.#resolve) this.#setTimer();
  }

  /** Discards the limits that were set before the wait begins. */
  forget(): void {
    this.#end = Infinity;
  }

  #setTimer(): void {
    clearTimeout(this.#timer);
    const left = this.#end - performance.now();
    if (left <= 0) this.#resolve?.();
    else this.#timer = setTimeout(() => this.#setTimer(), Math.min(left, LONGEST_TIMER_MS));
  }
}
