import type { Lease } from '../../core/lease.js';

/**
 * Largest number of pending releases while the server is unreachable. Beyond this number, the oldest releases are
 * dropped, and their leases end when their ttl has passed.
 */
const MOST_PENDING = 10_000;

/** Milliseconds after which a failed release is sent again. */
const AGAIN_MS = 500;

/** A deadline may pass up to this many milliseconds later on the server's clock than on the clock of this process. */
const MARGIN_MS = 500;

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
  /**
   * The pending releases, each with the time at which it became pending. The times are from `performance.now()`: a wall
   * clock that is set forward would make the releases seem too old, and they would be dropped.
   */
  readonly #pending = new Map<Lease, number>();
  /** The leases with an unanswered acquisition, each with the time until which a release is not sufficient. */
  readonly #doubtful = new Map<Lease, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly send: (lease: Lease) => void) {}

  /**
   * Records that the answer to the lease's acquisition was lost. The server may still store the lease during the next
   * `deadline` milliseconds, and not later.
   */
  mayComeLater(lease: Lease, deadline: number): void {
    this.#doubtful.set(lease, performance.now() + Math.max(0, deadline) + MARGIN_MS);
    this.#keep(lease);
  }

  failed(lease: Lease): void {
    this.#keep(lease);
  }

  released(lease: Lease): void {
    if ((this.#doubtful.get(lease) ?? -Infinity) > performance.now()) return;
    this.#doubtful.delete(lease);
    this.#pending.delete(lease);
  }

  /** Sends all pending releases. */
  retry(): void {
    for (const [lease, since] of this.#pending) {
      const isOver = performance.now() - since > lease.pendingFor;
      if (isOver) this.#forget(lease);
      // A lease that has not ended belongs to an attempt under way, which needs no release.
      else if (lease.ended) this.send(lease);
    }
    if (this.#pending.size > 0) this.#later();
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#pending.clear();
    this.#doubtful.clear();
  }

  #keep(lease: Lease): void {
    if (!this.#pending.has(lease)) this.#pending.set(lease, performance.now());
    for (const oldest of this.#pending.keys()) {
      if (this.#pending.size <= MOST_PENDING) break;
      this.#forget(oldest);
    }
    this.#later();
  }

  #forget(lease: Lease): void {
    this.#pending.delete(lease);
    this.#doubtful.delete(lease);
  }

  #later(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.retry();
    }, AGAIN_MS).unref();
  }
}
