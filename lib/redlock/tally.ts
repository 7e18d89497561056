import type { LockStore } from '../core/ports.js';
import { LockHeldError, LockUnavailableError, type NodeVote } from '../core/errors.js';
import type { AcquireReply, Holder } from '../core/ports.js';
import { hasNode, nodeSet, type NodeSet, sizeOf } from './node-set.js';
import { freeAfter, quorumOf } from './quorum.js';

/** A refusal, or no vote. */
type Against = { readonly holder: Holder; readonly ran: boolean } | Error;

/**
 * The votes on one lease, and what they come to. Counts only, while all agree: votes against are listed when there are any.
 */
export class Tally {
  readonly quorum: number;
  granted: NodeSet = 0;
  refused: NodeSet = 0;
  /** Those that gave no vote. */
  failed: NodeSet = 0;
  /** The largest token that was granted, and how many nodes gave it. */
  token = 0;
  #agreeing = 0;
  #nextIsFirst = false;
  #against: (Against | undefined)[] | undefined;

  constructor(private readonly nodeCount: number) {
    this.quorum = quorumOf(nodeCount);
  }

  count(node: number, reply: AcquireReply | Error): void {
    if (reply instanceof Error) {
      this.failed |= nodeSet(node);
      (this.#against ??= [])[node] = reply;
    } else if (reply.granted) {
      this.granted |= nodeSet(node);
      if (reply.token > this.token) {
        this.token = reply.token;
        this.#agreeing = 0;
      }
      if (reply.token === this.token) this.#agreeing++;
      this.#nextIsFirst ||= reply.nextIsFirst === true;
    } else {
      this.refused |= nodeSet(node);
      (this.#against ??= [])[node] = { holder: reply.holder, ran: reply.ran === true };
    }
  }

  /** The nodes are asked again: what they said counts no more. */
  forget(nodes: NodeSet): void {
    this.granted &= ~nodes;
    this.refused &= ~nodes;
    this.failed &= ~nodes;
    for (let node = 0; node < this.nodeCount; node++) {
      if (hasNode(nodes, node)) (this.#against ??= [])[node] = undefined;
    }
  }

  /** A quorum granted. */
  get isWon(): boolean {
    return sizeOf(this.granted) >= this.quorum;
  }

  /** A quorum gave the same token, so nothing is left to agree on. */
  get isAgreed(): boolean {
    return this.#agreeing >= this.quorum;
  }

  get nextIsFirst(): boolean {
    return this.#nextIsFirst;
  }

  /** Where the tick ran already, if a node knows: only a lock that was acquired leaves that behind, so one is enough. */
  get ran(): Holder | undefined {
    for (const each of this.#against ?? [])
      if (each && !(each instanceof Error) && each.ran) return each.holder;
    return undefined;
  }

  /** The holder that a quorum names, if there is one: without it the votes are split, and trying again soon makes sense. */
  get isHeldByOne(): boolean {
    if (!this.#against) return false;
    const holders = this.#holders();
    return holders.some(({ id }) => holders.filter((other) => other.id === id).length >= this.quorum);
  }

  /**
   * Enough answers to know that the lock is won; or that it cannot be won and whether because others hold it or because
   * too few nodes answer. A tie is decided like everything else (S1).
   */
  get isDecided(): boolean {
    const granted = sizeOf(this.granted);
    if (granted >= this.quorum || this.ran) return true;
    const pending = this.nodeCount - sizeOf(this.granted | this.refused | this.failed);
    if (granted + pending >= this.quorum) return false;
    const fit = granted + sizeOf(this.refused);
    return fit >= this.quorum || fit + pending < this.quorum;
  }

  /** Whether those that granted and those that refused could make a quorum. */
  get couldWin(): boolean {
    return sizeOf(this.granted | this.refused) >= this.quorum;
  }

  /** Why the lock was not won. */
  failure(keys: readonly string[], nodes: readonly LockStore[]): LockHeldError | LockUnavailableError {
    const [holder] = this.#holders();
    const fit = this.granted | this.refused;
    if (holder && sizeOf(fit) >= this.quorum) {
      const remaining = this.#holders().map((each) => each.remaining);
      const free = Array.from({ length: sizeOf(this.granted) }, () => 0);
      return new LockHeldError(keys, holder.owner, freeAfter([...free, ...remaining], this.quorum));
    }
    const reason = `${this.quorum} of ${nodes.length} nodes must agree, and ${sizeOf(this.failed)} gave no vote`;
    return this.unavailable(keys, nodes, reason);
  }

  /** The node that keeps the order was asked alone, and did not grant. */
  shutOut(keys: readonly string[], nodes: readonly LockStore[]): LockHeldError | LockUnavailableError {
    const [holder] = this.#holders();
    if (holder) return new LockHeldError(keys, holder.owner, holder.remaining);
    const asked = this.#votes(nodes).filter(({ vote }) => vote !== 'pending');
    return new LockUnavailableError(keys, 'the node at which waiters queue gave no vote', asked);
  }

  unavailable(keys: readonly string[], nodes: readonly LockStore[], reason: string): LockUnavailableError {
    return new LockUnavailableError(keys, reason, this.#votes(nodes));
  }

  #votes(nodes: readonly LockStore[]): NodeVote[] {
    return nodes.map(({ name }, node): NodeVote => {
      const against = this.#against?.[node];
      if (against instanceof Error) return { node: name, vote: 'error', error: against };
      if (hasNode(this.refused, node)) return { node: name, vote: 'held' };
      return { node: name, vote: hasNode(this.granted, node) ? 'granted' : 'pending' };
    });
  }

  #holders(): Holder[] {
    return (this.#against ?? []).flatMap((each) => (each && !(each instanceof Error) ? [each.holder] : []));
  }
}
