import { earlier, elapsedSince, type Instant, now } from '../core/clock.js';
import { LockHeldError, type LockUnavailableError } from '../core/errors.js';
import { proposedToken } from '../core/fencing-token.js';
import { Lease } from '../core/lease.js';
import type { LockKind } from '../core/lock-mode.js';
import { type Abortable, type AbortWatch, onAbort } from '../core/on-abort.js';
import type { AcquireReply, AcquireRequest, QueuePosition, SlotWish } from '../core/ports.js';
import type { Tick } from '../core/tick.js';
import { fanOut } from './fan-out.js';
import { HeldLock, type HoldTerms, type LeaseContext } from './held-lock.js';
import { firstNodes, hasNode, nodeSet, type NodeSet } from './node-set.js';
import { Poll } from './poll.js';
import { Release } from './release.js';
import { isSame, Tally } from './tally.js';
import { nodeTimeLimit, usableTtl } from './validity.js';

/** Parameters of one attempt to lock some keys. */
export interface LockRequest extends HoldTerms {
  readonly ttl: number;
  /** Milliseconds that the keys are kept at least; 0 by default. */
  readonly minHold?: number;
  /** The tick of a schedule that the lock is for. The request is refused if the tick has run already. */
  readonly tick?: Tick | undefined;
  /** The kind of lock on each key; exclusive by default. */
  readonly kind?: LockKind;
  /** Each of them ends the attempt with its reason when it aborts. */
  readonly signals: readonly AbortSignal[];
}

/** How to make one attempt. */
export interface AttemptPlan {
  /** Milliseconds left for it. */
  readonly left: number;
  /** The index of the node that keeps the queue of waiters. */
  readonly queueNode: number;
  readonly position?: QueuePosition | undefined;
  /**
   * If `true`, ask the queue node alone first, and the others only when it grants. While others wait, asking all nodes
   * costs more and splits the votes.
   */
  readonly queueNodeFirst: boolean;
}

/**
 * The attempt waits for the queue node alone, for all nodes, for the pause before it asks again, or for the nodes to
 * agree on a token.
 */
type Phase = 'queue-node' | 'all' | 'pausing' | 'agreeing';

export type Outcome = HeldLock | LockHeldError | LockUnavailableError;

/** The outcome of an attempt. */
export interface AttemptResult {
  readonly outcome: Outcome;
  /**
   * The queue node's vote. When it granted, it removed the waiter from its queue; when it refused, it added the waiter.
   * `'pending'`: the other votes decided the attempt before this one arrived.
   */
  readonly atQueueNode: 'granted' | 'refused' | 'failed' | 'pending';
  /** Nobody has a quorum, so it makes sense to try again soon. */
  readonly split: boolean;
  /** A node had less time to answer than its time limit, so a missing answer does not mean that the node is down. */
  readonly cutShort: boolean;
  /** The lock was granted, and the next waiter of the process is the first in line. */
  readonly nextIsFirst: boolean;
}

/**
 * The most rounds of an attempt that the queue node granted. It repeats the requests that were refused because of a
 * holder without a quorum: one whose release is still under way, or another attempt, which the queue node refused and
 * which gives up.
 */
const MOST_ROUNDS = 4;

/**
 * The most restarts of an attempt for permits whose nodes could not agree on one slot (S20). Without restarts 34 % of
 * the attempts were refused where a single node would refuse 19 % (bench: permits; 10 permits, load 0.95).
 */
const MOST_BEGINNINGS = 4;

/**
 * The most requests to nodes that lack the slot of an acquired lock. On such a node the slot looks free, and splits the
 * votes of later callers.
 */
const MOST_COMPLETIONS = 6;

/** Milliseconds for which the first in line must not try after a failed attempt. */
const AFTER_SPLIT_VOTE_MS = 20;
const AFTER_HELD_ELSEWHERE_MS = 200;

/** The owner of an attempt; called once. */
export interface AttemptCaller {
  attempted(result: AttemptResult): void;
  /** A signal ended the attempt, with this reason. */
  aborted(reason: unknown): void;
}

/** Shared by the attempts of one {@link Redlock}. */
export interface AcquireContext extends LeaseContext {
  /** Called with a lock that was acquired. */
  readonly began: (lock: HeldLock) => void;
  /** Registers work that must end before the nodes are closed; returns the function to call at its end. */
  readonly busy: () => () => void;
}

/**
 * One attempt to acquire a lock: asks the nodes, counts their votes and agrees on the fencing token. It then hands the
 * lock over, or undoes what was stored. Each attempt has an id of its own, so that a late reply counts for no other
 * (S5).
 */
export class Attempt extends Poll<AcquireReply> implements AcquireRequest, Abortable {
  readonly lease: Lease;
  readonly guard: number;
  readonly proposal: number;
  /** The slots requested from the nodes; only with permits. */
  wish: SlotWish | undefined;
  readonly #tally: Tally;
  /** The moment of the first request (S2). */
  readonly sent: Instant = now();
  /** The start of the ttl: no later than the last confirmation of a store. */
  #validFrom = this.sent;
  #phase: Phase;
  #rounds = 0;
  #hasMended = false;
  #completions = 0;
  #cutShort = false;
  readonly #nodeLimit: number;
  #watch: AbortWatch | undefined;

  constructor(
    keys: readonly string[],
    private readonly request: LockRequest,
    readonly plan: AttemptPlan,
    private readonly context: AcquireContext,
    private readonly caller: AttemptCaller,
    /** The number of earlier beginnings. */
    private readonly beginnings = 0,
  ) {
    const { nodes, settings } = context;
    const { ttl, tick, kind, signals } = request;
    super(nodes);
    this.lease = new Lease(keys, settings.owner, ttl, tick, kind);
    if (kind?.mode === 'permits' && nodes.stores.length > 1) this.wish = anySlots(keys.length, kind.permits);
    this.guard = settings.guard.duration;
    // A single node has no other node to agree with.
    this.proposal = nodes.stores.length === 1 ? 0 : proposedToken(nodes.latestTime());
    this.#tally = new Tally(nodes.stores.length);
    this.#nodeLimit = nodeTimeLimit(ttl, settings.nodeTimeout);
    this.#phase = plan.queueNodeFirst ? 'queue-node' : 'all';
    for (const signal of signals) this.#watch = onAbort(signal, this, this.#watch);
    this.#ask(plan.queueNodeFirst ? nodeSet(plan.queueNode) : this.#all, plan.left);
  }

  get since(): number {
    return this.sent.wall;
  }

  get renewed(): boolean {
    const { renew, maxHold, minHold = 0 } = this.request;
    return renew && maxHold === undefined && minHold === 0;
  }

  get position(): QueuePosition | undefined {
    // A request after the lock was acquired only completes the other nodes, and nobody waits for it.
    return this.isSettled ? undefined : this.plan.position;
  }

  get #all(): NodeSet {
    return firstNodes(this.context.nodes.stores.length);
  }

  #ask(asked: NodeSet, left = this.#left): void {
    this.wait(asked, this.#limit(left));
    this.#send(asked);
  }

  #send(asked: NodeSet): void {
    const { plan, context } = this;
    const { outboxes } = context.nodes;
    for (let node = 0; node < outboxes.length; node++) {
      if (hasNode(asked, node)) outboxes[node]?.acquire(this, node === plan.queueNode);
    }
  }

  /** Every phase uses part of the time that is left for all of them (S8). */
  get #left(): number {
    return this.plan.left - elapsedSince(this.sent);
  }

  /** The time limit of a node when this much is left. Whole milliseconds, so that many requests share one limit. */
  #limit(left: number): number {
    this.#cutShort ||= left < this.#nodeLimit;
    return Math.max(1, Math.ceil(Math.min(this.#nodeLimit, left)));
  }

  /** After the lock was acquired, a node that answers without the lock's slot is asked for that slot. */
  override answered(node: number, reply: AcquireReply | Error): void {
    const isLate = this.isSettled;
    super.answered(node, reply);
    const { slots } = this.lease;
    if (!isLate || !slots || reply instanceof Error) return;
    if (!reply.granted) this.#completeLater(nodeSet(node), slots);
    else if (reply.slots && !isSame(slots, reply.slots)) this.#complete(nodeSet(node), slots);
  }

  protected count(node: number, reply: AcquireReply | Error): void {
    const tally = this.#tally;
    tally.count(node, reply);
    if (!(reply instanceof Error)) {
      if (reply.granted && reply.validFrom) this.#validFrom = earlier(this.#validFrom, reply.validFrom);
      this.#seePermits(reply);
    }
    switch (this.#phase) {
      case 'queue-node':
        return this.#open();
      case 'all':
        if (this.pending === 0 || (tally.isDecided && !this.#waitsForQueueNode())) this.#decide();
        return;
      case 'pausing':
        if (tally.isWon) this.#decide();
        return;
      case 'agreeing':
    }
  }

  /**
   * Records that other callers lately asked for more permits. A refusal may show it only by their slots, which are
   * below their number.
   */
  #seePermits(reply: AcquireReply): void {
    const { kind } = this.lease;
    if (kind.mode !== 'permits') return;
    let seen = reply.permits ?? 0;
    if (!reply.granted) {
      const { holder, others = [] } = reply;
      const named = 'mode' in holder ? [holder, ...others] : others;
      for (const { slot = -1 } of named) seen = Math.max(seen, slot + 1);
    }
    if (seen > kind.permits) this.lease.seePermits(seen);
  }

  /** Continues after the answer of the queue node, which was asked alone. */
  #open(): void {
    const { granted, slots } = this.#tally;
    if (granted === 0) return this.#undo();
    // The slots that it granted are free there, and most likely on the other nodes.
    if (slots) this.wish = { slots, exactly: false };
    this.#phase = 'all';
    this.#ask(this.#all & ~nodeSet(this.plan.queueNode));
  }

  /** When the votes are split, the queue node decides who asks again. */
  #waitsForQueueNode(): boolean {
    const tally = this.#tally;
    const isPending = hasNode(this.pending, this.plan.queueNode);
    return isPending && !tally.isWon && !tally.ran && !tally.isHeld;
  }

  #decide(): void {
    const tally = this.#tally;
    if (tally.isSplitInSlots && !tally.ran && !this.#hasMended) return this.#mend();
    if (this.#mayAskAgain()) return this.#askAgain();
    if (!tally.isWon || tally.ran) return this.#undo();
    if (tally.slots) this.lease.slots = tally.slots;
    if (!tally.isAgreed) return this.#agree();
    this.#handOver(tally.token);
  }

  /** Asks the nodes that gave other slots for the slots that most nodes gave: one more round trip, once (S20). */
  #mend(): void {
    const { granted, together } = this.#tally;
    this.#hasMended = true;
    this.stopWaiting();
    this.#askExactly(granted & ~together);
  }

  /** Asks nodes that gave other slots for exactly these. The nodes free the other slots, even if they refuse these. */
  #askExactly(asked: NodeSet): void {
    const { slots = [] } = this.#tally;
    this.wish = { slots, exactly: true };
    this.#tally.fixSlots();
    this.#tally.forget(asked);
    this.#ask(asked);
  }

  /**
   * The attempt that the queue node granted asks the other nodes again. They are free soon, because the attempts that
   * it refused give up. Only nodes that refused are asked for the same lease again: they have not stored it, so this
   * equals a late first request.
   */
  #mayAskAgain(): boolean {
    const tally = this.#tally;
    return (
      this.#rounds < MOST_ROUNDS &&
      !tally.isWon &&
      !tally.ran &&
      // Another slot is more likely to be free than one that another caller took first.
      this.lease.kind.mode !== 'permits' &&
      tally.couldWin &&
      hasNode(tally.granted, this.plan.queueNode) &&
      elapsedSince(this.sent) < Math.min(this.plan.left, 2 * this.#nodeLimit)
    );
  }

  #askAgain(): void {
    this.#phase = 'pausing';
    this.stopWaiting();
    const { refused } = this.#tally;
    const delay = Math.min(2 ** this.#rounds++ * (0.5 + Math.random() / 2), this.#limit(this.#left));
    setTimeout(() => {
      if (this.isSettled || this.#phase !== 'pausing') return;
      this.#phase = 'all';
      // If a node is asked again and does not answer, it may have stored the lease, so its first refusal no longer
      // counts (S6).
      this.#tally.forget(refused);
      this.#ask(refused);
    }, delay);
  }

  /** Raises the tokens of the granting nodes to the largest. It is the lock's token when a quorum has it. */
  #agree(): void {
    const { token, quorum, together } = this.#tally;
    const { stores } = this.context.nodes;
    this.#phase = 'agreeing';
    this.stopWaiting();
    const granting = stores.filter((_, node) => hasNode(together, node));
    const count = (answers: readonly { readonly reply?: boolean | undefined }[]): number =>
      answers.filter(({ reply }) => reply === true).length;
    const raised = fanOut(
      granting,
      this.#limit(this.#left),
      (store) => store.raise?.(this.lease, token) ?? Promise.resolve(false),
      (soFar) => count(soFar) >= quorum || soFar.length - count(soFar) > granting.length - quorum,
      this.request.signals,
    );
    void raised.then((answers) => {
      if (this.isSettled) return;
      // Not the tally's token: a node may have granted a larger one meanwhile, and one node is no quorum.
      if (count(answers) >= quorum) this.#handOver(token);
      else this.#undo('the nodes that granted it did not agree on a fencing token in time');
    });
  }

  #handOver(token: number): void {
    const { request, context, lease } = this;
    const validFrom = this.#validFrom;
    const taken = elapsedSince(validFrom);
    // S4: checked after the last phase. An acquisition that took longer than the lease's validity is worth nothing.
    if (taken >= usableTtl(lease.ttl, context.settings.driftFactor)) {
      const reason = `the nodes took ${Math.round(taken)} ms to answer, which uses up the ttl of ${lease.ttl} ms`;
      return this.#undo(reason);
    }
    this.#end();
    this.#completeAll();
    lease.acquired(this.sent.monotonic, request.minHold ?? 0);
    const lock = new HeldLock(lease, token, context, validFrom, taken, request);
    context.began(lock);
    this.caller.attempted(this.#result(lock, false));
  }

  /**
   * Releases a failed lease on every node that may have stored it: the minority that granted it, and the nodes whose
   * answer is unknown (S6). A node that refused has stored nothing.
   *
   * @param late - the reason of a failure after a quorum had granted the lock
   */
  #undo(late?: string): void {
    const { context, lease } = this;
    const { stores } = context.nodes;
    const tally = this.#tally;
    this.#end();
    this.#giveBack();
    if (late === undefined && this.#mayBeginAnew()) return this.#beginAnew();
    const { ran } = tally;
    const shut = this.#phase === 'queue-node';
    const outcome = ran
      ? new LockHeldError(lease.keys, ran.owner, ran.remaining, { ranTick: lease.tick?.at })
      : late !== undefined
        ? tally.unavailable(lease.keys, stores, late)
        : shut
          ? tally.shutOut(lease, stores)
          : tally.failure(lease, stores);
    this.caller.attempted(this.#result(outcome, !ran && !shut && !this.#isHeld));
  }

  /** Nodes that were asked for one slot name only the holder of that slot, not the others. */
  get #isHeld(): boolean {
    return !this.#hasMended && this.#tally.isHeld;
  }

  /** Another caller took the slot first; a different one may be free. */
  #mayBeginAnew(): boolean {
    return (
      this.#hasMended &&
      this.beginnings < MOST_BEGINNINGS &&
      elapsedSince(this.sent) < Math.min(this.plan.left, this.#nodeLimit)
    );
  }

  /** Begins again with a new lease (S5), whose requests follow the release of this one. */
  #beginAnew(): void {
    const { lease, request, context, caller, beginnings } = this;
    const plan = { ...this.plan, left: this.plan.left - elapsedSince(this.sent) };
    new Attempt(lease.keys, request, plan, context, caller, beginnings + 1);
  }

  aborted({ reason }: AbortSignal): void {
    if (this.isSettled) return;
    this.#end();
    this.#giveBack();
    this.caller.aborted(reason);
  }

  /**
   * Completes the nodes that answered. A node that stores another slot of this lock keeps that slot from other callers
   * for nothing.
   */
  #completeAll(): void {
    const { slots, granted, refused, together } = this.#tally;
    if (!slots) return;
    const others = granted & ~together;
    if (others !== 0) this.#complete(others, slots);
    if (refused !== 0) this.#completeLater(refused, slots);
  }

  /** Nobody waits for the answer. */
  #complete(asked: NodeSet, slots: readonly number[]): void {
    if (this.lease.ended || this.#completions++ >= MOST_COMPLETIONS) return;
    this.wish = { slots, exactly: true };
    this.#send(asked);
  }

  /**
   * Waits first, until the node has processed the release of the slot's holder, or a failed attempt has given the slot
   * back.
   */
  #completeLater(asked: NodeSet, slots: readonly number[]): void {
    if (this.lease.ended || this.#completions >= MOST_COMPLETIONS) return;
    const delay = 2 ** this.#completions * (0.5 + Math.random() / 2);
    setTimeout(() => this.#complete(asked, slots), delay).unref();
  }

  #giveBack(): void {
    const { context, lease, plan } = this;
    const tally = this.#tally;
    lease.ended = true;
    const asked = this.#phase === 'queue-node' ? nodeSet(plan.queueNode) : this.#all;
    const suspects = asked & ~tally.refused;
    if (suspects === 0) return;
    // Without a pause the first in line would fail too, and pass the turn on, as fast as the nodes answer.
    const pause = this.#isHeld ? AFTER_HELD_ELSEWHERE_MS : AFTER_SPLIT_VOTE_MS;
    const after = Math.ceil(pause * (0.5 + Math.random() / 2));
    new Release(context.nodes, lease, this.#nodeLimit, after, suspects, Infinity, context.busy());
    // Now and not at the end of the turn: the caller may close its client next (S6).
    context.nodes.flush();
  }

  #end(): void {
    this.settle();
    this.#watch?.stop();
  }

  #result(outcome: Outcome, split: boolean): AttemptResult {
    const { granted, refused, failed, nextIsFirst } = this.#tally;
    const { queueNode } = this.plan;
    const atQueueNode = hasNode(granted, queueNode)
      ? 'granted'
      : hasNode(refused, queueNode)
        ? 'refused'
        : hasNode(failed, queueNode)
          ? 'failed'
          : 'pending';
    return { outcome, atQueueNode, split, cutShort: this.#cutShort, nextIsFirst };
  }
}

/** Random, so that callers at the same time ask for different slots. */
function anySlots(keyCount: number, permits: number): SlotWish {
  const any = (): number => Math.floor(Math.random() * permits);
  return { slots: keyCount === 1 ? [any()] : Array.from({ length: keyCount }, any), exactly: false };
}
