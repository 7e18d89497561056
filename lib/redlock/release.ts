import type { Lease } from '../core/lease.js';
import type { ReleaseRequest } from '../core/ports.js';
import { firstNodes, hasNode, type NodeSet } from './node-set.js';
import { Poll } from './poll.js';
import { quorumOf } from './quorum.js';
import type { Nodes } from './nodes.js';

/**
 * Releases a lease on some nodes. Calls `done` when `enough` nodes have confirmed, then with `true`, or when every node
 * has answered or missed its time limit.
 */
export class Release extends Poll<undefined> implements ReleaseRequest {
  #confirmed = 0;
  readonly wasHeld: boolean;

  constructor(
    nodes: Nodes,
    readonly lease: Lease,
    limit: number,
    /** Milliseconds after which the first waiter may try. */
    readonly pause: number,
    asked: NodeSet,
    private readonly enough: number,
    private readonly done: (isConfirmed: boolean) => void,
    /** `true` for the release of a lock. The release of a failed attempt changes nothing for the waiters of other leases. */
    wasHeld = false,
  ) {
    super(nodes);
    this.wasHeld = wasHeld && nodes.stores.length > 1;
    this.wait(asked, limit);
    for (let node = 0; node < nodes.outboxes.length; node++) {
      if (hasNode(asked, node)) nodes.outboxes[node]?.release(this);
    }
  }

  protected count(_node: number, reply: undefined | Error): void {
    if (!reply) this.#confirmed++;
    if (this.#confirmed < this.enough && this.pending !== 0) return;
    this.settle();
    this.done(this.#confirmed >= this.enough);
  }
}

/**
 * Releases a lock; resolves when a quorum has confirmed, or when the nodes have answered otherwise or missed their time
 * limit. Never rejects.
 *
 * @param unconfirmed - called when no quorum has confirmed
 * @param wasHeld - see {@link ReleaseRequest.wasHeld}
 */
export function release(
  nodes: Nodes,
  lease: Lease,
  limit: number,
  unconfirmed: (lease: Lease) => void,
  wasHeld = false,
): Promise<void> {
  return new Promise((resolve) => {
    const { length } = nodes.stores;
    const done = (isConfirmed: boolean): void => {
      if (!isConfirmed) unconfirmed(lease);
      resolve();
    };
    new Release(nodes, lease, limit, 0, firstNodes(length), quorumOf(length), done, wasHeld);
  });
}
