import { type Answer, askAll } from './fan-out.js';
import { checkMilliseconds } from '../core/checks.js';
import type { Lease } from '../core/lease.js';
import { elapsedSince, type Instant, now } from '../core/clock.js';
import { LockLostError, LockUnavailableError, type NodeVote, RedlockError } from '../core/errors.js';
import { quoted } from '../core/printable.js';
import { extendAll, type Verdict } from './extend-all.js';
import { isWatched, type LockState, type LockStateEvent, lockStates, releases } from '../core/lock-events.js';
import type { LockHandle } from '../core/lock-handle.js';
import type { LockStore } from '../core/ports.js';
import { type ResolvedLockOptions, SHORTEST_TTL_MS } from '../core/lock-options.js';
import { countOf, quorumOf } from './quorum.js';
import type { RestartGuard } from './restart-guard.js';
import { NO_SLOT } from './slot-list.js';
import { nodeTimeLimit, usableTtl } from './validity.js';
import type { Batch, Renewable, Watchdog } from './watchdog.js';

/** What all locks of one {@link Redlock} have in common. */
export interface RedlockSettings {
  readonly nodes: readonly LockStore[];
  /** Readable name of this process, stored with every lock. */
  readonly owner: string;
  readonly driftFactor: number;
  readonly guard: RestartGuard;
  /** Milliseconds; `undefined` derives it from each lock's ttl. */
  readonly nodeTimeout: number | undefined;
  /** Told of every lock that is lost. */
  readonly lost?: (error: LockLostError) => void;
}

/** What the held locks of one {@link Redlock} share; one reference to it in each of many thousand. */
export interface LeaseContext {
  readonly settings: RedlockSettings;
  readonly watchdog: Watchdog;
  /** Called when a lock is lost and when it is released. */
  readonly ended: (lock: HeldLock) => void;
}

/** A nested call that has joined a lock, or the handle that it was given (S18). */
export interface Joined {
  /** Whether it is a call, which ends and then releases; somebody who keeps a handle may forget to. */
  readonly isRun: boolean;
}

/** How long a lock goes on being held. */
export type HoldTerms = Pick<ResolvedLockOptions, 'renew'> & Partial<Pick<ResolvedLockOptions, 'maxHold'>>;

/**
 * The life of a lock once it is acquired: held, and unconfirmed from a renewal that failed to one that succeeds; then
 * either released or lost, and never held again.
 */
type State =
  | { readonly kind: 'held' | 'unconfirmed' | 'released' }
  | { readonly kind: 'lost'; readonly error: LockLostError };

const HELD: State = { kind: 'held' };
const UNCONFIRMED: State = { kind: 'unconfirmed' };
const RELEASED: State = { kind: 'released' };

/** The end of a lock's extensions (`maxHold`). */
interface HoldLimit {
  readonly since: Instant;
  readonly duration: number;
  /** Whether a renewal was left out for it. */
  reached: boolean;
}

/**
 * The one implementation of {@link LockHandle}: counts down the validity, renews, and tells when the lock is lost.
 *
 * A process can hold many thousands, so a lock at rest is this object and its claim: it has no timer, no promise and no
 * function of its own.
 */
export class HeldLock implements LockHandle, Renewable {
  #state: State = HELD;
  #ttl: number;
  /** When the request was sent that the present validity rests on (S2, S9). */
  #validFrom: Instant;
  /** The ttl that was asked for then; less the drift, the lock must be taken for lost after it. */
  #validTtl: number;
  readonly #renew: boolean;
  readonly #holdLimit: HoldLimit | undefined;
  /** The renewal that is planned, if one is. */
  #batch: Batch | undefined;
  /** Where it stands in that, and among all that are held. */
  batchSlot = NO_SLOT;
  heldSlot = NO_SLOT;
  /** For the end of the validity, where no renewal is sure to come before it. */
  #lapse: NodeJS.Timeout | undefined;
  /** Whether nodes are being asked to extend the lock. */
  #extending = false;
  /** What waits for the extension under way (S9: one at a time). */
  #waiting: (() => void)[] | undefined;
  /** Made when first asked for: most locks end without anybody looking at their signal. */
  #controller: AbortController | undefined;
  #release: Promise<void> | undefined;
  /** What has joined it and not left it yet (S18). */
  joined: Joined | undefined;
  /**
   * Called when the release is on its way, for the next call of this process, when it is the first of all who wait: what
   * it asks now, on the same connections, is answered behind the release.
   */
  follower: (() => void) | undefined;

  /**
   * @param validFrom - when the first request of the acquisition was sent
   */
  constructor(
    readonly claim: Lease,
    readonly fencingToken: number,
    private readonly upkeep: LeaseContext,
    validFrom: Instant,
    { renew, maxHold }: HoldTerms,
  ) {
    this.#ttl = claim.ttl;
    this.#validFrom = validFrom;
    this.#validTtl = claim.ttl;
    this.#renew = renew;
    this.#holdLimit =
      maxHold === undefined ? undefined : { since: validFrom, duration: maxHold, reached: false };
    this.#plan(this.#untilRenewal(validFrom));
  }

  get keys(): readonly string[] {
    return this.claim.keys;
  }

  get id(): string {
    return this.claim.id;
  }

  /** Milliseconds that the nodes keep the lock. */
  get ttl(): number {
    return this.#ttl;
  }

  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      this.#noticeLapse();
      if (this.#state.kind === 'lost') this.#controller.abort(this.#state.error);
    }
    return this.#controller.signal;
  }

  remaining(): number {
    if (!this.#alive()) return 0;
    return Math.max(0, this.#validFor(this.#validTtl, this.#validFrom));
  }

  /** What is left of a ttl that was asked for at `sent` (S4); negative when it is over. */
  #validFor(ttl: number, sent: Instant): number {
    return usableTtl(ttl, this.upkeep.settings.driftFactor) - elapsedSince(sent);
  }

  isHeld(): boolean {
    this.#noticeLapse();
    return this.#alive();
  }

  get state(): LockState {
    this.#noticeLapse();
    return this.#state.kind;
  }

  assertHeld(): void {
    if (!this.isHeld()) throw this.#whyNotHeld();
  }

  async extend(ttl = this.#ttl): Promise<void> {
    checkMilliseconds('ttl', ttl, SHORTEST_TTL_MS);
    this.upkeep.settings.guard.checkCovers(ttl);
    await this.#turn();
    let next = this.#ttl / 10;
    try {
      this.assertHeld();
      this.#assertExtensible();
      const sent = now();
      const verdict = await this.#extendNow(ttl, sent);
      this.assertHeld();
      if (verdict.kind === 'unconfirmed') throw this.#unconfirmed(verdict.answers);
      this.#ttl = ttl;
      next = this.#untilRenewal(sent);
    } finally {
      this.#passTurn(next);
    }
  }

  release(): Promise<void> {
    this.#release ??= isWatched(releases)
      ? releases.tracePromise(() => this.#releaseOnAll(), {
          keys: this.keys,
          id: this.id,
          fencingToken: this.fencingToken,
        })
      : this.#releaseOnAll();
    return this.#release;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }

  /** Takes the lock for lost: the signal aborts, renewal ends, and the keys end with their ttl unless they are released. */
  lose(reason: string): void {
    if (!this.#alive()) return;
    const error = new LockLostError(this.keys, reason);
    this.#rest();
    this.upkeep.ended(this);
    this.#become({ kind: 'lost', error }, () => error);
    this.#controller?.abort(error);
    this.upkeep.settings.lost?.(error);
  }

  /** Whether the lock was lost before it was released, and why. */
  get loss(): LockLostError | undefined {
    this.#noticeLapse();
    return this.#state.kind === 'lost' ? this.#state.error : undefined;
  }

  /** Held, confirmed or not, as far as has been noticed. */
  #alive(): boolean {
    return this.#state.kind === 'held' || this.#state.kind === 'unconfirmed';
  }

  /** @param error - why, for those who listen; made for them alone */
  #become(state: State, error?: () => Error): void {
    if (state.kind === this.#state.kind) return;
    this.#state = state;
    if (!lockStates.hasSubscribers) return;
    const event: LockStateEvent = {
      keys: this.keys,
      id: this.id,
      owner: this.claim.owner,
      fencingToken: this.fencingToken,
      state: state.kind,
      remaining: this.remaining(),
      ...(error ? { error: error() } : {}),
    };
    lockStates.publish(event);
  }

  #whyNotHeld(): LockLostError {
    return this.#state.kind === 'lost' ? this.#state.error : new LockLostError(this.keys, 'it was released');
  }

  /** The clock decides, not the timer, which a blocked thread delays (S10). */
  #noticeLapse(): void {
    if (this.#alive() && this.remaining() === 0) this.lose(this.#whyLapsed());
  }

  #whyLapsed(): string {
    const limit = this.#holdLimit;
    return limit?.reached && this.#state.kind === 'held'
      ? `its maxHold of ${limit.duration} ms had passed, so it was renewed no more`
      : `its validity ran out before a quorum renewed it (ttl ${this.#ttl} ms)`;
  }

  /** Part of {@link Renewable}; for the watchdog only. */
  beginRenewal(limit: number): boolean {
    this.#batch = undefined;
    this.#noticeLapse();
    if (!this.#alive()) return false;
    this.#extending = true;
    // Mostly the answers come, or the time limit, long before the validity ends; a blocked thread can make it late.
    if (this.remaining() <= limit) this.#watchValidity();
    return true;
  }

  /** Part of {@link Renewable}; for the watchdog only. */
  endRenewal(verdict: Verdict, sent: Instant): void {
    this.#take(verdict, this.#ttl, sent);
    // A node that was slow once may answer now: ask again soon, there are few chances left.
    this.#passTurn(verdict.kind === 'extended' ? this.#untilRenewal(sent) : this.#ttl / 10);
  }

  /** Milliseconds until a third of the ttl has passed since it was last asked for: time for two more attempts. */
  #untilRenewal(sent: Instant): number {
    return this.#ttl / 3 - elapsedSince(sent);
  }

  /** Plans what comes next: a renewal after `delay` milliseconds, or the end of the validity. */
  #plan(delay: number): void {
    if (!this.#alive()) return;
    const renewing = this.#renew && delay < this.remaining() && !this.#isOver(delay);
    if (renewing) {
      this.#batch = this.upkeep.watchdog.plan(this, this.#ttl, Math.max(0, delay));
    }
    if (renewing && this.#state.kind === 'held') this.#stopTimer();
    else this.#watchValidity();
  }

  /** Whether `maxHold` will have passed after `delay` milliseconds. */
  #isOver(delay: number): boolean {
    const limit = this.#holdLimit;
    if (!limit || elapsedSince(limit.since) + delay < limit.duration) return false;
    limit.reached = true;
    return true;
  }

  /** Nothing more is planned. */
  #rest(): void {
    this.#stopTimer();
    this.#leaveBatch();
  }

  #leaveBatch(): void {
    if (this.#batch) this.upkeep.watchdog.cancel(this, this.#batch);
    this.#batch = undefined;
  }

  /** A timer tells of the loss where no renewal is sure to come first (S10). */
  #watchValidity(): void {
    this.#lapse ??= setTimeout(() => {
      this.#lapse = undefined;
      this.#noticeLapse();
      if (this.#alive()) this.#watchValidity();
    }, this.remaining()).unref();
  }

  #stopTimer(): void {
    clearTimeout(this.#lapse);
    this.#lapse = undefined;
  }

  /** Waits for the extension under way, if there is one (S9: one at a time), and for those that wait already. */
  async #turn(): Promise<void> {
    if (this.#extending) {
      await new Promise<void>((resolve) => (this.#waiting ??= []).push(resolve));
      return;
    }
    this.#extending = true;
    this.#leaveBatch();
  }

  /** @param delay - milliseconds until the lock is to be renewed, if nobody waits to extend it now */
  #passTurn(delay: number): void {
    const next = this.#waiting?.shift();
    if (next) return next();
    this.#waiting = undefined;
    this.#extending = false;
    this.#plan(delay);
  }

  #assertExtensible(): void {
    const limit = this.#holdLimit;
    if (!limit || elapsedSince(limit.since) < limit.duration) return;
    throw new RedlockError(
      'MAX_HOLD_REACHED',
      `The lock on ${quoted(this.keys)} is not extended: its maxHold of ` +
        `${limit.duration} ms is over, and it ends in ${Math.ceil(this.remaining())} ms. ` +
        'Finish by then, or give it a longer `maxHold`.',
    );
  }

  /** Asks all nodes to extend this lock alone. */
  #extendNow(ttl: number, sent: Instant): Promise<Verdict> {
    const { nodes, nodeTimeout } = this.upkeep.settings;
    const limit = Math.min(nodeTimeLimit(ttl, nodeTimeout), this.remaining());
    // Before they are asked: a node whose answer is lost may keep it for so long, too, and must hear of the release (S6).
    this.claim.ttl = Math.max(this.claim.ttl, ttl);
    return new Promise((resolve) => {
      extendAll(nodes, [this.claim], ttl, limit, (_index, verdict) => {
        this.#take(verdict, ttl, sent);
        resolve(verdict);
      });
    });
  }

  /** Takes in the verdict on an extension to `ttl` that was sent at `sent`. */
  #take(verdict: Verdict, ttl: number, sent: Instant): void {
    if (verdict.kind === 'gone') this.lose('so many nodes no longer have it that no quorum is left');
    // S9: an extension that is confirmed after the validity ended comes too late, whatever the nodes say.
    if (!this.isHeld()) return;
    if (verdict.kind === 'unconfirmed') {
      this.#become(UNCONFIRMED, () => this.#unconfirmed(verdict.answers));
      return;
    }
    // A shorter extension shortens nothing (see LockNode.extend), so the longer of the two validities counts.
    if (this.#validFor(ttl, sent) > this.remaining()) {
      this.#validFrom = sent;
      this.#validTtl = ttl;
    }
    this.#become(HELD);
  }

  #unconfirmed(answers: readonly Answer<boolean>[]): LockUnavailableError {
    const reason = 'a quorum of nodes did not confirm the extension';
    return new LockUnavailableError(this.keys, reason, answers.map(voteOnExtension));
  }

  /** The release is a loss to what has joined, though not to the one that releases. */
  #tellJoined(): void {
    this.#controller ??= new AbortController();
    this.#controller.abort(
      new LockLostError(this.keys, 'it was released beneath a nested call that had joined it'),
    );
  }

  async #releaseOnAll(): Promise<void> {
    this.#noticeLapse();
    if (this.#alive()) this.#become(RELEASED);
    if (this.joined) this.#tellJoined();
    this.#rest();
    this.claim.ended = true;
    this.upkeep.ended(this);
    const { nodes, nodeTimeout } = this.upkeep.settings;
    const quorum = quorumOf(nodes.length);
    const released = askAll(
      nodes,
      nodeTimeLimit(this.#ttl, nodeTimeout),
      (node) => node.release(this.claim),
      (answers) => countOf(answers, ({ error }) => !error) >= quorum,
    );
    if (this.claim.keepFor === 0) this.follower?.();
    await released;
  }
}

function voteOnExtension(answer: Answer<boolean>): NodeVote {
  const { node, error = new Error('no longer has the lock') } = answer;
  return !answer.error && answer.reply
    ? { node: node.name, vote: 'granted' }
    : { node: node.name, vote: 'error', error };
}
