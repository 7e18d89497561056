import type { Lease } from '../../core/lease.js';
import { MOST_PENDING_RELEASES, PendingReleases } from '../../core/pending-releases.js';

/** A deadline may pass up to this many milliseconds later on the server's clock than on the clock of this process. */
const MARGIN_MS = 500;

interface Pending {
  /**
   * The time from which the lease can be stored for its ttl at most. It is from `performance.now()`: a wall clock that is
   * set forward would make the release seem too old, and it would be dropped.
   */
  readonly since: number;
  /** The time until which a release is not sufficient, because an acquisition got no answer. */
  readonly doubtfulUntil: number;
  /** `true` after a release was confirmed. */
  isSecond: boolean;
}

/**
 * Keeps two kinds of releases that must be sent, or sent again: releases that failed, and releases of leases that may
 * still be stored, because their acquisition got no answer.
 *
 * A release of the second kind is sufficient only after the deadline of the acquisition (S6). Before that, the server
 * may still store the lease, because it continues with the statement when the connection is lost. The statement locks
 * the rows before it checks the deadline. So after the deadline, either the release finds the stored lease, or the
 * statement stores nothing.
 */
export class Releases {
  readonly #pending = new PendingReleases<Pending>(() => this.retry(), MOST_PENDING_RELEASES);

  /** @param send - sends a release; with `isSecond` an earlier release of the lease has been confirmed */
  constructor(private readonly send: (lease: Lease, isSecond: boolean) => void) {}

  /**
   * Records that the answer to the lease's acquisition was lost. The server may still store the lease during the next
   * `deadline` milliseconds, and not later.
   */
  mayComeLater(lease: Lease, deadline: number): void {
    const enough = performance.now() + Math.max(0, deadline) + MARGIN_MS;
    const isSecond = this.#pending.get(lease)?.isSecond ?? false;
    this.#pending.delete(lease);
    this.#pending.set(lease, { since: enough, doubtfulUntil: enough, isSecond }).later();
  }

  failed(lease: Lease): void {
    if (!this.#pending.has(lease))
      this.#pending.set(lease, { since: performance.now(), doubtfulUntil: -Infinity, isSecond: false });
    this.#pending.later();
  }

  released(lease: Lease): void {
    const pending = this.#pending.get(lease);
    if (pending && pending.doubtfulUntil > performance.now()) pending.isSecond = true;
    else this.#pending.delete(lease);
  }

  /** Sends all pending releases. */
  retry(): void {
    for (const [lease, { since, isSecond }] of this.#pending) {
      const isOver = performance.now() - since > lease.pendingFor;
      if (isOver) this.#pending.delete(lease);
      // A lease that has not ended belongs to an attempt under way, which needs no release.
      else if (lease.ended) this.send(lease, isSecond);
    }
    this.#pending.later();
  }

  close(): void {
    this.#pending.close();
  }
}
