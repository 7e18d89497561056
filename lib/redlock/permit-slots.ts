import type { Lease } from '../core/lease.js';
import type { LockKind } from '../core/lock-mode.js';
import type { AcquireReply, SlotWish } from '../core/ports.js';
import type { HeldLock } from './held-lock.js';
import { nodeSet, type NodeSet } from './node-set.js';
import { isSame, type Tally } from './tally.js';

/**
 * Largest number of restarts of an attempt for permits: it begins again when the nodes could not agree on one slot
 * (S20). Without restarts 34 % of the attempts were refused. On a single node, which needs no restarts, 19 % were
 * refused (`npm run bench -- permits`; 10 permits, 9.5 wanted on average).
 */
export const MOST_BEGINNINGS = 4;

/**
 * Largest number of requests to nodes that lack the slot of an acquired lock. The slot looks free on such a node, so
 * the votes of later callers would split.
 */
const MOST_COMPLETIONS = 6;

/** Sends the request of an attempt once more. */
interface Sender {
  send(nodes: NodeSet): void;
}

/**
 * The slots of one attempt for permits on several nodes: a quorum of nodes must store the lock in the same slot (S20).
 * It says which slots the attempt asks for, and asks nodes without the slot to store it after the acquisition.
 */
export class SlotAgreement {
  /** The slots requested from the nodes. Random at first, so that callers that ask at the same time ask for different slots. */
  wish: SlotWish;
  /** `true` after nodes were asked for the exact slots of the majority. */
  hasAsked = false;
  #completions = 0;
  /** The acquired lock. */
  #lock: Pick<HeldLock, 'isHeld'> | undefined;

  constructor(
    private readonly lease: Lease,
    permits: number,
    private readonly attempt: Sender,
  ) {
    const any = (): number => Math.floor(Math.random() * permits);
    const { keys } = lease;
    this.wish = {
      slots: keys.length === 1 ? [any()] : Array.from({ length: keys.length }, any),
      exactly: false,
    };
  }

  /** Asks for these slots, or the next free slots. */
  prefer(slots: readonly number[]): void {
    this.wish = { slots, exactly: false };
  }

  /**
   * Chooses the slots that most nodes granted, and no others. The caller asks the returned nodes, which granted other
   * slots: a node frees the other slots of the lease even if it refuses the requested slots. That costs one more round
   * trip, so it happens only once (S20).
   */
  askExactly(tally: Tally): NodeSet {
    const { granted, together, slots = [] } = tally;
    const asked = granted & ~together;
    this.hasAsked = true;
    this.wish = { slots, exactly: true };
    tally.fixSlots();
    tally.forget(asked);
    return asked;
  }

  /**
   * Asks the nodes that refused, or that granted other slots, to store the slots of the acquired lock. A node that
   * stores another slot for the lock would refuse that slot to other callers without need.
   */
  completeAll({ slots, granted, refused, together }: Tally, lock: Pick<HeldLock, 'isHeld'>): void {
    if (!slots) return;
    this.#lock = lock;
    const others = granted & ~together;
    if (others !== 0) this.#complete(others, slots);
    if (refused !== 0) this.#completeLater(refused, slots);
  }

  /** Takes an answer that came after the acquisition. If the node does not store the slots, asks it for them. */
  answeredLate(node: number, reply: AcquireReply | Error): void {
    const { slots } = this.lease;
    if (!slots || reply instanceof Error) return;
    if (!reply.granted) this.#completeLater(nodeSet(node), slots);
    else if (reply.slots && !isSame(slots, reply.slots)) this.#complete(nodeSet(node), slots);
  }

  /** Asks nodes to store the slots of a held lock. No caller waits for their answers. */
  #complete(asked: NodeSet, slots: readonly number[]): void {
    if (!this.#lock?.isHeld() || this.#completions++ >= MOST_COMPLETIONS) return;
    this.wish = { slots, exactly: true };
    this.attempt.send(asked);
  }

  /**
   * Asks nodes to store the slots of a held lock, after a pause. By then a node has usually processed the release
   * of the slot's earlier holder, or a failed attempt has freed the slot.
   */
  #completeLater(asked: NodeSet, slots: readonly number[]): void {
    if (!this.#lock?.isHeld() || this.#completions >= MOST_COMPLETIONS) return;
    const delay = 2 ** this.#completions * (0.5 + Math.random() / 2);
    setTimeout(() => this.#complete(asked, slots), delay).unref();
  }
}

/**
 * Records that other callers recently asked for the lock with a larger number of permits. A refusal may lack that
 * number, but names slots of holders: a holder in slot `n` asked with at least `n` + 1 permits.
 */
export function seePermits(
  lease: Lease,
  { permits }: Extract<LockKind, { mode: 'permits' }>,
  reply: AcquireReply,
): void {
  let seen = reply.permits ?? 0;
  if (!reply.granted) {
    const { holder, others = [] } = reply;
    const named = 'mode' in holder ? [holder, ...others] : others;
    for (const { slot = -1 } of named) seen = Math.max(seen, slot + 1);
  }
  if (seen > permits) lease.seePermits(seen);
}
