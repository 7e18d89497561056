import type { AcquireReply, AcquireRequest, ReleaseRequest, Store } from '../core/ports.js';
import type { Lease } from '../core/lease.js';

/** Who asked, and takes the answer of each node. */
interface Asker<Reply> {
  answered(node: number, reply: Reply | Error): void;
}

type Release = ReleaseRequest & Asker<undefined>;
type Attempt = AcquireRequest & Asker<AcquireReply>;
type Extension = Asker<boolean> & { readonly lease: Lease; readonly ttl: number };

/**
 * Collects what one node is asked within one turn of the event loop, and sends it when the turn ends: of many locks at a
 * time, most of the cost is in making, sending and reading a command for each. Nobody waits for the end of the turn, as the
 * socket is not read before.
 */
export class Outbox {
  #releases: Release[] = [];
  #extensions: Extension[] = [];
  /** At the node that keeps the order of those who wait, and elsewhere. */
  #ordered: Attempt[] = [];
  #unordered: Attempt[] = [];

  /** @param index - tells the node from the others of its lock */
  constructor(
    readonly store: Store,
    private readonly index: number,
    /** Has {@link flush} called when the turn ends. */
    private readonly plan: () => void,
  ) {}

  release(release: Release): void {
    this.#releases.push(release);
    this.plan();
  }

  extend(extension: Extension): void {
    this.#extensions.push(extension);
    this.plan();
  }

  acquire(attempt: Attempt, ordered: boolean): void {
    (ordered ? this.#ordered : this.#unordered).push(attempt);
    this.plan();
  }

  /** Sends what was asked so far. Releases come first: whose turn comes with one of them may be among those who ask. */
  flush(): void {
    const { store, index } = this;
    const releases = this.#releases;
    if (releases.length > 0) {
      this.#releases = [];
      store.release(releases, (at, reply) => releases[at]?.answered(index, reply));
    }
    if (this.#extensions.length > 0) this.#extend();
    this.#acquire(this.#ordered, true);
    this.#acquire(this.#unordered, false);
  }

  /** A node is asked for one ttl at a time. */
  #extend(): void {
    let left = this.#extensions;
    this.#extensions = [];
    while (left.length > 0) {
      const { ttl } = left[0] as Extension;
      const same = left.filter((each) => each.ttl === ttl);
      left = left.filter((each) => each.ttl !== ttl);
      const leases = same.map(({ lease }) => lease);
      this.store.extend(leases, ttl, (at, reply) => same[at]?.answered(this.index, reply));
    }
  }

  #acquire(asked: Attempt[], ordered: boolean): void {
    if (asked.length === 0) return;
    if (ordered) this.#ordered = [];
    else this.#unordered = [];
    // What has ended meanwhile must not be stored: its release is on its way (S15).
    const attempts = asked.some(hasEnded) ? asked.filter((attempt) => !hasEnded(attempt)) : asked;
    if (attempts.length === 0) return;
    this.store.acquire(attempts, ordered, (at, reply) => attempts[at]?.answered(this.index, reply));
  }
}

function hasEnded({ lease }: Attempt): boolean {
  return lease.ended;
}
