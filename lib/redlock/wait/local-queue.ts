import { askStore } from '../../core/ask-store.js';
import { elapsedSince, type Instant, now } from '../../core/clock.js';
import { LockHeldError, type LockUnavailableError } from '../../core/errors.js';
import type { ResolvedRetry } from '../../core/lock-options.js';
import { EXCLUSIVE, type LockKind, type LockMode } from '../../core/lock-mode.js';
import type { Store, Subscription } from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import type { AcquiredLock, AttemptPlan, AttemptResult } from './attempt.js';
import { HoldBack } from './hold-back.js';
import { LastAnswer } from './last-answer.js';
import { WakeableSleep } from './wakeable-sleep.js';

/** Milliseconds for which a node that gave no vote is not used as the queue node. */
const FAILED_FOR_MS = 1_000;

/**
 * Milliseconds after which an attempt asks all nodes again, even if the queue node refuses. The queue node may store a
 * lease that holds no lock, and nobody else tells that the lock is free on the other nodes.
 */
const ALL_ASKED_FOR_MS = 5_000;

/** One call that waits for a lock. */
export class Waiter {
  readonly sleep = new WakeableSleep();
  /** `true` if a call that came later has shortened the present sleep of this waiter. */
  isHurried = false;

  /**
   * @param since - the moment of the call
   * @param pace - the times between two attempts of the call, in milliseconds, as in `retry`
   */
  constructor(
    readonly since: Instant,
    readonly pace: Pick<ResolvedRetry, 'delay' | 'jitter'>,
  ) {}
}

/**
 * Where the calls of this process stand, as far as the process knows:
 *
 * - `polls`: no node has an entry of these calls, so that the first call asks from time to time
 * - `queued`: the queue of a node has their entry, and a message tells the first call when to ask
 * - `inherits`: the same, and the entry is kept from the call that got the lock: the next call need not ask for it
 */
type Standing =
  { readonly state: 'polls' } | { readonly state: 'queued' | 'inherits'; readonly node: number };

const POLLS: Standing = { state: 'polls' };

/**
 * The calls of this process that wait for the same keys, in the order of their arrival. Only the first call asks the
 * nodes, and represents all calls in the queue of the queue node. The queue node is the first node that answers, in the
 * order of the nodes.
 */
export class LocalQueue {
  readonly #waiters: Waiter[] = [];
  /** Subscriptions by the index of the node. */
  readonly #subscriptions = new Map<number, Subscription>();
  /** The nodes whose queues may have the entry of these calls. */
  readonly #queuedAt = new Set<number>();
  #standing: Standing = POLLS;
  /** `true` if a message has told that it is the turn of this process, and the first call has not asked since. */
  #isTurn = false;
  /**
   * The time at which the first waiter must ask, by the monotonic clock: the last message with a delay has set it. It
   * stays valid when another waiter becomes the first or asks earlier, because the node still expects a request at this
   * time.
   */
  #askAt = Infinity;
  readonly #answer: LastAnswer;
  /** Made when a holder could starve these calls. */
  #holdBack: HoldBack | undefined;
  /**
   * The id of the last lock that one of these calls acquired; `#before` is the id of the lock that was acquired before
   * that lock. A message about the release of the lock `#before` is out of date, unless both locks can be held at the
   * same time.
   */
  #last: string | undefined;
  #before: string | undefined;
  /** A former queue node that gave no vote, and the moment of the missing vote. */
  #failed: { readonly node: number; readonly at: Instant } | undefined;
  /**
   * `true` if the queue node granted the last attempt, if only at first, and the other nodes did not, or if they refused
   * before the queue node answered. Its messages about free permits then say nothing about the other nodes: each such
   * attempt would cause the next one, as fast as the node answers.
   */
  #isOutvoted = false;
  /**
   * The number of attempts without progress since the last lock or release of a lock: they split the vote, or only other
   * nodes than the queue node refused. A refusal of the queue node between them may be due to such an attempt of another
   * waiter.
   */
  #splits = 0;
  /** The time of the last attempt that asked all nodes, or of the first call, on the monotonic clock. */
  #allAskedAt = performance.now();

  constructor(
    private readonly stores: readonly Store[],
    private readonly id: WaiterId,
    private readonly kind: LockKind = EXCLUSIVE,
  ) {
    this.#answer = new LastAnswer(id, kind);
  }

  get isEmpty(): boolean {
    return this.#waiters.length === 0;
  }

  /**
   * `true` while the nodes refuse later callers whose mode admits several holders, because such callers would starve
   * the waiter (S22).
   */
  get holdsBack(): boolean {
    return this.#holdBack?.isOn === true;
  }

  /** The waiter that asks the nodes. */
  get first(): Waiter | undefined {
    return this.#waiters[0];
  }

  /** The parameters are those of a {@link Waiter}. */
  join(since: Instant, pace: Waiter['pace']): Waiter {
    const waiter = new Waiter(since, pace);
    const { first } = this;
    this.#waiters.push(waiter);
    // Without messages the first waiter asks for all waiters, so it must ask as often as the most impatient of them.
    if (first?.sleep.isOngoing && !this.isQueued()) {
      first.isHurried = true;
      first.sleep.cutTo(pace.delay + Math.random() * pace.jitter);
    }
    return waiter;
  }

  /**
   * Milliseconds after which the first waiter must ask again, because a waiter behind it would ask then; `Infinity` if
   * there is none, or if a message tells the first waiter when to ask.
   *
   * @param random - a number from 0 to 1
   */
  askAgainWithin(random: number): number {
    if (this.isQueued()) return Infinity;
    let shortest = Infinity;
    for (let index = 1; index < this.#waiters.length; index++) {
      const { delay, jitter } = (this.#waiters[index] as Waiter).pace;
      shortest = Math.min(shortest, delay + random * jitter);
    }
    return shortest;
  }

  /** Removes a waiter that got its lock or gave up. The next waiter takes over. */
  leave(waiter: Waiter): void {
    const index = this.#waiters.indexOf(waiter);
    if (index < 0) return;
    this.#waiters.splice(index, 1);
    if (index === 0) this.first?.sleep.cutTo(0);
  }

  /** Ends the subscriptions, and leaves the queues of the nodes. */
  end(): readonly Promise<unknown>[] {
    const passing = this.#holdBack?.end() ?? [];
    const stopping = [...this.#subscriptions.values()].map((each) => askStore(stop, each));
    this.#subscriptions.clear();
    const leaving = [...this.#queuedAt].map((node) =>
      askStore((store) => store?.leave?.(this.id), this.stores[node]),
    );
    return [...passing, ...stopping, ...leaving].filter((promise) => promise !== undefined);
  }

  /**
   * Lets the first waiter take over. When the previous waiter got the lock, the queue node may have kept the position
   * for the next waiter, which then need not ask.
   *
   * @returns the milliseconds after which the lock of the previous waiter can have expired; `undefined` when the
   * position was not kept, or when it is this waiter's turn
   */
  takeOver(): number | undefined {
    const standing = this.#standing;
    const inherits = standing.state === 'inherits';
    if (inherits) this.#standing = { state: 'queued', node: standing.node };
    // With permits it is the turn of this process here if a message about another free permit came before the reply that
    // granted the previous waiter its permit. So the first waiter asks at once.
    if (this.#isTurn && this.kind.mode === 'permits') return undefined;
    this.first?.sleep.cutTo(this.#askAt - performance.now());
    return inherits ? this.lastHeld()?.retryAfter : undefined;
  }

  /**
   * Plans the next attempt of the first waiter.
   *
   * @param again - `true` if the waiter was refused before
   * @param asksAll - `true` to ask all nodes even if one would be enough
   */
  plan(waiter: Waiter, left: number, again: boolean, asksAll: boolean): AttemptPlan {
    const queueNode = this.#queueNode();
    const store = this.stores[queueNode];
    const contended = again || this.#waiters.length > 1 || store?.contended?.(this.id.keys) === true;
    const ready =
      (contended || store?.subscribed === true) && this.#subscriptionAt(queueNode)?.ready === true;
    const isTurn = this.#isTurn;
    this.#isTurn = false;
    waiter.sleep.forget();
    if (this.#askAt <= performance.now()) this.#askAt = Infinity;
    if (ready) this.#queuedAt.add(queueNode);
    const isOverdue = performance.now() - this.#allAskedAt >= ALL_ASKED_FOR_MS;
    const queueNodeFirst = contended && !isTurn && !asksAll && !isOverdue && this.stores.length > 1;
    if (!queueNodeFirst) this.#allAskedAt = performance.now();
    // A reader does not pass its position on: the next reader can be granted at the same time, and need not wait for a
    // message.
    const next = ready && this.kind.mode !== 'shared' ? this.#waiters[1] : undefined;
    return {
      left,
      queueNode,
      position: ready
        ? { waiter: this.id, waited: elapsedSince(waiter.since), next: next && elapsedSince(next.since) }
        : undefined,
      queueNodeFirst,
      isTurn,
      splits: this.#splits,
    };
  }

  /** Records the result of an attempt. */
  note({ queueNode, position }: AttemptPlan, result: AttemptResult): void {
    const { outcome, atQueueNode, wasGranted, nextIsFirst, split } = result;
    const isQueued =
      position && (atQueueNode === 'refused' || (atQueueNode === 'granted' && position.next !== undefined));
    const acquired = !(outcome instanceof Error);
    this.#isOutvoted = !acquired && (wasGranted || atQueueNode === 'pending');
    if (acquired) this.#splits = 0;
    else if (split || this.#isOutvoted) this.#splits++;
    const inherits = acquired && this.#subscriptions.get(queueNode)?.ready === true;
    this.#standing = isQueued ? { state: inherits ? 'inherits' : 'queued', node: queueNode } : POLLS;
    if (atQueueNode === 'failed') this.#failed = { node: queueNode, at: now() };
    if (atQueueNode === 'granted' && !isQueued) this.#queuedAt.delete(queueNode);
    if (acquired) this.#noteLock(outcome, nextIsFirst);
    else {
      this.first?.sleep.cutTo(this.#askAt - performance.now());
      this.#answer.refused(outcome);
      if (outcome instanceof LockHeldError && outcome.ranTick === undefined) this.#noteHolders(outcome);
    }
  }

  #noteLock(lock: AcquiredLock, nextIsFirst: boolean): void {
    this.#before = this.#last;
    this.#last = lock.id;
    // The request of the next call follows the release on the same connections, which takes one round trip. A message
    // would take two.
    if (nextIsFirst) {
      lock.follower = () => {
        this.#isTurn = true;
        this.first?.sleep.cutTo(0);
      };
    }
    this.#answer.acquired(lock);
    for (const passing of this.#holdBack?.end() ?? []) passing?.catch(() => undefined);
  }

  /** Holds later callers back if the holders could starve the first waiter (S22). */
  #noteHolders({ holders }: LockHeldError): void {
    // A waiter for several keys holds callers back until its wait ends, also while a lock that cannot starve it holds
    // another of the keys. Otherwise readers of the one key and of the other in turn could exclude it for ever.
    const goesOn = this.holdsBack && this.id.keys.length > 1 && holders.length > 0;
    if (goesOn || holders.some(({ mode }) => this.#couldStarve(mode))) {
      this.#holdBack ??= new HoldBack(
        this.stores,
        this.id,
        () => this.first && elapsedSince(this.first.since),
      );
      this.#holdBack.begin();
    } else if (holders.length > 0) this.#holdBack?.keep();
  }

  /**
   * `true` if holders of this mode can follow each other for ever, without a gap in which this process could get the
   * lock.
   */
  #couldStarve(mode: LockMode): boolean {
    return mode !== 'exclusive' && mode !== this.kind.mode;
  }

  /** `true` if the waiter is in the queue, so that a message will come. */
  isQueued(): boolean {
    const standing = this.#standing;
    return standing.state !== 'polls' && this.#subscriptions.get(standing.node)?.ready === true;
  }

  /** `true` if another request now would add the waiter to the queue. */
  canQueue(): boolean {
    return !this.isQueued() && this.#subscriptionAt(this.#queueNode())?.ready === true;
  }

  /** The error for a waiter that gives up now. */
  refusal(): LockHeldError | LockUnavailableError {
    return this.#answer.error;
  }

  /** The error with the holder, if a holder was the reason of the last refusal. */
  lastHeld(): LockHeldError | undefined {
    return this.#answer.held;
  }

  #queueNode(): number {
    const failed = this.#failed;
    if (!failed || elapsedSince(failed.at) > FAILED_FOR_MS) return queueNodeOf(this.stores);
    return queueNodeOf(this.stores, failed.node);
  }

  /** Returns the subscription at a node; `undefined` if the store has no queue, so that its waiters poll. */
  #subscriptionAt(node: number): Subscription | undefined {
    let subscription = this.#subscriptions.get(node);
    if (!subscription) {
      subscription = this.stores[node]?.listen?.(this.id, (after, turn, released) => {
        if (this.kind.mode === 'exclusive' && turn && released && released === this.#before) return;
        // An attempt, and no release, has caused the message. It may have been an attempt of this process, if a former queue
        // node still has its entry.
        const standsElsewhere =
          node !== (this.#standing.state === 'polls' ? this.#queueNode() : this.#standing.node);
        if (turn && released === undefined && (this.#isOutvoted || standsElsewhere)) return;
        // A release without a pause is that of a lock, as a rule, and not that of a failed attempt.
        if (turn && released !== undefined) this.#splits = 0;
        this.#isTurn ||= turn;
        if (after > 0) this.#askAt = performance.now() + after;
        this.first?.sleep.cutTo(after);
      });
      if (subscription) this.#subscriptions.set(node, subscription);
    }
    return subscription;
  }
}

function stop(subscription: Subscription): undefined {
  subscription.stop();
}

/**
 * The index of the queue node: the first node that answers, in the order that is the same in all processes.
 *
 * @param except - a node that gave no vote recently
 */
export function queueNodeOf(stores: readonly Store[], except?: number): number {
  for (let node = 0; node < stores.length; node++) {
    if (node !== except && stores[node]?.available) return node;
  }
  return except === 0 && stores.length > 1 ? 1 : 0;
}
