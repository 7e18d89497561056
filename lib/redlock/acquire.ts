import { earlier, elapsedSince, type Instant, now } from '../core/clock.js';
import { LockHeldError, LockUnavailableError } from '../core/errors.js';
import { proposedToken } from '../core/fencing-token.js';
import { Lease } from '../core/lease.js';
import type { LockKind } from '../core/lock-mode.js';
import { type Abortable, type AbortWatch, onAbort } from '../core/on-abort.js';
import type { AcquireReply, AcquireRequest, QueuePosition, SlotWish } from '../core/ports.js';
import type { Tick } from '../core/tick.js';
import { fanOut } from './fan-out.js';
import { HeldLock, type LeaseContext } from './held-lock.js';
import { firstNodes, hasNode, nodeSet, type NodeSet } from './node-set.js';
import { MOST_BEGINNINGS, seePermits, SlotAgreement } from './permit-slots.js';
import type { Outvoted } from './outvoted.js';
import { Poll } from './poll.js';
import { Release } from './release.js';
import type { HoldTerms } from './renewed-lock.js';
import { isFinal, isRuledOut, Tally } from './tally.js';
import { nodeTimeLimit, usableTtl } from './validity.js';
import type { AttemptCaller, AttemptPlan, AttemptResult } from './wait/attempt.js';
import { growingPause } from './wait/growing-pause.js';

/** Parameters of one attempt to lock some keys. */
export interface LockRequest extends HoldTerms {
  readonly ttl: number;
  /** The keys stay held for at least this many milliseconds; 0 by default. */
  readonly minHold?: number;
  /**
   * The tick of a schedule for which the lock is requested. The nodes refuse the request if the tick has already run.
   */
  readonly tick?: Tick | undefined;
  /** The kind of lock on each key; exclusive by default. */
  readonly kind?: LockKind;
  /** Each of these signals ends the attempt, which then rejects with the reason of the signal. */
  readonly signals: readonly AbortSignal[];
}

/**
 * The phases of an attempt. `'queue-node'`: it waits for the queue node alone. `'all'`: it waits for all nodes.
 * `'pausing'`: it waits before it asks some nodes again. `'agreeing'`: it waits until the nodes agree on one token.
 */
type Phase = 'queue-node' | 'all' | 'pausing' | 'agreeing';

type Outcome = HeldLock | LockHeldError | LockUnavailableError;

/**
 * Largest number of further rounds of an attempt that the queue node has granted. Each round asks again the nodes that
 * refused, because they may soon be free. Such a node may store a lock that is being released, or the lease of another
 * attempt that the queue node refused, and that will therefore give up.
 */
const MOST_ROUNDS = 4;

/**
 * Milliseconds that the release of a failed attempt makes the first waiter wait. After a split vote the next attempt may
 * succeed at once, but not while others hold the lock or too few nodes vote. A vote that is split again and again shows
 * no progress, so that each pause is twice as long.
 */
const AFTER_SPLIT_VOTE_MS = 20;
const AFTER_HOPELESS_MS = 200;

/** Objects that all attempts of one {@link Redlock} share. */
export interface AttemptContext extends LeaseContext {
  /** Called with a lock that was acquired. */
  readonly began: (lock: HeldLock) => void;
  readonly outvoted: Outvoted;
}

/**
 * One attempt to acquire a lock: asks the nodes, counts their votes and agrees on the fencing token. Then it passes the
 * lock to the caller, or releases the lease on the nodes. Each attempt has a new id, so that a late reply does not
 * count for another attempt (S5).
 */
export class Attempt extends Poll<AcquireReply> implements AcquireRequest, Abortable {
  readonly lease: Lease;
  readonly guard: number;
  readonly proposal: number;
  readonly #tally: Tally;
  /** The moment of the first request (S2). */
  readonly sent: Instant = now();
  /** The start of the ttl: {@link sent}, or an earlier moment that a store reported (`validFrom`, as etcd does). */
  #validFrom = this.sent;
  #phase: Phase;
  #rounds = 0;
  /** `true` if the queue node refused at first because of a lease that holds no lock. */
  #isOutvoted = false;
  #cutShort = false;
  readonly #nodeLimit: number;
  /** The time limit of a node that has already answered, so that its next answer needs no new connection. */
  readonly #nextLimit: number;
  #watch: AbortWatch | undefined;
  /** Only with permits on several nodes. */
  readonly #slots: SlotAgreement | undefined;

  constructor(
    keys: readonly string[],
    private readonly request: LockRequest,
    readonly plan: AttemptPlan,
    private readonly context: AttemptContext,
    private readonly caller: AttemptCaller<HeldLock>,
    /** The number of earlier beginnings of this attempt, each with another lease. */
    private readonly beginnings = 0,
  ) {
    const { nodes, settings } = context;
    const { ttl, tick, kind, signals } = request;
    super(nodes);
    this.lease = new Lease(keys, settings.owner, ttl, tick, kind, this.sent);
    if (kind?.mode === 'permits' && nodes.stores.length > 1)
      this.#slots = new SlotAgreement(this.lease, kind.permits, this);
    this.guard = settings.guard.duration;
    // A single node has no other node to agree with.
    this.proposal = nodes.stores.length === 1 ? 0 : proposedToken(nodes.latestTime());
    this.#tally = new Tally(nodes.stores.length);
    this.#nodeLimit = nodeTimeLimit(ttl, settings.nodeTimeout, nodes.isIdle);
    this.#nextLimit = nodeTimeLimit(ttl, settings.nodeTimeout);
    this.#phase = plan.queueNodeFirst ? 'queue-node' : 'all';
    for (const signal of signals) this.#watch = onAbort(signal, this, this.#watch);
    this.#ask(plan.queueNodeFirst ? nodeSet(plan.queueNode) : this.#all, this.#nodeLimit, plan.left);
  }

  get since(): number {
    return this.lease.since;
  }

  get renewed(): boolean {
    const { renew, maxHold, minHold = 0 } = this.request;
    // Locks that a thread renews have an expiry of their own: a common one would be renewed in two threads.
    return renew === true && maxHold === undefined && minHold === 0;
  }

  get position(): QueuePosition | undefined {
    // A request after the acquisition only stores the lock on more nodes, and no caller waits for the answer.
    return this.isSettled ? undefined : this.plan.position;
  }

  get wish(): SlotWish | undefined {
    return this.#slots?.wish;
  }

  get #all(): NodeSet {
    return firstNodes(this.context.nodes.stores.length);
  }

  #ask(asked: NodeSet, nodeLimit: number, left = this.#left): void {
    this.wait(asked, this.#limit(nodeLimit, left));
    this.send(asked);
  }

  /** Sends the request to these nodes. */
  send(asked: NodeSet): void {
    const { plan, context } = this;
    const { outboxes } = context.nodes;
    for (let node = 0; node < outboxes.length; node++) {
      if (hasNode(asked, node)) outboxes[node]?.acquire(this, node === plan.queueNode);
    }
  }

  /** Milliseconds that are left. All phases share the time of the attempt (S8). */
  get #left(): number {
    return this.plan.left - elapsedSince(this.sent);
  }

  /**
   * The time limit of a node when `left` milliseconds of the attempt are left. It is in whole milliseconds, so that many
   * requests have the same limit and share its timer.
   */
  #limit(nodeLimit: number, left = this.#left): number {
    this.#cutShort ||= left < nodeLimit;
    return Math.max(1, Math.ceil(Math.min(nodeLimit, left)));
  }

  protected override late(node: number, reply: AcquireReply | Error): void {
    this.#slots?.answeredLate(node, reply);
    if (reply instanceof Error || reply.granted) return;
    // Perhaps the attempt was decided before enough nodes had shown that only the queue node stores a lease.
    this.#tally.count(node, reply);
    this.#noteOutvoted();
  }

  protected count(node: number, reply: AcquireReply | Error): void {
    const tally = this.#tally;
    tally.count(node, reply);
    if (!(reply instanceof Error)) {
      if (reply.granted && reply.validFrom) this.#validFrom = earlier(this.#validFrom, reply.validFrom);
      if (this.lease.kind.mode === 'permits') seePermits(this.lease, this.lease.kind, reply);
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
   * Continues after the answer of the queue node, which was asked first. The other nodes decide also if the queue node
   * refused because of a lease that holds no lock.
   */
  #open(): void {
    const { granted, slots } = this.#tally;
    if (granted === 0 && !this.context.outvoted.hasAny(this.#tally.namedBy(this.plan.queueNode)))
      return this.#undo();
    // The slots of the queue node are most likely free on the other nodes, too.
    if (slots) this.#slots?.prefer(slots);
    this.#phase = 'all';
    this.#ask(this.#all & ~nodeSet(this.plan.queueNode), this.#nodeLimit);
  }

  /**
   * `true` while no caller has a quorum and the answer of the queue node is missing: the queue node decides which caller
   * asks again.
   */
  #waitsForQueueNode(): boolean {
    const tally = this.#tally;
    const isPending = hasNode(this.pending, this.plan.queueNode);
    return isPending && !tally.isWon && !tally.ran && !tally.isHeld;
  }

  #decide(): void {
    const tally = this.#tally;
    if (tally.isSplitInSlots && !tally.ran && this.#slots?.hasAsked === false) {
      this.stopWaiting();
      return this.#ask(this.#slots.askExactly(tally), this.#nextLimit);
    }
    if (this.#mayAskAgain()) return this.#askAgain();
    if (!tally.isWon || tally.ran) return this.#undo();
    if (tally.slots) this.lease.slots = tally.slots;
    if (!tally.isAgreed) return this.#agree();
    this.#handOver(tally.token);
  }

  /**
   * `true` if the attempt, which the queue node granted, may ask the other nodes again. Those nodes will soon be free,
   * because the attempts that the queue node refused give up. At the turn of a process the same holds if the queue node
   * refuses because of a lease that holds no lock. The release that caused the turn may still be on its way to the others.
   * Only nodes that refused are asked again with the same lease: they have not stored it, so the request is like a late
   * first request.
   */
  #mayAskAgain(): boolean {
    const tally = this.#tally;
    const { queueNode, isTurn } = this.plan;
    this.#isOutvoted ||=
      tally.isOutvoted(queueNode) || this.context.outvoted.hasAny(tally.namedBy(queueNode));
    // With permits, ask for another slot instead: it is more likely to be free than a slot that another caller took
    // first.
    const isFreeThere = hasNode(tally.granted, queueNode) && this.lease.kind.mode !== 'permits';
    return (
      this.#rounds < MOST_ROUNDS &&
      !tally.isWon &&
      !tally.ran &&
      tally.couldWin &&
      (isFreeThere || (isTurn && this.#isOutvoted && this.#slots?.hasAsked !== true)) &&
      elapsedSince(this.sent) < Math.min(this.plan.left, this.#nodeLimit + this.#nextLimit)
    );
  }

  #askAgain(): void {
    this.#phase = 'pausing';
    this.stopWaiting();
    const { refused } = this.#tally;
    const delay = Math.min(2 ** this.#rounds++ * (0.5 + Math.random() / 2), this.#limit(this.#nextLimit));
    setTimeout(() => {
      if (this.isSettled || this.#phase !== 'pausing') return;
      this.#phase = 'all';
      // A node that is asked again and does not answer may have stored the lease, so its first refusal no longer counts
      // (S6).
      this.#tally.forget(refused);
      this.#ask(refused, this.#nextLimit);
    }, delay);
  }

  /**
   * Raises the token of the lock on all nodes that granted the lock. The new token is the largest of the granted
   * tokens. It becomes the token of the lock when a quorum has stored it.
   */
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
      this.#limit(this.#nextLimit),
      (store) => store.raise?.(this.lease, token) ?? Promise.resolve(false),
      (soFar) => count(soFar) >= quorum || soFar.length - count(soFar) > granting.length - quorum,
      this.request.signals,
    );
    void raised.then((answers) => {
      if (this.isSettled) return;
      // Use `token`, which a quorum has stored. A late answer may have brought a larger token into the tally, but no
      // quorum has stored the larger token.
      if (count(answers) >= quorum) this.#handOver(token);
      else this.#undo('the nodes that granted the lock did not agree on a fencing token in time');
    });
  }

  #handOver(token: number): void {
    const { request, context, lease } = this;
    context.clocks.look();
    // The look may tell the loss of the lock around the call, whose signal has then ended this attempt.
    if (this.isSettled) return;
    const validFrom = this.#validFrom;
    const taken = elapsedSince(validFrom);
    // Check after the last phase: the validity may have run out during the acquisition (S4).
    if (taken >= usableTtl(lease.ttl, context.settings.driftFactor)) {
      const reason = `the nodes took ${Math.round(taken)} ms to answer, which uses up the ttl of ${lease.ttl} ms`;
      return this.#undo(reason);
    }
    this.#end();
    lease.acquired(this.sent.monotonic, request.minHold ?? 0);
    const lock = new HeldLock(lease, token, context, validFrom, taken, request);
    this.#slots?.completeAll(this.#tally, lock);
    context.began(lock);
    this.caller.attempted(this.#result(lock, false));
  }

  /**
   * Releases a failed lease on every node that may have stored it: the nodes that granted it, and the nodes whose
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
    if (late === undefined && this.#mayStartOver()) return this.#startOver();
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

  /**
   * `true` if other callers hold the lock. With permits, a node that was asked for exact slots names only the holders
   * of these slots, so its refusal does not show that all permits are taken.
   */
  get #isHeld(): boolean {
    return !this.#slots?.hasAsked && this.#tally.isHeld;
  }

  /** `true` if the attempt may begin again, because another caller took the slot first and another slot may be free. */
  #mayStartOver(): boolean {
    return (
      this.#slots?.hasAsked === true &&
      // Callers that split the vote again and again disturb each other: they begin again less often.
      this.beginnings + 1 <= MOST_BEGINNINGS / 2 ** this.plan.splits &&
      elapsedSince(this.sent) < Math.min(this.plan.left, this.#nodeLimit)
    );
  }

  /** Begins again with a new lease (S5). The requests for the new lease are sent after the release of the old lease. */
  #startOver(): void {
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

  #giveBack(): void {
    const { context, lease, plan } = this;
    const tally = this.#tally;
    lease.ended = true;
    const asked = this.#phase === 'queue-node' ? nodeSet(plan.queueNode) : this.#all;
    const suspects = asked & ~tally.refused;
    if (suspects === 0) return;
    // Without a pause, all waiters would try and fail in turn, as fast as the nodes answer.
    const isHopeless = this.#isHeld || !tally.couldWin;
    const pause = isHopeless
      ? AFTER_HOPELESS_MS
      : growingPause(AFTER_SPLIT_VOTE_MS, plan.splits, AFTER_HOPELESS_MS);
    const after = Math.ceil(pause * (0.5 + Math.random() / 2));
    new Release(context.nodes, lease, this.#nodeLimit, after, suspects, Infinity, context.busy());
    // Send the release now and not at the end of the event loop's turn: the caller may close its client next (S6).
    context.nodes.flush();
  }

  /** Records whether the queue node refused because of a lease that holds no lock. */
  #noteOutvoted(): void {
    const { plan, context } = this;
    const named = this.#tally.namedBy(plan.queueNode);
    if (named.length === 0) return;
    if (this.#tally.isOutvoted(plan.queueNode)) context.outvoted.note(named);
    else if (this.#tally.isHeld) context.outvoted.forget(named);
  }

  #end(): void {
    this.#noteOutvoted();
    this.settle();
    this.#watch?.stop();
  }

  #result(outcome: Outcome, split: boolean): AttemptResult<HeldLock> {
    const { granted, everGranted, refused, failed, nextIsFirst } = this.#tally;
    const { queueNode } = this.plan;
    const atQueueNode = hasNode(granted, queueNode)
      ? 'granted'
      : hasNode(refused, queueNode)
        ? 'refused'
        : hasNode(failed, queueNode)
          ? 'failed'
          : 'pending';
    const isRefusal = !(outcome instanceof HeldLock);
    return {
      outcome,
      atQueueNode,
      wasGranted: hasNode(everGranted, queueNode),
      split,
      cutShort: this.#cutShort,
      nextIsFirst,
      isFinal: isRefusal && isFinal(outcome),
      isRuledOut: outcome instanceof LockUnavailableError && isRuledOut(outcome),
    };
  }
}
