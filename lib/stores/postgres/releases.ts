import type { Lease } from '../../core/lease.js';

/** More releases than this are not kept for a server that is away; the oldest end with their ttl. */
const MOST_PENDING = 10_000;

/** How long after a release that failed it is tried again, in milliseconds. */
const AGAIN_MS = 500;

/** How much later than by our clock a deadline may pass on the server's, in milliseconds. */
const MARGIN_MS = 500;

/**
 * Releases that came to nothing, to be sent again; and those of leases that a statement may store yet whose answer was lost:
 * they count from its deadline on (S6). The server goes on with a statement when the connection is cut, and locks the rows
 * before it looks at the deadline, so a release after that either finds what it stored, or it stores nothing.
 */
export class Releases {
  /** Since when, by `performance.now()`: a wall clock that is put forward must not end them. */
  readonly #pending = new Map<Lease, number>();
  /** Until when a release of the lease does not count. */
  readonly #doubtful = new Map<Lease, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly send: (lease: Lease) => void) {}

  /** The answer to the lease's acquisition was lost; the server does nothing for it any more after so many milliseconds. */
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

  /** Sends all that is pending. */
  retry(): void {
    for (const [lease, since] of this.#pending) {
      const isOver = performance.now() - since > lease.pendingFor;
      if (isOver) this.#forget(lease);
      // One that was asked for by nobody else yet belongs to an attempt that has not given up.
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
