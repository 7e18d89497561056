import { elapsedSince, type Instant, now } from '../../core/clock.js';
import { LockHeldError, LockUnavailableError } from '../../core/errors.js';
import type { LockHolder } from '../../core/lock-info.js';
import { EXCLUSIVE, type LockKind, type LockMode } from '../../core/lock-mode.js';
import type { Store, Subscription } from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import type { AttemptPlan, AttemptResult } from '../acquire.js';
import { HeldLock } from '../held-lock.js';
import { WakeableSleep } from './wakeable-sleep.js';

/** For how long a node that gave no vote is not asked to keep the order, in milliseconds. */
const FAILED_FOR_MS = 1_000;

/** How soon a mark is tried again that could not be left, since one of somebody who came earlier stands, in milliseconds. */
const MARK_AGAIN_MS = 50;

/** That somebody held the lock, as nodes answered at some moment. */
interface Holding {
  readonly owner: string;
  /** Milliseconds from then on. */
  readonly retryAfter: number;
  readonly holders: readonly LockHolder[];
  readonly permitsSeen?: number | undefined;
  readonly at: Instant;
}

/** One call that waits for a lock. */
export class Waiter {
  readonly sleep = new WakeableSleep();

  /** @param since - when the call was made */
  constructor(readonly since: Instant) {}
}

/**
 * The calls of this process that wait for the same keys, in the order in which they came. Only the first of them asks
 * the nodes; it stands for all of them in the queue at the queue node, the first node in order that answers.
 */
export class LocalQueue {
  readonly #waiters: Waiter[] = [];
  /** By the index of the node. */
  readonly #subscriptions = new Map<number, Subscription>();
  /** Nodes in whose queues the waiter may stand. */
  readonly #queuedAt = new Set<number>();
  /** The node in whose queue it stands, as far as is known. */
  #place: number | undefined;
  /** It is our turn, as far as we know. */
  #turn = false;
  /**
   * When the first waiter is to ask, by the monotonic clock and the last message that said so. It outlives the waiter that
   * was first when that came, and requests sent before: the node takes it that somebody asks then.
   */
  #askAt = Infinity;
  /** Why the lock could not be had when the nodes were last asked. That it is held is not an error yet: those cost. */
  #refusal: LockUnavailableError | Holding | undefined;
  /** The place was taken over for the next waiter when the one before was granted. */
  #inherited = false;
  /**
   * The ids of the locks that these calls had last, and before: the message of the release of that one is no news, unless it
   * may have been held beside the last one.
   */
  #last: string | undefined;
  #before: string | undefined;
  /** A node that gave no vote when it was the queue node, and since when. */
  #failed: { readonly node: number; readonly at: Instant } | undefined;
  #holdsBack = false;
  /** Whether marks that do not stand yet are tried again. */
  #marks = false;
  /** Where another's mark stands, which can go at any time. */
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

  /** Whether those are held back at the nodes who come later in another mode that several can hold at a time (S22). */
  get holdsBack(): boolean {
    return this.#holdsBack;
  }

  /** The waiter that asks the nodes. */
  get first(): Waiter | undefined {
    return this.#waiters[0];
  }

  /** @param since - when the call was made */
  join(since: Instant): Waiter {
    const waiter = new Waiter(since);
    this.#waiters.push(waiter);
    return waiter;
  }

  /** The waiter has got its lock, or given up. The next one takes over. */
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
   * When the waiter before was granted, the queue node took the next one in line, who then need not ask.
   *
   * @returns the milliseconds after which that grant can have lapsed; `undefined` if there is none, or it is the next one's turn
   */
  takeOver(): number | undefined {
    const inherited = this.#inherited;
    this.#inherited = false;
    // The grant left a permit free, and its message came before its reply.
    if (this.#turn && this.kind.mode === 'permits') return undefined;
    this.first?.sleep.cutTo(this.#askAt - performance.now());
    return inherited ? this.lastHeld()?.retryAfter : undefined;
  }

  /**
   * How the first waiter asks next.
   *
   * @param again - it was refused before
   * @param asksAll - ask all nodes, also where one would do
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
    // A reader goes with those before it: it need not wait until it is told.
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

  /** What came of asking like that. */
  note({ queueNode, position }: AttemptPlan, { outcome, atQueueNode, nextIsFirst }: AttemptResult): void {
    const inLine =
      position && (atQueueNode === 'refused' || (atQueueNode === 'granted' && position.next !== undefined));
    this.#place = inLine ? queueNode : undefined;
    if (atQueueNode === 'failed') this.#failed = { node: queueNode, at: now() };
    if (atQueueNode === 'granted' && !inLine) this.#queuedAt.delete(queueNode);
    const held = outcome instanceof HeldLock;
    if (held) {
      this.#before = this.#last;
      this.#last = outcome.id;
      // One round trip; to wait for the message takes two.
      if (nextIsFirst) {
        outcome.follower = () => {
          this.#turn = true;
          this.first?.sleep.cutTo(0);
        };
      }
    } else this.first?.sleep.cutTo(this.#askAt - performance.now());
    this.#inherited = held && this.isQueued();
    // That a tick has run is no answer to those who wait without one.
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

  /** One of these calls, of which the nodes have said nothing yet. */
  #holderOf({ id, ttl, fencingToken, mode, slot }: HeldLock): LockHolder {
    const { owner } = this.id;
    const holder = { id, owner, since: new Date(), remaining: ttl, fencingToken, mode };
    return slot === undefined ? holder : { ...holder, slot };
  }

  /** Who may hold permits beside the one that was granted, as far as the nodes named them when they refused last. */
  #others(): readonly LockHolder[] {
    const refusal = this.#refusal;
    if (this.kind.mode !== 'permits' || !refusal || refusal instanceof LockUnavailableError) return [];
    const since = elapsedSince(refusal.at);
    const left = refusal.holders.map((holder) => ({ ...holder, remaining: holder.remaining - since }));
    return left.filter(({ mode, remaining }) => mode === 'permits' && remaining > 0);
  }

  /** Whether holders of this mode can follow each other for ever without a gap in which we could be granted. */
  #couldStarve(mode: LockMode): boolean {
    return mode !== 'exclusive' && mode !== this.kind.mode;
  }

  /** At every node: those who come later get a quorum without the queue node. */
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
      // Advice to the node: it is told again in a second.
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

  /** Whether the waiter stands in line, so that a message will come. */
  isQueued(): boolean {
    return this.#place !== undefined && this.#subscriptions.get(this.#place)?.ready === true;
  }

  /** Whether asking again at once would put it in line. */
  canQueue(): boolean {
    return !this.isQueued() && this.#subscriptionAt(this.#queueNode())?.ready === true;
  }

  /** Why a waiter that gives up now does not get the lock. */
  refusal(): LockHeldError | LockUnavailableError {
    const refusal = this.#refusal;
    if (!refusal)
      return new LockUnavailableError(this.id.keys, 'no node has answered those who came earlier');
    return refusal instanceof LockUnavailableError ? refusal : this.#heldError(refusal);
  }

  /** Who held it when the nodes were last asked, if that is how they answered. */
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

  /** `undefined` where a store keeps no queue: then its waiters poll. */
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
 * The index of the node at which those who wait queue: the first that answers, in the order in which all processes list
 * them.
 *
 * @param except - one that gave no vote a moment ago
 */
export function queueNodeOf(stores: readonly Store[], except?: number): number {
  for (let node = 0; node < stores.length; node++) {
    if (node !== except && stores[node]?.available) return node;
  }
  return except === 0 && stores.length > 1 ? 1 : 0;
}
