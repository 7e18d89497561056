import type { Lease } from '../../core/lease.js';
import { neutrally } from '../../core/neutral.js';
import { RELEASE_AGAIN_MS } from '../../core/pending-releases.js';
import { LONGEST_DEADLINE_MS } from './record.js';
import type { RedisNode } from './redis-node.js';

/** Milliseconds between two checks whether a deadline has passed. */
const CHECK_MS = 100;

/**
 * Milliseconds that a release waits after a deadline. The estimate of the node's clock may be ahead, because two clocks
 * drift apart, and the masters of a Cluster have clocks of their own.
 */
const MARGIN_MS = 100;

/** Largest number of leases. Beyond this number, the oldest are dropped, and end at the latest with their ttl. */
const MOST_LEASES = 10_000;

interface Unanswered {
  /** The time on the node's clock after which a release is sufficient. */
  due: number;
  /** The `performance.now()` at which the lease has expired, even if its acquisition arrived at the last moment. */
  readonly until: number;
}

/**
 * Releases leases once more after the deadline of an acquisition that got no answer (S27).
 *
 * The bytes of a lost connection may reach the node later than the release, which goes over the next connection. The
 * node then stores the lease although its release was confirmed. After the deadline the node refuses the acquisition
 * (S16), so a release that is sent then is the last word.
 */
export class SecondReleases {
  readonly #unanswered = new Map<Lease, Unanswered>();
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  /** @param release - sends the release of a lease; resolves to `false` if the node has not confirmed it */
  constructor(
    private readonly node: RedisNode,
    private readonly release: (lease: Lease) => Promise<boolean>,
  ) {}

  /** Records that the node may still store the lease until `deadline`, in milliseconds since 1970 on its clock. */
  mayComeLater(lease: Lease, deadline: number): void {
    const due = Math.max(deadline + MARGIN_MS, this.#unanswered.get(lease)?.due ?? 0);
    this.#add(lease, { due, until: performance.now() + LONGEST_DEADLINE_MS + MARGIN_MS + lease.ttl });
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#unanswered.clear();
  }

  #add(lease: Lease, unanswered: Unanswered): void {
    if (this.#isClosed) return;
    this.#unanswered.delete(lease);
    this.#unanswered.set(lease, unanswered);
    for (const oldest of this.#unanswered.keys()) {
      if (this.#unanswered.size <= MOST_LEASES) break;
      this.#unanswered.delete(oldest);
    }
    // One timer serves the leases of all callers (S30).
    this.#timer ??= neutrally(() => setTimeout(() => this.#check(), CHECK_MS).unref());
  }

  #check(): void {
    this.#timer = undefined;
    const { channel, probe } = this.node;
    // The clock is unknown until a new connection was checked. Nothing can be sent before that, either.
    const time = channel.canSend ? (probe.clock.now() ?? 0) : 0;
    for (const [lease, unanswered] of [...this.#unanswered]) {
      const isOver = performance.now() > unanswered.until;
      if (!isOver && time <= unanswered.due) continue;
      this.#unanswered.delete(lease);
      // The lease of a running attempt or a held lock will be released later, so after the deadline.
      if (!isOver && lease.ended) this.#send(lease, unanswered);
    }
    if (this.#unanswered.size > 0) this.#timer ??= setTimeout(() => this.#check(), CHECK_MS).unref();
  }

  #send(lease: Lease, { due, until }: Unanswered): void {
    void this.release(lease).then((isConfirmed) => {
      if (!isConfirmed) this.#add(lease, { due: due + RELEASE_AGAIN_MS, until });
    });
  }
}
