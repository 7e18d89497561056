import type { Lease } from '../core/lease.js';
import type { Instant } from '../core/clock.js';
import type { NodeVote } from '../core/errors.js';
import type { Nodes } from './nodes.js';
import { firstNodes, hasNode, nodeSet, type NodeSet, sizeOf } from './node-set.js';
import { Poll } from './poll.js';
import { quorumOf } from './quorum.js';

/**
 * The combined answer of the nodes about one lease. `'extended'`: a quorum extended it. `'gone'`: too few nodes still
 * store it. `'unconfirmed'`: the answers show neither.
 */
export type Verdict =
  | { readonly kind: 'extended' }
  | { readonly kind: 'gone' }
  | { readonly kind: 'unconfirmed'; readonly votes: readonly NodeVote[] };

const EXTENDED: Verdict = { kind: 'extended' };
const GONE: Verdict = { kind: 'gone' };

/** Receives the result of the extension of its lease. */
export interface Extensible {
  readonly lease: Lease;
  /**
   * Called once, as soon as the answers decide the verdict. `ttl` is the requested ttl, and `sent` the moment of the
   * request.
   */
  extended(verdict: Verdict, ttl: number, sent: Instant): void;
  /** Called when late answers complete a quorum after the verdict `unconfirmed`. */
  extendedLate?(ttl: number, sent: Instant): void;
  /**
   * Called when a quorum has extended the lease and these nodes do not store it. Called again when late answers name
   * further nodes, but only once for each node.
   */
  missedBy?(nodes: NodeSet): void;
}

/** Asks all nodes to extend a lease. */
export class Extension extends Poll<boolean> {
  readonly lease: Lease;
  #extended: NodeSet = 0;
  #missing: NodeSet = 0;
  /** The errors of nodes without a vote; `undefined` when there are none. */
  #errors: (Error | undefined)[] | undefined;

  constructor(
    nodes: Nodes,
    private readonly target: Extensible,
    readonly ttl: number,
    limit: number,
    private readonly sent: Instant,
    limits = nodes.limits,
  ) {
    super(nodes, limits);
    this.lease = target.lease;
    this.wait(firstNodes(nodes.stores.length), limit);
    for (const outbox of nodes.outboxes) outbox.extend(this);
  }

  protected count(node: number, reply: boolean | Error): void {
    if (reply instanceof Error) (this.#errors ??= [])[node] = reply;
    else if (reply) this.#extended |= nodeSet(node);
    else this.#missing |= nodeSet(node);
    const verdict = this.#verdict();
    if (!verdict) return;
    this.settle();
    this.target.extended(verdict, this.ttl, this.sent);
    if (verdict.kind === 'extended' && this.#missing !== 0) this.target.missedBy?.(this.#missing);
  }

  /** Counts the late answer of a slow node. A repeated request would not help: the node would answer it late, too. */
  protected override late(node: number, reply: boolean | Error): void {
    if (reply instanceof Error) return;
    const wasExtended = this.#isExtended;
    if (reply) this.#extended |= nodeSet(node);
    else this.#missing |= nodeSet(node);
    if (!this.#isExtended) return;
    if (!wasExtended) this.target.extendedLate?.(this.ttl, this.sent);
    const missing = wasExtended ? this.#missing & nodeSet(node) : this.#missing;
    if (missing !== 0) this.target.missedBy?.(missing);
  }

  get #isExtended(): boolean {
    return sizeOf(this.#extended) >= quorumOf(this.nodes.stores.length);
  }

  /** Returns the verdict; `undefined` while missing answers can still change it. */
  #verdict(): Verdict | undefined {
    const { length } = this.nodes.stores;
    const quorum = quorumOf(length);
    const sparable = length - quorum;
    const pending = sizeOf(this.pending);
    const extended = sizeOf(this.#extended);
    const missing = sizeOf(this.#missing);
    if (missing > sparable) return GONE;
    if (extended >= quorum) return EXTENDED;
    const isOpen = extended + pending >= quorum || missing + pending > sparable;
    return isOpen ? undefined : { kind: 'unconfirmed', votes: this.#votes() };
  }

  #votes(): NodeVote[] {
    return this.nodes.stores.map(({ name }, node): NodeVote => {
      if (hasNode(this.#extended, node)) return { node: name, vote: 'granted' };
      const error = hasNode(this.#missing, node) ? new Error('no longer has the lock') : this.#errors?.[node];
      return error ? { node: name, vote: 'error', error } : { node: name, vote: 'pending' };
    });
  }
}
