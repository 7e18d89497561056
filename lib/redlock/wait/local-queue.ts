import { elapsedSince, type Instant, now } from '../../core/clock.js';
import { LockHeldError, LockUnavailableError } from '../../core/errors.js';
import type { LockHolder } from '../../core/lock-info.js';
import type { ResolvedRetry } from '../../core/lock-options.js';
import { EXCLUSIVE, type LockKind, type LockMode } from '../../core/lock-mode.js';
import type { Store, Subscription } from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import type { AttemptPlan, AttemptResult } from '../acquire.js';
import { begun } from '../fan-out.js';
import { HeldLock } from '../held-lock.js';
import { WakeableSleep } from './wakeable-sleep.js';

/** Milliseconds for which a node that gave no vote is not used as the queue node. */
const FAILED_FOR_MS = 1_000;

/**
 * `holdBack` sets the mark of a waiter in a store, and the store then refuses later callers (S22). A store may keep
 * only the mark of the earliest waiter. A later waiter then calls `holdBack` again after this many milliseconds.
 */
const MARK_AGAIN_MS = 50;

/** The holders of the lock in the last answers of the nodes, at the moment `at`. */
interface Holding {
  readonly owner: string;
  /** Milliseconds, counted from `at`. */
  readonly retryAfter: number;
  readonly holders: readonly LockHolder[];
  readonly permitsSeen?: number | undefined;
  readonly at: Instant;
}

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
  /** The node whose queue has the entry of these calls, as far as this process knows. */
  #queuedIn: number | undefined;
  /** `true` if it is the turn of this process, as far as this process knows. */
  #turn = false;
  /**
   * The time at which the first waiter must ask, by the monotonic clock: the last message with a delay has set it. It
   * stays valid when another waiter becomes the first or asks earlier, because the node still expects a request at this
   * time.
   */
  #askAt = Infinity;
  /**
   * The result of the last request. A refusal because of a holder is kept without an error object, because an error is
   * expensive to make.
   */
  #refusal: LockUnavailableError | Holding | undefined;
  /** `true` if the previous grant kept the position in the queue for the next waiter. */
  #inherited = false;
  /**
   * The id of the last lock that one of these calls acquired; `#before` is the id of the lock that was acquired before
   * that lock. A message about the release of the lock `#before` is out of date, unless both locks can be held at the
   * same time.
   */
  #last: string | undefined;
  #before: string | undefined;
  /** A former queue node that gave no vote, and the moment of the missing vote. */
  #failed: { readonly node: number; readonly at: Instant } | undefined;
  #holdsBack = false;
  /** `true` while the process tries again to set the mark of `holdBack` in the stores that do not have the mark. */
  #marks = false;
  /**
   * Stores that keep the mark of another waiter. That waiter can stop waiting at any time, so the process tries these
   * stores again.
   */
  readonly #unmarked = new Set<Store>();
  #markTimer: NodeJS.Timeout | undefined;

  constructor(
    private readonly stores: readonly Store[],
    private readonly id: WaiterId,
    private readonly kind: LockKind = EXCLUSIVE,
  ) {}

  get isEmpty(): boolean {
    return this.#waiters.length === 0;
  }

  /**
   * `true` while the nodes refuse later callers whose mode admits several holders, because such callers would starve
   * the waiter (S22).
   */
  get holdsBack(): boolean {
    return this.#holdsBack;
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
    this.#waiters.splice(index, 1);
    if (index === 0) this.first?.sleep.cutTo(0);
  }

  /** Ends the subscriptions, and leaves the queues of the nodes. */
  end(): readonly Promise<unknown>[] {
    const passing = this.#letPass();
    const stopping = [...this.#subscriptions.values()].map((each) => begun(stop, each));
    this.#subscriptions.clear();
    const leaving = [...this.#queuedAt].map((node) =>
      begun((store) => store?.leave?.(this.id), this.stores[node]),
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
    const inherited = this.#inherited;
    this.#inherited = false;
    // With permits, `#turn` is `true` here if a message about another free permit came before the reply that granted
    // the previous waiter its permit. So the first waiter asks at once.
    if (this.#turn && this.kind.mode === 'permits') return undefined;
    this.first?.sleep.cutTo(this.#askAt - performance.now());
    return inherited ? this.lastHeld()?.retryAfter : undefined;
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
    const turn = this.#turn;
    this.#turn = false;
    waiter.sleep.forget();
    if (this.#askAt <= performance.now()) this.#askAt = Infinity;
    if (ready) this.#queuedAt.add(queueNode);
    // A reader does not pass its position on: the next reader can be granted at the same time, and need not wait for a
    // message.
    const next = ready && this.kind.mode !== 'shared' ? this.#waiters[1] : undefined;
    return {
      left,
      queueNode,
      position: ready
        ? { waiter: this.id, waited: elapsedSince(waiter.since), next: next && elapsedSince(next.since) }
        : undefined,
      queueNodeFirst: contended && !turn && !asksAll && this.stores.length > 1,
    };
  }

  /** Records the result of an attempt. */
  note({ queueNode, position }: AttemptPlan, { outcome, atQueueNode, nextIsFirst }: AttemptResult): void {
    const isQueued =
      position && (atQueueNode === 'refused' || (atQueueNode === 'granted' && position.next !== undefined));
    this.#queuedIn = isQueued ? queueNode : undefined;
    if (atQueueNode === 'failed') this.#failed = { node: queueNode, at: now() };
    if (atQueueNode === 'granted' && !isQueued) this.#queuedAt.delete(queueNode);
    const held = outcome instanceof HeldLock;
    if (held) {
      this.#before = this.#last;
      this.#last = outcome.id;
      // The request of the next call follows the release on the same connections, which takes one round trip. A message
      // would take two.
      if (nextIsFirst) {
        outcome.follower = () => {
          this.#turn = true;
          this.first?.sleep.cutTo(0);
        };
      }
    } else this.first?.sleep.cutTo(this.#askAt - performance.now());
    this.#inherited = held && this.isQueued();
    // The refusal because of a tick concerns only calls for that tick.
    if (outcome instanceof LockHeldError && outcome.ranTick !== undefined) return;
    if (outcome instanceof LockUnavailableError) {
      this.#refusal = outcome;
    } else if (held) {
      const holders = [...this.#others(), this.#holderOf(outcome)];
      const retryAfter = Math.min(outcome.ttl, ...holders.map(({ remaining }) => remaining));
      this.#refusal = { owner: this.id.owner, retryAfter, holders, at: now() };
      for (const passing of this.#letPass()) passing?.catch(() => undefined);
    } else {
      const { owner, retryAfter, holders, permitsSeen } = outcome;
      this.#refusal = { owner, retryAfter, holders, permitsSeen, at: now() };
      // A waiter for several keys keeps its marks until its wait ends, also while a lock that cannot starve it holds
      // another of the keys. Otherwise readers of the one key and of the other in turn could exclude it for ever.
      const keepsMarks = this.#holdsBack && this.id.keys.length > 1 && holders.length > 0;
      if (keepsMarks || holders.some(({ mode }) => this.#couldStarve(mode))) this.#holdBack();
      else if (holders.length > 0) this.#stopMarking();
    }
  }

  /** Describes a holder of this process that no node has named yet. */
  #holderOf({ id, ttl, fencingToken, mode, slot }: HeldLock): LockHolder {
    const { owner } = this.id;
    const holder = { id, owner, since: new Date(), remaining: ttl, fencingToken, mode };
    return slot === undefined ? holder : { ...holder, slot };
  }

  /** The holders of other permits in the last refusal. */
  #others(): readonly LockHolder[] {
    const refusal = this.#refusal;
    if (this.kind.mode !== 'permits' || !refusal || refusal instanceof LockUnavailableError) return [];
    const since = elapsedSince(refusal.at);
    const left = refusal.holders.map((holder) => ({ ...holder, remaining: holder.remaining - since }));
    return left.filter(({ mode, remaining }) => mode === 'permits' && remaining > 0);
  }

  /**
   * `true` if holders of this mode can follow each other for ever, without a gap in which this process could get the
   * lock.
   */
  #couldStarve(mode: LockMode): boolean {
    return mode !== 'exclusive' && mode !== this.kind.mode;
  }

  /** Asks every node to refuse later callers, because later callers could get a quorum without the queue node. */
  #holdBack(): void {
    this.#holdsBack = true;
    this.#marks = true;
    for (const store of this.stores) void this.#mark(store);
  }

  async #mark(store: Store): Promise<void> {
    const waiter = this.first;
    if (!waiter) return;
    try {
      const stands = await store.holdBack?.(this.id, elapsedSince(waiter.since));
      if (stands === false && this.#marks) this.#markAgain(store);
    } catch {
      // Ignore a failure: the mark is only a hint for the node, and is set again after a second.
    }
  }

  #markAgain(store: Store): void {
    this.#unmarked.add(store);
    this.#markTimer ??= setTimeout(() => {
      const stores = [...this.#unmarked];
      this.#markTimer = undefined;
      this.#unmarked.clear();
      for (const each of stores) void this.#mark(each);
    }, MARK_AGAIN_MS).unref();
  }

  #stopMarking(): void {
    this.#marks = false;
    clearTimeout(this.#markTimer);
    this.#markTimer = undefined;
    this.#unmarked.clear();
  }

  #letPass(): (Promise<void> | undefined)[] {
    this.#stopMarking();
    if (!this.#holdsBack) return [];
    this.#holdsBack = false;
    return this.stores.map((store) => begun(() => store.letPass?.(this.id), store));
  }

  /** `true` if the waiter is in the queue, so that a message will come. */
  isQueued(): boolean {
    return this.#queuedIn !== undefined && this.#subscriptions.get(this.#queuedIn)?.ready === true;
  }

  /** `true` if another request now would add the waiter to the queue. */
  canQueue(): boolean {
    return !this.isQueued() && this.#subscriptionAt(this.#queueNode())?.ready === true;
  }

  /** The error for a waiter that gives up now. */
  refusal(): LockHeldError | LockUnavailableError {
    const refusal = this.#refusal;
    if (!refusal)
      return new LockUnavailableError(
        this.id.keys,
        'no node has answered the earlier calls of this process for the lock',
      );
    return refusal instanceof LockUnavailableError ? refusal : this.#heldError(refusal);
  }

  /** The error with the holder, if a holder was the reason of the last refusal. */
  lastHeld(): LockHeldError | undefined {
    const refusal = this.#refusal;
    return refusal && !(refusal instanceof LockUnavailableError) ? this.#heldError(refusal) : undefined;
  }

  #heldError({ owner, retryAfter, holders, permitsSeen, at }: Holding): LockHeldError {
    const left = Math.max(0, retryAfter - elapsedSince(at));
    return new LockHeldError(this.id.keys, owner, left, { holders, permitsSeen, kind: this.kind });
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
        this.#turn ||= turn;
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
