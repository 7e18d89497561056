import type { Lease } from './lease.js';
import { neutrally } from './neutral.js';

/** Milliseconds after which a failed release is sent again. */
export const RELEASE_AGAIN_MS = 500;

/**
 * Largest number of pending releases while a server is unreachable. Beyond this number, the oldest releases are
 * dropped, and their leases end when their ttl has passed.
 */
export const MOST_PENDING_RELEASES = 10_000;

/** The releases that a store has to send again, each with what the store knows of it, and one timer for all of them. */
export class PendingReleases<Details> extends Map<Lease, Details> {
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  /**
   * @param sendAgain - sends the pending releases, {@link RELEASE_AGAIN_MS} after {@link later}
   * @param most - the largest number of releases; beyond it, the oldest are dropped
   */
  constructor(
    private readonly sendAgain: () => void,
    private readonly most = Infinity,
  ) {
    super();
  }

  override set(lease: Lease, details: Details): this {
    super.set(lease, details);
    for (const oldest of this.keys()) {
      if (this.size <= this.most) break;
      this.delete(oldest);
    }
    return this;
  }

  /** Plans to send the pending releases again. */
  later(): void {
    if (this.#isClosed || this.size === 0) return;
    // The timer serves the leases of all callers (S30).
    this.#timer ??= neutrally(() =>
      setTimeout(() => {
        this.#timer = undefined;
        this.sendAgain();
      }, RELEASE_AGAIN_MS).unref(),
    );
  }

  /** Drops all releases, and sends none again. */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.clear();
  }
}
