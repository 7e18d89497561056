import type { LockStore } from '../core/ports.js';
import {
  ForeignValueError,
  LockHeldError,
  LockUnavailableError,
  type NodeVote,
  NoTimeError,
} from '../core/errors.js';
import type { Lease } from '../core/lease.js';
import { asHolder, type LockHolder } from '../core/lock-info.js';
import type { AcquireReply, Holder, KeyHolder } from '../core/ports.js';
import { hasNode, nodeSet, type NodeSet, sizeOf } from './node-set.js';
import { freeAfter, quorumOf } from './quorum.js';

/** A refusal, or the error in place of a vote. */
type Against =
  | { readonly holder: Holder | KeyHolder; readonly others: readonly KeyHolder[]; readonly ran: boolean }
  | Error;

/** The slots and the token that a node granted, with permits. */
interface Grant {
  readonly slots: readonly number[];
  readonly token: number;
}

/**
 * Counts the votes on one lease, and decides whether the lock is acquired. To save memory, the tally makes a list of
 * votes only when a node votes against the lease.
 */
export class Tally {
  readonly quorum: number;
  granted: NodeSet = 0;
  /** The nodes that have granted the lease at any time, also if they were asked again. */
  everGranted: NodeSet = 0;
  refused: NodeSet = 0;
  /** The nodes that gave no vote. */
  failed: NodeSet = 0;
  /** The largest granted token; `#agreeing` is the number of nodes that granted it. */
  token = 0;
  #agreeing = 0;
  #nextIsFirst = false;
  #against: (Against | undefined)[] | undefined;
  /** The grant of each node; only with permits. */
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
      this.everGranted |= nodeSet(node);
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

  /**
   * Counts a grant with permits. The lock needs the same slot on a quorum of nodes (S20), so the tally takes the slots
   * that the largest number of nodes granted.
   */
  #countSlots(node: number, grant: Grant): void {
    const grants = (this.#grants ??= []);
    grants[node] = grant;
    // Usually all nodes give the same slots.
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

  /**
   * Fixes the slots: from now on only the present slots count, because nodes have been asked to free all other slots
   * (see test/model/permits.c).
   */
  fixSlots(): void {
    this.#isFixed = true;
  }

  /** Discards the answers of nodes that are asked again. */
  forget(nodes: NodeSet): void {
    this.granted &= ~nodes;
    this.refused &= ~nodes;
    this.failed &= ~nodes;
    for (let node = 0; node < this.nodeCount; node++) {
      if (hasNode(nodes, node)) (this.#against ??= [])[node] = undefined;
    }
  }

  /**
   * The nodes whose grants count together: all nodes that granted; with permits, the nodes that granted the same {@link
   * slots}.
   */
  get together(): NodeSet {
    return this.#grants ? this.#sameSlots : this.granted;
  }

  /** The slot of each key; only with permits. */
  get slots(): readonly number[] | undefined {
    return this.#slots;
  }

  /** `true` if a quorum granted the lock; with permits, in the same slot. */
  get isWon(): boolean {
    return sizeOf(this.together) >= this.quorum;
  }

  /** `true` if a quorum granted the lock, but not in the same slot. */
  get isSplitInSlots(): boolean {
    return !this.isWon && sizeOf(this.granted) >= this.quorum;
  }

  /** `true` if a quorum granted the same token, so that no agreement on a token is needed. */
  get isAgreed(): boolean {
    return this.#agreeing >= this.quorum;
  }

  get nextIsFirst(): boolean {
    return this.#nextIsFirst;
  }

  /**
   * The process that has already run the tick, if a node remembers the tick. One node is enough, because nodes record
   * only ticks whose lock was acquired.
   */
  get ran(): Holder | undefined {
    for (const each of this.#against ?? [])
      if (each && !(each instanceof Error) && each.ran) return each.holder;
    return undefined;
  }

  /**
   * `true` if a quorum names the same holder. Holders that share the key count as one, because each node may name a
   * different one of them. If `false`, perhaps no caller has a quorum, and the next attempt should follow soon.
   */
  get isHeld(): boolean {
    if (!this.#against) return false;
    const holders = this.#holders();
    const severalHold = holders.filter((holder) => 'mode' in holder && holder.mode !== 'exclusive');
    if (severalHold.length >= this.quorum) return true;
    return holders.some(({ id }) => holders.filter((other) => other.id === id).length >= this.quorum);
  }

  /**
   * `true` if there are enough answers: the lock is acquired, or it cannot be acquired because others hold it or too
   * few nodes answer. A tie is decided, too: the lock cannot be acquired (S1).
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

  /** `true` if the nodes that granted and the nodes that refused are together a quorum. */
  get couldWin(): boolean {
    return sizeOf(this.granted | this.refused) >= this.quorum;
  }

  /** Makes the error of a failed attempt. */
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
    const reason =
      nodes.length === 1
        ? NO_ANSWER
        : `${this.quorum} of ${nodes.length} nodes must agree, and ${sizeOf(this.failed)} gave no vote`;
    return this.unavailable(keys, nodes, reason);
  }

  /** Makes the error of an attempt that asked only the queue node and was not granted there. */
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
    return new LockUnavailableError(keys, 'the node with the queue of waiters gave no vote', asked);
  }

  unavailable(keys: readonly string[], nodes: readonly LockStore[], reason: string): LockUnavailableError {
    return new LockUnavailableError(keys, reason, this.#votes(nodes));
  }

  /** The holders that this node named in its refusal. A waiter for which it reserves the lock is not a holder. */
  namedBy(node: number): readonly Holder[] {
    const refusal = this.#against?.[node];
    if (!refusal || refusal instanceof Error || refusal.ran || !('mode' in refusal.holder)) return NO_HOLDERS;
    return [refusal.holder, ...refusal.others];
  }

  /**
   * `true` if this node refused because of a holder that a quorum of other nodes does not store. Nodes that store several
   * readers or permits may each name a different one of them, so there only a grant counts.
   */
  isOutvoted(node: number): boolean {
    const [named] = this.namedBy(node);
    if (!named) return false;
    const isAlone = isExclusive(named);
    const without = this.#holders().filter(
      (other) => other.id !== named.id && (isAlone || isExclusive(other)),
    );
    return sizeOf(this.granted) + without.length >= this.quorum;
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

  /** The holders that the nodes named. A waiter for which a node reserves the lock is not a holder. */
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

/** The reason when a single node neither granted nor refused. The error of the node follows in the message. */
export const NO_ANSWER = 'the node gave no usable answer';

const NO_HOLDERS: readonly KeyHolder[] = [];

function isExclusive(holder: Holder | KeyHolder): boolean {
  return 'mode' in holder && holder.mode === 'exclusive';
}

const NO_GRANT: Grant = { slots: [], token: 0 };

export function isSame(some: readonly number[], others: readonly number[]): boolean {
  return some.every((slot, index) => slot === others[index]);
}

/**
 * `true` if another attempt would be useless: the tick has already run, or so many nodes have the value of another
 * program under the key that the other nodes are too few for a quorum.
 */
export function isFinal(refusal: LockHeldError | LockUnavailableError): boolean {
  if (refusal instanceof LockHeldError) return refusal.ranTick !== undefined;
  const { votes } = refusal;
  const usable = votes.filter(({ error }) => !(error instanceof ForeignValueError)).length;
  return votes.length > 0 && usable < quorumOf(votes.length);
}

/**
 * `true` if so many nodes answered with errors that the other nodes are too few for a quorum. More time for the other
 * nodes is then useless.
 */
export function isRuledOut({ votes }: LockUnavailableError): boolean {
  const errors = votes.filter(({ error }) => error && !(error instanceof NoTimeError)).length;
  return votes.length - errors < quorumOf(votes.length);
}
