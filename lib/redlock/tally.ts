import type { LockStore } from '../core/ports.js';
import { LockHeldError, LockUnavailableError, type NodeVote } from '../core/errors.js';
import type { Lease } from '../core/lease.js';
import { asHolder, type LockHolder } from '../core/lock-info.js';
import type { AcquireReply, Holder, KeyHolder } from '../core/ports.js';
import { hasNode, nodeSet, type NodeSet, sizeOf } from './node-set.js';
import { freeAfter, quorumOf } from './quorum.js';

/** A refusal, or no vote. */
type Against =
  | { readonly holder: Holder | KeyHolder; readonly others: readonly KeyHolder[]; readonly ran: boolean }
  | Error;

/** What a node granted of permits. */
interface Grant {
  readonly slots: readonly number[];
  readonly token: number;
}

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
  /** Only with permits. */
  #grants: (Grant | undefined)[] | undefined;
  #sameSlots: NodeSet = 0;
  #slots: readonly number[] | undefined;
  #isFixed = false;

  constructor(private readonly nodeCount: number) {
    this.quorum = quorumOf(nodeCount);
  }

  count(node: number, reply: AcquireReply | Error): void {
    if (reply instanceof Error) {
      this.failed |= nodeSet(node);
      (this.#against ??= [])[node] = reply;
    } else if (reply.granted) {
      this.granted |= nodeSet(node);
      this.#nextIsFirst ||= reply.nextIsFirst === true;
      if (reply.slots) this.#countSlots(node, { slots: reply.slots, token: reply.token });
      else this.#countToken(reply.token);
    } else {
      this.refused |= nodeSet(node);
      const { holder, others = NO_HOLDERS, ran = false } = reply;
      (this.#against ??= [])[node] = { holder, others, ran };
    }
  }

  #countToken(token: number): void {
    if (token > this.token) {
      this.token = token;
      this.#agreeing = 0;
    }
    if (token === this.token) this.#agreeing++;
  }

  /** Permits are won in one and the same slot (S20): of the slots that were granted, those count that most nodes gave. */
  #countSlots(node: number, grant: Grant): void {
    const grants = (this.#grants ??= []);
    grants[node] = grant;
    // Mostly all give the same.
    const before = this.granted & ~nodeSet(node);
    if (before === this.#sameSlots && isSame(grant.slots, (this.#slots ??= grant.slots))) {
      this.#sameSlots |= nodeSet(node);
      this.#countToken(grant.token);
      return;
    }
    this.#sameSlots = 0;
    for (const [first, candidate] of grants.entries()) {
      if (!candidate || !hasNode(this.granted, first)) continue;
      if (this.#isFixed && !isSame(candidate.slots, this.#slots ?? [])) continue;
      let same: NodeSet = 0;
      for (const [other, { slots } = NO_GRANT] of grants.entries()) {
        if (hasNode(this.granted, other) && isSame(slots, candidate.slots)) same |= nodeSet(other);
      }
      if (sizeOf(same) <= sizeOf(this.#sameSlots)) continue;
      this.#sameSlots = same;
      this.#slots = candidate.slots;
    }
    this.token = this.#agreeing = 0;
    for (const [other, { token } = NO_GRANT] of grants.entries()) {
      if (hasNode(this.#sameSlots, other)) this.#countToken(token);
    }
  }

  /** From now on no other slots count: nodes have been asked to give those up (test/model, permits.c). */
  fixSlots(): void {
    this.#isFixed = true;
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

  /** The nodes whose grants count together: all that granted, with permits those that gave the same {@link slots}. */
  get together(): NodeSet {
    return this.#grants ? this.#sameSlots : this.granted;
  }

  /** The slot of each key; only with permits. */
  get slots(): readonly number[] | undefined {
    return this.#slots;
  }

  /** A quorum granted, in the same slot. */
  get isWon(): boolean {
    return sizeOf(this.together) >= this.quorum;
  }

  /** A quorum granted, but not in the same slot. */
  get isSplitInSlots(): boolean {
    return !this.isWon && sizeOf(this.granted) >= this.quorum;
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

  /**
   * A quorum names the same holder, or such as hold it together, of whom each node may name another one. Without that the
   * votes are split, and trying again soon makes sense.
   */
  get isHeld(): boolean {
    if (!this.#against) return false;
    const holders = this.#holders();
    const severalHold = holders.filter((holder) => 'mode' in holder && holder.mode !== 'exclusive');
    if (severalHold.length >= this.quorum) return true;
    return holders.some(({ id }) => holders.filter((other) => other.id === id).length >= this.quorum);
  }

  /**
   * Enough answers to know that the lock is won; or that it cannot be won and whether because others hold it or because
   * too few nodes answer. A tie is decided like everything else (S1).
   */
  get isDecided(): boolean {
    if (this.isWon || this.ran) return true;
    const granted = sizeOf(this.granted);
    const pending = this.nodeCount - sizeOf(this.granted | this.refused | this.failed);
    if (sizeOf(this.together) + pending >= this.quorum) return false;
    if (granted >= this.quorum) return true;
    if (granted + pending >= this.quorum) return false;
    const fit = granted + sizeOf(this.refused);
    return fit >= this.quorum || fit + pending < this.quorum;
  }

  /** Whether those that granted and those that refused could make a quorum. */
  get couldWin(): boolean {
    return sizeOf(this.granted | this.refused) >= this.quorum;
  }

  /** Why the lock was not won. */
  failure(
    { keys, kind, permitsSeen }: Lease,
    nodes: readonly LockStore[],
  ): LockHeldError | LockUnavailableError {
    const [holder] = this.#holders();
    const fit = this.granted | this.refused;
    if (holder && sizeOf(fit) >= this.quorum) {
      const remaining = this.#holders().map((each) => each.remaining);
      const free = Array.from({ length: sizeOf(this.granted) }, () => 0);
      const retryAfter = freeAfter([...free, ...remaining], this.quorum);
      return new LockHeldError(keys, holder.owner, retryAfter, { holders: this.#named(), kind, permitsSeen });
    }
    const reason = `${this.quorum} of ${nodes.length} nodes must agree, and ${sizeOf(this.failed)} gave no vote`;
    return this.unavailable(keys, nodes, reason);
  }

  /** The node that keeps the order was asked alone, and did not grant. */
  shutOut(
    { keys, kind, permitsSeen }: Lease,
    nodes: readonly LockStore[],
  ): LockHeldError | LockUnavailableError {
    const [holder] = this.#holders();
    if (holder) {
      const details = { holders: this.#named(), kind, permitsSeen };
      return new LockHeldError(keys, holder.owner, holder.remaining, details);
    }
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

  #holders(): (Holder | KeyHolder)[] {
    return (this.#against ?? []).flatMap((each) => (each && !(each instanceof Error) ? [each.holder] : []));
  }

  /** Those who hold the lock, as the nodes name them; not one whose turn it is only. */
  #named(): LockHolder[] {
    const named = new Map<string, LockHolder>();
    const against = (this.#against ?? []).filter((each) => each && !(each instanceof Error));
    for (const { holder } of against as Exclude<Against, Error>[])
      if ('mode' in holder && !named.has(holder.id)) named.set(holder.id, asHolder(holder));
    for (const { others } of against as Exclude<Against, Error>[])
      for (const other of others) if (!named.has(other.id)) named.set(other.id, asHolder(other));
    return [...named.values()];
  }
}

const NO_HOLDERS: readonly KeyHolder[] = [];

const NO_GRANT: Grant = { slots: [], token: 0 };

export function isSame(some: readonly number[], others: readonly number[]): boolean {
  return some.every((slot, index) => slot === others[index]);
}
