import { asError } from '../core/errors.js';
import type { AcquireReply, AcquireRequest, ReleaseRequest, Store, Tell } from '../core/ports.js';
import type { Lease } from '../core/lease.js';

/** The sender of a request, which receives the answer of each node. */
interface Asker<Reply> {
  answered(node: number, reply: Reply | Error): void;
}

type Release = ReleaseRequest & Asker<undefined>;
type Attempt = AcquireRequest & Asker<AcquireReply>;
type Extension = Asker<boolean> & { readonly lease: Lease; readonly ttl: number };

/**
 * Collects the requests to one node in one turn of the event loop, and sends them together when the turn ends. With many
 * locks at a time, a command for each lock would be most of the cost. The delay costs nothing, because Node reads no
 * socket before the turn ends.
 */
export class Outbox {
  #releases: Release[] = [];
  #extensions: Extension[] = [];
  /** Attempts for which this node is the queue node; `#unordered` has the other attempts. */
  #ordered: Attempt[] = [];
  #unordered: Attempt[] = [];

  /** @param index - the index of the node among the nodes of the module */
  constructor(
    readonly store: Store,
    private readonly index: number,
    /** Schedules a call of {@link flush} at the end of the turn. */
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

  /**
   * Sends the collected requests now. Releases come first, because the next waiter for a released lock may be among the
   * attempts.
   */
  flush(): void {
    const releases = this.#releases;
    if (releases.length > 0) {
      this.#releases = [];
      this.#send(releases, (tell) => this.store.release(releases, tell));
    }
    if (this.#extensions.length > 0) this.#extend();
    this.#acquire(this.#ordered, true);
    this.#acquire(this.#unordered, false);
  }

  /** Sends the extensions, with one command for each ttl: a command can extend leases only to one common ttl. */
  #extend(): void {
    let left = this.#extensions;
    this.#extensions = [];
    while (left.length > 0) {
      const { ttl } = left[0] as Extension;
      const same = left.filter((each) => each.ttl === ttl);
      left = left.filter((each) => each.ttl !== ttl);
      const leases = same.map(({ lease }) => lease);
      this.#send(same, (tell) => this.store.extend(leases, ttl, tell));
    }
  }

  #acquire(asked: Attempt[], ordered: boolean): void {
    if (asked.length === 0) return;
    if (ordered) this.#ordered = [];
    else this.#unordered = [];
    // Do not send leases that have ended since they were collected: their releases are on their way (S15).
    const attempts = asked.every(mayBeSent) ? asked : asked.filter(mayBeSent);
    if (attempts.length === 0) return;
    this.#send(attempts, (tell) => this.store.acquire(attempts, ordered, tell));
  }

  /** Sends requests in one call of the store. A store of the application may throw where it should call `tell`. */
  #send<Reply>(askers: readonly Asker<Reply>[], send: (tell: Tell<Reply>) => void): void {
    const { index } = this;
    try {
      send((at, reply) => askers[at]?.answered(index, reply));
    } catch (error) {
      for (const asker of askers) asker.answered(index, asError(error));
    }
  }
}

function mayBeSent({ lease }: Attempt): boolean {
  return lease.mayBeStored;
}
