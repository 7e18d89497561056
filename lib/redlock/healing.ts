import { GuardedNodeError } from '../core/errors.js';
import type { Lease } from '../core/lease.js';
import type { AcquireReply, AcquireRequest, SlotWish } from '../core/ports.js';
import { hasNode, type NodeSet } from './node-set.js';
import type { Nodes } from './nodes.js';

/**
 * Longest pause in milliseconds before a node is asked again that refused because another lease holds a key. Each
 * further pause of the same healing is twice as long.
 */
const FIRST_PAUSE_MS = 40;

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
  /** The next renewal asks again from this time of the monotonic clock on. */
  #until: number;
  #pause = FIRST_PAUSE_MS;
  #timers: Set<NodeJS.Timeout> | undefined;

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
    this.#until = performance.now() + lease.ttl / 3;
    if (lease.slots) this.wish = { slots: lease.slots, exactly: true };
    for (let node = 0; node < nodes.outboxes.length; node++)
      if (hasNode(asked, node)) nodes.outboxes[node]?.acquire(this, false);
  }

  get since(): number {
    return this.lease.since;
  }

  answered(node: number, reply: AcquireReply | Error): void {
    if (!(reply instanceof Error)) {
      if (!reply.granted) this.#askAgain(node);
      return;
    }
    // A guard is no failure: each healing of each lock would report it as one until it ends.
    if (reply instanceof GuardedNodeError) this.lock.healsIn(reply.votesIn);
    else this.nodes.tellError(node, reply);
  }

  /** Asks no node again: the lock has been released or lost, or another healing replaces this one. */
  end(): void {
    // The refusal of a node may be on its way.
    this.#until = -Infinity;
    for (const timer of this.#timers ?? []) clearTimeout(timer);
  }

  /**
   * Asks a node again that refused. Callers that wait for the lock are granted a free node for some milliseconds, until
   * the other nodes refuse them: with many callers, one request for each renewal could meet one of them each time.
   */
  #askAgain(node: number): void {
    const pause = this.#pause * (0.5 + Math.random() / 2);
    this.#pause *= 2;
    if (performance.now() + pause >= this.#until) return;
    const timers = (this.#timers ??= new Set());
    const timer = setTimeout(() => {
      timers.delete(timer);
      this.nodes.outboxes[node]?.acquire(this, false);
    }, pause).unref();
    timers.add(timer);
  }
}
