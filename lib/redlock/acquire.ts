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

/** How some keys are to be locked. */
export interface LockRequest extends HoldTerms {
  readonly ttl: number;
  /** Milliseconds that the keys are kept at least; 0 by default. */
  readonly minHold?: number;
  /** The firing of a schedule that the lock is for: refused when it has run already. */
  readonly tick?: Tick | undefined;
  /** What it takes of each key; exclusive by default. */
  readonly kind?: LockKind;
  /** Any of them ends the attempt with its reason. */
  readonly signals: readonly AbortSignal[];
}

/** How one attempt goes about it. */
export interface AttemptPlan {
  /** Milliseconds that are left for it. */
  readonly left: number;
  /** The index of the node that keeps the order of those who wait. */
  readonly queueNode: number;
  readonly position?: QueuePosition | undefined;
  /**
   * Ask that node alone first, and the others only when it grants: where others wait, asking everybody costs more and
   * ends in split votes.
   */
  readonly queueNodeFirst: boolean;
}

/** Whom it waits for: the queue node alone, all nodes, the time to ask again, or the nodes that agree on the token. */
type Phase = 'queue-node' | 'all' | 'pausing' | 'agreeing';

export type Outcome = HeldLock | LockHeldError | LockUnavailableError;

/** What became of an attempt. */
export interface AttemptResult {
  readonly outcome: Outcome;
  /**
   * What the queue node said: when it granted, it took the waiter out of its queue; when it refused, it put it in.
   * `'pending'`: the other votes had decided before its vote came.
   */
  readonly atQueueNode: 'granted' | 'refused' | 'failed' | 'pending';
  /** Nobody has a quorum: it makes sense to try again soon. */
  readonly split: boolean;
  /** A node had less time to answer than it may take, so its silence says nothing. */
  readonly cutShort: boolean;
  /** It was granted, and the next waiter of the process is the first in line. */
  readonly nextIsFirst: boolean;
}

/**
 * How often, at most, an attempt that the queue node granted asks again where it was refused by somebody without a quorum:
 * a holder whose release is still under way, or another attempt, which the queue node has refused and which gives way.
 */
const MOST_ROUNDS = 4;

/**
 * How often, at most, permits are asked for anew where nodes could not be brought to one slot (S20): 34 % were refused
 * without it where 19 % would be if all nodes were one (bench: permits; 10 permits, load 0.95).
 */
const MOST_BEGINNINGS = 4;

/**
 * How often, at most, nodes that lack the slot of a lock that was won are asked for it. A slot that they lack looks free there,
 * and splits the votes on those who come later.
 */
const MOST_COMPLETIONS = 6;

/** How long the next in line is kept from trying after an attempt that came to nothing, in milliseconds. */
const AFTER_SPLIT_VOTE_MS = 20;
const AFTER_HELD_ELSEWHERE_MS = 200;

/** Whom an attempt is made for; told once. */
export interface AttemptCaller {
  attempted(result: AttemptResult): void;
  /** A signal ended it, for this reason. */
  aborted(reason: unknown): void;
}

/** What attempts of one {@link Redlock} share. */
export interface AcquireContext extends LeaseContext {
  /** Called with a lock that was acquired. */
  readonly began: (lock: HeldLock) => void;
  /** Something is under way that must have ended before the nodes are closed; returns what is to be called then. */
  readonly busy: () => () => void;
}

/**
 * One attempt to acquire a lock: asks the nodes, counts their votes, agrees on the fencing token, and hands the lock over
 * or undoes what was stored. An id of its own for each attempt, so that a late reply counts for no other (S5).
 */
export class Attempt extends Poll<AcquireReply> implements AcquireRequest, Abortable {
  readonly lease: Lease;
  readonly guard: number;
  readonly proposal: number;
  /** Which slots the nodes are to give; only with permits. */
  wish: SlotWish | undefined;
  readonly #tally: Tally;
  /** When the first node was asked (S2). */
  readonly sent: Instant = now();
  /** From when on the ttl counts: not later than what a store has confirmed last. */
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
    /** How often it was begun before. */
    private readonly beginnings = 0,
  ) {
    const { nodes, settings } = context;
    const { ttl, tick, kind, signals } = request;
    super(nodes);
    this.lease = new Lease(keys, settings.owner, ttl, tick, kind);
    if (kind?.mode === 'permits' && nodes.stores.length > 1) this.wish = anySlots(keys.length, kind.permits);
    this.guard = settings.guard.duration;
    // A single node has nobody to agree with.
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
    // What is asked after it was won is asked for order's sake, and nobody waits for it.
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

  /** Every phase takes from the time that is left for all of them (S8). */
  get #left(): number {
    return this.plan.left - elapsedSince(this.sent);
  }

  /** How long a node may take when so much is left. In whole milliseconds, so that many have the same. */
  #limit(left: number): number {
    this.#cutShort ||= left < this.#nodeLimit;
    return Math.max(1, Math.ceil(Math.min(this.#nodeLimit, left)));
  }

  /** A node that does not give the slot of a lock that is won already is to give that, like those that did not before. */
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

  /** Where others ask for more permits lately. A refusal may show that by their slots alone, which are below their number. */
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

  /** The queue node, which was asked alone, has answered. */
  #open(): void {
    const { granted, slots } = this.#tally;
    if (granted === 0) return this.#undo();
    // What it gave is free there, and most likely elsewhere.
    if (slots) this.wish = { slots, exactly: false };
    this.#phase = 'all';
    this.#ask(this.#all & ~nodeSet(this.plan.queueNode));
  }

  /** When votes are split, the queue node decides who asks again. */
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

  /** Asks the nodes that gave other slots for those that most of them gave: one more round trip, once (S20). */
  #mend(): void {
    const { granted, together } = this.#tally;
    this.#hasMended = true;
    this.stopWaiting();
    this.#askExactly(granted & ~together);
  }

  /** Nodes that gave other slots are to give these. What they gave before they take back, also when they refuse. */
  #askExactly(asked: NodeSet): void {
    const { slots = [] } = this.#tally;
    this.wish = { slots, exactly: true };
    this.#tally.fixSlots();
    this.#tally.forget(asked);
    this.#ask(asked);
  }

  /**
   * The attempt that the queue node granted asks the others again, which soon are free, while attempts that it refused give
   * way. The same lease is asked for again only where it was refused, and so not stored, which is the same as asking late.
   */
  #mayAskAgain(): boolean {
    const tally = this.#tally;
    return (
      this.#rounds < MOST_ROUNDS &&
      !tally.isWon &&
      !tally.ran &&
      // Another slot is more likely to be free than the one that somebody else was faster to get.
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
      // One that is asked again and does not answer may store the lease yet: its first refusal counts no more (S6).
      this.#tally.forget(refused);
      this.#ask(refused);
    }, delay);
  }

  /** Lifts the tokens of those that granted to the largest; it is the lock's when a quorum has it. */
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
      // Not what the tally has by now: a node that granted a larger one meanwhile is no quorum.
      if (count(answers) >= quorum) this.#handOver(token);
      else this.#undo('the nodes that granted it did not agree on a fencing token in time');
    });
  }

  #handOver(token: number): void {
    const { request, context, lease } = this;
    const validFrom = this.#validFrom;
    const taken = elapsedSince(validFrom);
    // S4: checked after the last phase, as an acquisition that took longer than the lease is worth nothing.
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
   * Releases a lease that came to nothing, on every node that may have stored it: the minority that granted it, and
   * those whose answer is not known (S6). A node that refused has stored nothing.
   *
   * @param late - why the lock cannot be had though a quorum granted it
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

  /** Nodes that were asked for one slot say who has that, and nothing of others. */
  get #isHeld(): boolean {
    return !this.#hasMended && this.#tally.isHeld;
  }

  /** Others were faster to get the slot; another one may be free. */
  #mayBeginAnew(): boolean {
    return (
      this.#hasMended &&
      this.beginnings < MOST_BEGINNINGS &&
      elapsedSince(this.sent) < Math.min(this.plan.left, this.#nodeLimit)
    );
  }

  /** With a lease of its own (S5), behind the release of this one. */
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

  /** Of those that answered: one that gave another slot keeps that from others for nothing. */
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

  /** Once the release of who had the slot has arrived there, or an attempt that came to nothing has given it back. */
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
    // The next in line would fare no better at once, and tell the one after it, and so on as fast as the nodes answer.
    const pause = this.#isHeld ? AFTER_HELD_ELSEWHERE_MS : AFTER_SPLIT_VOTE_MS;
    const after = Math.ceil(pause * (0.5 + Math.random() / 2));
    new Release(context.nodes, lease, this.#nodeLimit, after, suspects, Infinity, context.busy());
    // Now, and not when the turn ends: the caller may close its client next (S6).
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

/** At random, as those who ask at the same time are to ask for others. */
function anySlots(keyCount: number, permits: number): SlotWish {
  const any = (): number => Math.floor(Math.random() * permits);
  return { slots: keyCount === 1 ? [any()] : Array.from({ length: keyCount }, any), exactly: false };
}
