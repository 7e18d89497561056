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

interface Pending {
  /**
   * The time from which the lease can be stored for its ttl at most. It is from `performance.now()`: a wall clock that is
   * set forward would make the release seem too old, and it would be dropped.
   */
  readonly since: number;
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
  readonly #pending = new Map<Lease, Pending>();
  /** The leases with an unanswered acquisition, each with the time until which a release is not sufficient. */
  readonly #doubtful = new Map<Lease, number>();
  #timer: NodeJS.Timeout | undefined;

  /** @param send - sends a release; with `isSecond` an earlier release of the lease has been confirmed */
  constructor(private readonly send: (lease: Lease, isSecond: boolean) => void) {}

  /**
   * Records that the answer to the lease's acquisition was lost. The server may still store the lease during the next
   * `deadline` milliseconds, and not later.
   */
  mayComeLater(lease: Lease, deadline: number): void {
    const enough = performance.now() + Math.max(0, deadline) + MARGIN_MS;
    this.#doubtful.set(lease, enough);
    const isSecond = this.#pending.get(lease)?.isSecond ?? false;
    this.#pending.delete(lease);
    this.#keep(lease, { since: enough, isSecond });
  }

  failed(lease: Lease): void {
    this.#keep(lease, { since: performance.now(), isSecond: false });
  }

  released(lease: Lease): void {
    const pending = this.#pending.get(lease);
    if (pending && (this.#doubtful.get(lease) ?? -Infinity) > performance.now()) {
      pending.isSecond = true;
      return;
    }
    this.#forget(lease);
  }

  /** Sends all pending releases. */
  retry(): void {
    for (const [lease, { since, isSecond }] of this.#pending) {
      const isOver = performance.now() - since > lease.pendingFor;
      if (isOver) this.#forget(lease);
      // A lease that has not ended belongs to an attempt under way, which needs no release.
      else if (lease.ended) this.send(lease, isSecond);
    }
    if (this.#pending.size > 0) this.#later();
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#pending.clear();
    this.#doubtful.clear();
  }

  #keep(lease: Lease, pending: Pending): void {
    if (!this.#pending.has(lease)) this.#pending.set(lease, pending);
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
