import type { NoTimeError } from '../core/errors.js';
import { hasNode, nodeSet, type NodeSet } from './node-set.js';
import type { Nodes } from './nodes.js';
import type { Limited } from './time-limits.js';

/**
 * One question to several nodes (S2). Counts the answers until they decide the question, all nodes have answered, or
 * the time limit has passed (S3). The creator of a poll asks the nodes and passes their answers to {@link answered}.
 *
 * A poll keeps sets of node indexes ({@link NodeSet}). So it needs no list of answers when all nodes give the same
 * answer.
 */
export abstract class Poll<Reply> implements Limited {
  earlier: Limited | undefined;
  later: Limited | undefined;
  due = 0;
  /** Milliseconds to wait for answers. */
  limit = 0;
  /** The nodes whose answer is missing. */
  protected pending: NodeSet = 0;
  /** If `true`, answers no longer count. */
  protected isSettled = false;
  #isTimed = false;
  /** The nodes that did not answer within their time limit, and were not asked again. Their errors were published. */
  #late: NodeSet = 0;

  constructor(
    protected readonly nodes: Nodes,
    private readonly limits = nodes.limits,
  ) {}

  /** Counts a node's answer. */
  answered(node: number, reply: Reply | Error): void {
    if (reply instanceof Error && !hasNode(this.#late, node)) this.nodes.tellError(node, reply);
    if (this.isSettled) return this.late(node, reply);
    this.pending &= ~nodeSet(node);
    this.count(node, reply);
  }

  /** Ends the wait: nodes that have not answered give no vote. */
  expire(error: NoTimeError): void {
    this.#isTimed = false;
    this.#late |= this.pending;
    for (let node = 0; node < this.nodes.stores.length; node++) {
      // A node that was asked again in this loop has a time limit of its own.
      if (!hasNode(this.pending & this.#late, node)) continue;
      this.nodes.tellError(node, error);
      // A listener to the error may have aborted the signal of the attempt.
      if (this.isSettled) return;
      this.pending &= ~nodeSet(node);
      this.count(node, error);
    }
  }

  /** Ignores an answer that comes after the poll is settled: a release undoes the effect of the request (S6). */
  protected late(_node: number, _reply: Reply | Error): void {}

  /**
   * Counts one answer. Settles the poll when the answer decides the question, and at the latest when no node is {@link
   * pending}.
   */
  protected abstract count(node: number, reply: Reply | Error): void;

  /** Starts to wait for the answers of these nodes, for `limit` milliseconds at most. */
  protected wait(nodes: NodeSet, limit: number): void {
    this.stopWaiting();
    this.pending |= nodes;
    this.#late &= ~nodes;
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
