import { elapsedSince, type Instant, now } from '../../core/clock.js';
import { LockHeldError, LockUnavailableError } from '../../core/errors.js';
import type { LockHolder } from '../../core/lock-info.js';
import { EXCLUSIVE, type LockKind, type LockMode } from '../../core/lock-mode.js';
import type { Store, Subscription } from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import type { AttemptPlan, AttemptResult } from '../acquire.js';
import { HeldLock } from '../held-lock.js';
import { WakeableSleep } from './wakeable-sleep.js';

/** Milliseconds for which a node that gave no vote is not used as the queue node. */
const FAILED_FOR_MS = 1_000;

/**
 * Milliseconds until the next attempt to set a mark that the store refused, because the mark of an earlier waiter is
 * set.
 */
const MARK_AGAIN_MS = 50;

/** A holder of the lock, as the nodes answered at some moment. */
interface Holding {
  readonly owner: string;
  /** Milliseconds from that moment on. */
  readonly retryAfter: number;
  readonly holders: readonly LockHolder[];
  readonly permitsSeen?: number | undefined;
  readonly at: Instant;
}

/** One call that waits for a lock. */
export class Waiter {
  readonly sleep = new WakeableSleep();

  /** @param since - the moment of the call */
  constructor(readonly since: Instant) {}
}

/**
 * The calls of this process that wait for the same keys, in the order of their arrival. Only the first of them asks the
 * nodes, and represents all of them in the queue at the queue node, the first node in order that answers.
 */
export class LocalQueue {
  readonly #waiters: Waiter[] = [];
  /** Subscriptions by the index of the node. */
  readonly #subscriptions = new Map<number, Subscription>();
  /** The nodes whose queues may contain the waiter. */
  readonly #queuedAt = new Set<number>();
  /** The node whose queue contains the waiter, as far as is known. */
  #queuedIn: number | undefined;
  /** `true` if it is our turn, as far as is known. */
  #turn = false;
  /**
   * The time at which the first waiter must ask, by the monotonic clock, from the last message with a delay. It stays
   * when another waiter becomes the first, and after earlier requests: the node expects that somebody asks then.
   */
  #askAt = Infinity;
  /** The result of the last request. A refusal by a holder is not an error yet, because errors are expensive. */
  #refusal: LockUnavailableError | Holding | undefined;
  /** `true` if the previous grant kept the position in the queue for the next waiter. */
  #inherited = false;
  /**
   * The ids of the last lock of these calls, and of the one before. The message of the earlier one's release is old,
   * unless both locks may have been held at the same time.
   */
  #last: string | undefined;
  #before: string | undefined;
  /** A former queue node that gave no vote, and the moment of that. */
  #failed: { readonly node: number; readonly at: Instant } | undefined;
  #holdsBack = false;
  /** `true` while missing marks are set again. */
  #marks = false;
  /** Stores with the mark of another waiter, which can end at any time. */
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

  /** `true` while the nodes keep out later callers of another mode that several can hold at a time (S22). */
  get holdsBack(): boolean {
    return this.#holdsBack;
  }

  /** The waiter that asks the nodes. */
  get first(): Waiter | undefined {
    return this.#waiters[0];
  }

  /** @param since - the moment of the call */
  join(since: Instant): Waiter {
    const waiter = new Waiter(since);
    this.#waiters.push(waiter);
    return waiter;
  }

  /** Removes a waiter that got its lock or gave up. The next one takes over. */
  leave(waiter: Waiter): void {
    const index = this.#waiters.indexOf(waiter);
    this.#waiters.splice(index, 1);
    if (index === 0) this.first?.sleep.cutTo(0);
  }

  /** Stops listening, and leaves the queues of the nodes. */
  end(): readonly Promise<unknown>[] {
    const passing = this.#letPass();
    for (const subscription of this.#subscriptions.values()) subscription.stop();
    this.#subscriptions.clear();
    const leaving = [...this.#queuedAt].map((node) => this.stores[node]?.leave?.(this.id));
    return [...passing, ...leaving].filter((promise) => promise !== undefined);
  }

  /**
   * Lets the first waiter take over. When the previous one was granted, the queue node kept the position for the next
   * one, which then need not ask.
   *
   * @returns the milliseconds after which that grant can have expired; `undefined` without such a grant, or if it is
   * this waiter's turn
   */
  takeOver(): number | undefined {
    const inherited = this.#inherited;
    this.#inherited = false;
    // The grant left a permit free, and the message about it came before the reply.
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
    // Not for a reader: the next reader can be granted at the same time, and need not wait for a message.
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
    const inLine =
      position && (atQueueNode === 'refused' || (atQueueNode === 'granted' && position.next !== undefined));
    this.#queuedIn = inLine ? queueNode : undefined;
    if (atQueueNode === 'failed') this.#failed = { node: queueNode, at: now() };
    if (atQueueNode === 'granted' && !inLine) this.#queuedAt.delete(queueNode);
    const held = outcome instanceof HeldLock;
    if (held) {
      this.#before = this.#last;
      this.#last = outcome.id;
      // The next request follows the release on the same connections: one round trip. A message would take two.
      if (nextIsFirst) {
        outcome.follower = () => {
          this.#turn = true;
          this.first?.sleep.cutTo(0);
        };
      }
    } else this.first?.sleep.cutTo(this.#askAt - performance.now());
    this.#inherited = held && this.isQueued();
    // A tick that has run is no result for waiters without a tick.
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
      if (holders.some(({ mode }) => this.#couldStarve(mode))) this.#holdBack();
      else if (holders.length > 0) this.#stopMarking();
    }
  }

  /** A holder from this queue, which no node has named yet. */
  #holderOf({ id, ttl, fencingToken, mode, slot }: HeldLock): LockHolder {
    const { owner } = this.id;
    const holder = { id, owner, since: new Date(), remaining: ttl, fencingToken, mode };
    return slot === undefined ? holder : { ...holder, slot };
  }

  /** Holders of other permits, as the nodes named them in the last refusal. */
  #others(): readonly LockHolder[] {
    const refusal = this.#refusal;
    if (this.kind.mode !== 'permits' || !refusal || refusal instanceof LockUnavailableError) return [];
    const since = elapsedSince(refusal.at);
    const left = refusal.holders.map((holder) => ({ ...holder, remaining: holder.remaining - since }));
    return left.filter(({ mode, remaining }) => mode === 'permits' && remaining > 0);
  }

  /** `true` if holders of this mode can follow each other for ever, without a gap in which we could be granted. */
  #couldStarve(mode: LockMode): boolean {
    return mode !== 'exclusive' && mode !== this.kind.mode;
  }

  /** Asks every node, because later callers could get a quorum without the queue node. */
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
      // The mark is advice to the node, and is set again in a second.
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
    return this.stores.map((store) => store.letPass?.(this.id));
  }

  /** `true` if the waiter stands in the queue, so that a message will come. */
  isQueued(): boolean {
    return this.#queuedIn !== undefined && this.#subscriptions.get(this.#queuedIn)?.ready === true;
  }

  /** `true` if another request at once would add the waiter to the queue. */
  canQueue(): boolean {
    return !this.isQueued() && this.#subscriptionAt(this.#queueNode())?.ready === true;
  }

  /** The error for a waiter that gives up now. */
  refusal(): LockHeldError | LockUnavailableError {
    const refusal = this.#refusal;
    if (!refusal) return new LockUnavailableError(this.id.keys, 'no node has answered the earlier waiters');
    return refusal instanceof LockUnavailableError ? refusal : this.#heldError(refusal);
  }

  /** The error with the holder, if the last request was refused because of one. */
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

  /** `undefined` if the store has no queue: its waiters poll. */
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

/**
 * The index of the queue node: the first node that answers, in the order that all processes use.
 *
 * @param except - a node that gave no vote a moment ago
 */
export function queueNodeOf(stores: readonly Store[], except?: number): number {
  for (let node = 0; node < stores.length; node++) {
    if (node !== except && stores[node]?.available) return node;
  }
  return except === 0 && stores.length > 1 ? 1 : 0;
}
