import type { Lease } from '../../core/lease.js';

/** The most pending releases of an unreachable server; the oldest leases beyond that end with their ttl. */
const MOST_PENDING = 10_000;

/** Milliseconds after which a failed release is sent again. */
const AGAIN_MS = 500;

/** Milliseconds by which a deadline may pass later on the server's clock than on ours. */
const MARGIN_MS = 500;

/**
 * Failed releases, to be sent again; and releases of leases whose acquisition has no answer and may still be stored,
 * which count only from its deadline on (S6). The server continues with a statement when the connection is lost, and
 * locks the rows before it checks the deadline. A release after that either finds the stored lease, or the statement
 * stores nothing.
 */
export class Releases {
  /** By the `performance.now()` of the failure: a wall clock that is set forward must not end them. */
  readonly #pending = new Map<Lease, number>();
  /** The time until which a release of the lease does not count. */
  readonly #doubtful = new Map<Lease, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly send: (lease: Lease) => void) {}

  /**
   * Records that the answer to the lease's acquisition was lost, and that the server does nothing for it after
   * `deadline` milliseconds.
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
      // A lease that has not ended belongs to an attempt that is still under way.
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
