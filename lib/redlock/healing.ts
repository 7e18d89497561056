import { GuardedNodeError } from '../core/errors.js';
import type { Lease } from '../core/lease.js';
import type { AcquireReply, AcquireRequest, SlotWish } from '../core/ports.js';
import { hasNode, type NodeSet } from './node-set.js';
import type { Nodes } from './nodes.js';

/** A held lock that nodes are asked to store again. */
export interface Healed {
  readonly lease: Lease;
  readonly fencingToken: number;
  /** Called when a node does not store the lease, because its restart guard ends only in so many milliseconds. */
  healsIn(milliseconds: number): void;
}

/**
 * Asks nodes that do not store the lease of a held lock to store it (S26): they were away when it was acquired, lost
 * their data, or were away for the time of its ttl. They count from the next renewal on, so nobody waits for the
 * answers. The requests have a deadline, and stores that may execute them late release the lease once more (S16, S27).
 */
export class Healing implements AcquireRequest {
  readonly heals = true;
  readonly position: undefined;
  readonly lease: Lease;
  readonly proposal: number;
  readonly wish: SlotWish | undefined;

  /** @param limit - milliseconds within which a node must store the lease */
  constructor(
    private readonly nodes: Nodes,
    private readonly lock: Healed,
    readonly guard: number,
    readonly limit: number,
    asked: NodeSet,
  ) {
    const { lease, fencingToken } = lock;
    this.lease = lease;
    this.proposal = fencingToken;
    if (lease.slots) this.wish = { slots: lease.slots, exactly: true };
    for (let node = 0; node < nodes.outboxes.length; node++)
      if (hasNode(asked, node)) nodes.outboxes[node]?.acquire(this, false);
  }

  get since(): number {
    return this.lease.since;
  }

  answered(node: number, reply: AcquireReply | Error): void {
    if (!(reply instanceof Error)) return;
    this.nodes.tellError(node, reply);
    if (reply instanceof GuardedNodeError) this.lock.healsIn(reply.votesIn);
  }
}
