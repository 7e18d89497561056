import type { NoTimeError } from '../core/errors.js';
import { hasNode, nodeSet, type NodeSet } from './node-set.js';
import type { Nodes } from './nodes.js';
import type { Limited } from './time-limits.js';

/**
 * One question to several nodes (S2): counts their answers until they decide it, all have answered, or the time for it has
 * passed (S3). Whoever makes one asks the nodes and hands their answers to {@link answered}.
 *
 * Nodes are told apart by their index, so that a question that all nodes agree on makes no list of answers.
 */
export abstract class Poll<Reply> implements Limited {
  earlier: Limited | undefined;
  later: Limited | undefined;
  due = 0;
  /** Milliseconds for which answers are waited for. */
  limit = 0;
  /** The nodes whose answer is to come. */
  protected pending: NodeSet = 0;
  /** Whether answers count no more. */
  protected isSettled = false;
  #isTimed = false;
  /** The silence of the nodes that are pending has been told. */
  #gaveUp = false;

  constructor(
    protected readonly nodes: Nodes,
    private readonly limits = nodes.limits,
  ) {}

  /** Takes a node's answer. */
  answered(node: number, reply: Reply | Error): void {
    if (reply instanceof Error && !this.#gaveUp) this.nodes.tellError(node, reply);
    if (this.isSettled) return this.late(node, reply);
    this.pending &= ~nodeSet(node);
    this.count(node, reply);
  }

  /** The time is over: nodes that have not answered give no vote. */
  expire(error: NoTimeError): void {
    this.#isTimed = false;
    this.#gaveUp = true;
    for (let node = 0; node < this.nodes.stores.length && !this.isSettled; node++) {
      if (!hasNode(this.pending, node)) continue;
      this.nodes.tellError(node, error);
      this.pending &= ~nodeSet(node);
      this.count(node, error);
    }
  }

  /** An answer that comes too late is dropped: undoing what it did is the business of a release (S6). */
  protected late(_node: number, _reply: Reply | Error): void {}

  /** Counts one answer; settles the poll when that decides it, at the latest when none is {@link pending}. */
  protected abstract count(node: number, reply: Reply | Error): void;

  /** These nodes are being asked, and have so many milliseconds to answer. */
  protected wait(nodes: NodeSet, limit: number): void {
    this.stopWaiting();
    this.pending |= nodes;
    this.limit = limit;
    this.#isTimed = true;
    this.limits.begin(this, limit);
  }

  protected settle(): void {
    this.isSettled = true;
    this.stopWaiting();
  }

  protected stopWaiting(): void {
    if (this.#isTimed) this.limits.end(this, this.limit);
    this.#isTimed = false;
  }
}
