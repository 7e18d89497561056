import { checkMilliseconds } from '../core/checks.js';
import { elapsedSince, type Instant, now } from '../core/clock.js';
import { LockLostError, LockUnavailableError, RedlockError } from '../core/errors.js';
import type { Lease } from '../core/lease.js';
import { quoted } from '../core/printable.js';
import {
  isWatched,
  type LockState,
  type LockStateEvent,
  lockStates,
  releases,
  slotsOf,
} from '../core/lock-events.js';
import type { LockHandle } from '../core/lock-handle.js';
import type { LockMode } from '../core/lock-mode.js';
import { type ResolvedLockOptions, SHORTEST_TTL_MS } from '../core/lock-options.js';
import { type Extensible, Extension, type Verdict } from './extend.js';
import type { Nodes } from './nodes.js';
import { release } from './release.js';
import type { RestartGuard } from './restart-guard.js';
import { NO_SLOT } from '../core/slot-list.js';
import { checkTtl } from '../core/ttl-rule.js';
import { nodeTimeLimit, usableTtl } from './validity.js';
import type { Batch, Renewable, Watchdog } from './watchdog.js';

/** Settings of all locks of one {@link Redlock}. */
export interface RedlockSettings {
  /** Readable name of this process, stored with every lock. */
  readonly owner: string;
  readonly driftFactor: number;
  readonly guard: RestartGuard;
  /** Milliseconds; `undefined` derives it from each lock's ttl. */
  readonly nodeTimeout: number | undefined;
  /** Called for every lost lock. */
  readonly lost?: (error: LockLostError) => void;
}

/** Shared by the held locks of one {@link Redlock}: each of many thousand locks keeps one reference to it. */
export interface LeaseContext {
  readonly settings: RedlockSettings;
  readonly nodes: Nodes;
  readonly watchdog: Watchdog;
  /** Called when a lock is lost and when it is released. */
  readonly ended: (lock: HeldLock) => void;
}

/** A nested call that has joined a lock, or the handle that it was given (S18). */
export interface Joined {
  /** `true` for a call, which releases when it ends. The owner of a handle may forget to release. */
  readonly isRun: boolean;
}

/** The options that decide how long a lock is held. */
export type HoldTerms = Pick<ResolvedLockOptions, 'renew' | 'lock'> &
  Partial<Pick<ResolvedLockOptions, 'maxHold'>>;

const LOADED_AT = Date.now();

/** If a lock is renewed, and how long it may be extended (`maxHold`). */
interface HoldLimit {
  readonly renew: boolean;
  readonly since: Instant | undefined;
  readonly duration: number;
  /** `true` once a renewal was left out because of the limit. */
  reached: boolean;
}

/** Most locks have no limit, and all of those share these objects. */
const RENEWED: HoldLimit = { renew: true, since: undefined, duration: Infinity, reached: false };
const NOT_RENEWED: HoldLimit = { ...RENEWED, renew: false };

/**
 * The only implementation of {@link LockHandle}: counts down the validity, renews, and reports a loss.
 *
 * A process can hold many thousands of locks. A lock at rest is therefore this object and its lease: it has no timer,
 * no promise and no function of its own. A field that few locks need is not `#private`, and not set before it is
 * needed: V8 reserves space in each object for every `#private` name.
 */
export class HeldLock implements LockHandle, Renewable, Extensible {
  /**
   * The state of an acquired lock. It is held, and unconfirmed between a renewal that failed and one that succeeds.
   * Then it is released, or lost with the error that gives the reason, and never held again.
   */
  #state: Exclude<LockState, 'lost'> | LockLostError = 'held';
  /** The name of the declared lock. */
  private declaredAs: string | undefined;
  /** The lock's ttl after `extend` was called. The lease has the longest ttl requested so far. */
  private ownTtl: number | undefined;
  /**
   * The end of the validity, on both clocks of this machine (S11). Whole milliseconds, and wall-clock time counted from
   * {@link LOADED_AT}, because V8 stores a small integer in the object itself. Saves 32 bytes of heap for each held
   * lock (`npm run bench -- held`).
   */
  #endsAt = 0;
  #endsAtWall = 0;
  readonly #limit: HoldLimit;
  /** The planned work, if any: the renewal, or a check at the end of the validity. */
  #batch: Batch | undefined;
  /** The slot in that batch; below it the slot among all held locks. */
  batchSlot = NO_SLOT;
  heldSlot = NO_SLOT;
  /** A timer for the end of the validity, used when the end is near and no renewal is sure to come first. */
  private lapse: NodeJS.Timeout | undefined;
  /** The calls that wait for the current extension (S9: one at a time), if there is one. */
  #waiting: (() => void)[] | undefined;
  /** Made on first use: nobody reads the signal of most locks. */
  private controller: AbortController | undefined;
  #release: Promise<void> | undefined;
  /** The nested call that joined the lock and has not left it (S18). */
  joined: Joined | undefined;
  /**
   * Called when the release has been sent, for the process's next call, if that is the first of all waiters. Its
   * request uses the same connections, so the nodes answer it after the release.
   */
  follower: (() => void) | undefined;

  /**
   * @param validFrom - the moment of the first request of the acquisition
   * @param taken - milliseconds since then: the caller has just read the clocks
   */
  constructor(
    readonly lease: Lease,
    readonly fencingToken: number,
    private readonly context: LeaseContext,
    validFrom: Instant,
    taken: number,
    { renew, maxHold, lock }: HoldTerms,
  ) {
    if (lock !== undefined) this.declaredAs = lock;
    this.#limit =
      maxHold !== undefined
        ? { renew, since: validFrom, duration: maxHold, reached: false }
        : renew
          ? RENEWED
          : NOT_RENEWED;
    const usable = this.#validFor(lease.ttl, validFrom);
    this.#plan(lease.ttl / 3 - taken, usable - taken);
  }

  get keys(): readonly string[] {
    return this.lease.keys;
  }

  get id(): string {
    return this.lease.id;
  }

  get mode(): LockMode {
    return this.lease.kind.mode;
  }

  get slot(): number | undefined {
    const { slots } = this.lease;
    return slots?.length === 1 ? slots[0] : undefined;
  }

  get slots(): readonly number[] | undefined {
    return this.lease.slots;
  }

  /** The number of permits that another caller asked for, if it was larger. */
  get permitsSeen(): number | undefined {
    return this.lease.permitsSeen;
  }

  /** Milliseconds that the nodes keep the lock. */
  get ttl(): number {
    return this.ownTtl ?? this.lease.ttl;
  }

  get signal(): AbortSignal {
    if (!this.controller) {
      this.controller = new AbortController();
      const { loss } = this;
      if (loss) this.controller.abort(loss);
    }
    return this.controller.signal;
  }

  remaining(): number {
    if (!this.#alive()) return 0;
    return Math.max(0, Math.min(this.#endsAt - performance.now(), this.#endsAtWall + LOADED_AT - Date.now()));
  }

  /**
   * Makes the lock valid for a ttl that was requested at `sent` (S2, S4), unless it is valid for longer already.
   *
   * @returns the validity in milliseconds, counted from `sent`
   */
  #validFor(ttl: number, sent: Instant): number {
    const usable = usableTtl(ttl, this.context.settings.driftFactor);
    // Rounded down, to be safe.
    this.#endsAt = Math.max(this.#endsAt, Math.floor(sent.monotonic + usable));
    this.#endsAtWall = Math.max(this.#endsAtWall, Math.floor(sent.wall - LOADED_AT + usable));
    return usable;
  }

  isHeld(): boolean {
    this.#noticeLapse();
    return this.#alive();
  }

  get state(): LockState {
    return this.loss ? 'lost' : (this.#state as LockState);
  }

  assertHeld(): void {
    if (!this.isHeld()) throw this.#whyNotHeld();
  }

  async extend(ttl = this.ttl): Promise<void> {
    const { settings, nodes } = this.context;
    checkMilliseconds('ttl', ttl, SHORTEST_TTL_MS);
    checkTtl(nodes.stores, ttl);
    settings.guard.checkCovers(ttl);
    await this.#turn();
    let next = this.ttl / 10;
    try {
      this.assertHeld();
      this.#assertExtensible();
      const sent = now();
      this.ownTtl = this.ttl;
      // A node may store the new ttl although its answer is lost, so a release must be repeated for that long.
      this.lease.ttl = Math.max(this.lease.ttl, ttl);
      const limit = Math.min(nodeTimeLimit(ttl, settings.nodeTimeout), this.remaining());
      const verdict = await new Promise<Verdict>((resolve) => {
        const extended = (answer: Verdict): void => {
          this.#take(answer, ttl, sent);
          resolve(answer);
        };
        new Extension(nodes, { lease: this.lease, extended }, ttl, limit, sent);
      });
      this.assertHeld();
      if (verdict.kind === 'unconfirmed') throw this.#unconfirmed(verdict);
      this.ownTtl = ttl;
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
          mode: this.mode,
          ...slotsOf(this),
        })
      : this.#releaseOnAll();
    return this.#release;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }

  /**
   * Marks the lock as lost: the signal aborts and renewal ends. The keys end with their ttl unless they are released.
   */
  lose(reason: string): void {
    if (!this.#alive()) return;
    const error = new LockLostError(this.keys, reason, this.declaredAs);
    this.#rest();
    this.context.ended(this);
    this.#become(error);
    this.controller?.abort(error);
    this.context.settings.lost?.(error);
  }

  /** The error of the loss, if the lock was lost before it was released. */
  get loss(): LockLostError | undefined {
    this.#noticeLapse();
    return this.#state instanceof LockLostError ? this.#state : undefined;
  }

  /** `true` for a held lock, confirmed or not, whose loss has not been noticed. */
  #alive(): boolean {
    return this.#state === 'held' || this.#state === 'unconfirmed';
  }

  /** @param error - makes the reason for listeners; not called without them */
  #become(state: Exclude<LockState, 'lost'> | LockLostError, error?: () => Error): void {
    if (state === this.#state) return;
    this.#state = state;
    if (!lockStates.hasSubscribers) return;
    const isLost = state instanceof LockLostError;
    const event: LockStateEvent = {
      keys: this.keys,
      id: this.id,
      owner: this.lease.owner,
      fencingToken: this.fencingToken,
      mode: this.mode,
      ...slotsOf(this),
      state: isLost ? 'lost' : state,
      remaining: this.remaining(),
      ...(isLost ? { error: state } : error ? { error: error() } : {}),
    };
    lockStates.publish(event);
  }

  #whyNotHeld(): LockLostError {
    return this.loss ?? new LockLostError(this.keys, 'it was released', this.declaredAs);
  }

  /** The clock decides and not the timer, which a blocked thread delays (S10). */
  #noticeLapse(): void {
    if (this.#alive() && this.remaining() === 0) this.lose(this.#whyLapsed());
  }

  #whyLapsed(): string {
    const { reached, duration } = this.#limit;
    return reached && this.#state === 'held'
      ? `its maxHold of ${duration} ms had passed, so it was not renewed`
      : `its validity ran out before a quorum renewed it (ttl ${this.ttl} ms)`;
  }

  /** Part of {@link Renewable}; for the watchdog only. */
  renew(limit: number, sent: Instant): boolean {
    this.#batch = undefined;
    this.#noticeLapse();
    if (!this.#alive()) return false;
    this.#waiting = [];
    // Usually the answers or the time limit come long before the validity ends; a blocked thread can delay the renewal.
    if (this.remaining() <= limit) this.#watchValidity();
    const { nodes } = this.context;
    new Extension(nodes, this, this.ttl, limit, sent, nodes.limitsOfRenewals);
    return true;
  }

  /** Part of {@link Renewable}; for the watchdog only. */
  lapses(): void {
    this.#batch = undefined;
    this.#noticeLapse();
    if (this.#alive()) this.#watchValidity();
  }

  /**
   * Part of {@link Renewable}; for the watchdog only. A lock whose renewal was requested meanwhile has left the batch.
   */
  waits(batch: Batch, within: number): void {
    if (this.#batch === batch && this.remaining() <= within) this.#watchValidity();
  }

  /** Part of {@link Extensible}; for renewals. */
  extended(verdict: Verdict, ttl: number, sent: Instant): void {
    try {
      this.#take(verdict, ttl, sent);
      // A node that was slow once may answer now. Ask again soon, because few attempts are left.
      this.#passTurn(verdict.kind === 'extended' ? this.#untilRenewal(sent) : this.ttl / 10);
    } finally {
      this.context.watchdog.answered(ttl);
    }
  }

  /** Part of {@link Extensible}; for renewals. The validity runs from the send, however late the answers are (S9). */
  extendedLate(ttl: number, sent: Instant): void {
    this.#take({ kind: 'extended' }, ttl, sent);
    // The next extension may be under way already.
    if (!this.#alive() || this.#waiting) return;
    this.#leaveBatch();
    this.#plan(this.#untilRenewal(sent));
  }

  /**
   * Milliseconds until a third of the ttl has passed since the last request, which leaves time for two more attempts.
   */
  #untilRenewal(sent: Instant): number {
    return this.ttl / 3 - elapsedSince(sent);
  }

  /** Plans the next step: a renewal after `delay` milliseconds, or a check at the end of the validity. */
  #plan(delay: number, remaining = this.remaining()): void {
    if (!this.#alive()) return;
    const { renew } = this.#limit;
    if (renew && delay >= remaining) return this.#watchValidity();
    const renewing = renew && !this.#isOver(delay);
    const next = renewing ? Math.max(0, delay) : remaining;
    this.#batch = this.context.watchdog.plan(this, this.ttl, next, renewing);
    if (this.#state === 'held') this.#stopTimer();
    else this.#watchValidity();
  }

  /** `true` if `maxHold` will have passed in `delay` milliseconds. */
  #isOver(delay: number): boolean {
    const limit = this.#limit;
    if (!limit.since) return false;
    // A late answer can plan a renewal that is due already: its delay is negative.
    limit.reached = elapsedSince(limit.since) + Math.max(0, delay) >= limit.duration;
    return limit.reached;
  }

  /** Cancels all planned work. */
  #rest(): void {
    this.#stopTimer();
    this.#leaveBatch();
  }

  #leaveBatch(): void {
    if (this.#batch) this.context.watchdog.cancel(this, this.#batch);
    this.#batch = undefined;
  }

  /** Starts a timer that reports the loss, where no renewal is sure to come first (S10). */
  #watchValidity(): void {
    this.lapse ??= setTimeout(() => {
      this.lapse = undefined;
      this.#noticeLapse();
      if (this.#alive()) this.#watchValidity();
    }, this.remaining()).unref();
  }

  #stopTimer(): void {
    if (!this.lapse) return;
    clearTimeout(this.lapse);
    this.lapse = undefined;
  }

  /** Waits for the current extension, if there is one (S9: one at a time), and for earlier waiters. */
  async #turn(): Promise<void> {
    const waiting = this.#waiting;
    if (waiting) {
      await new Promise<void>((resolve) => waiting.push(resolve));
      return;
    }
    this.#waiting = [];
    this.#leaveBatch();
  }

  /** @param delay - milliseconds until the next renewal, if no other call waits to extend the lock */
  #passTurn(delay: number): void {
    const next = this.#waiting?.shift();
    if (next) return next();
    this.#waiting = undefined;
    this.#plan(delay);
  }

  #assertExtensible(): void {
    const limit = this.#limit;
    if (!limit.since || elapsedSince(limit.since) < limit.duration) return;
    throw new RedlockError(
      'MAX_HOLD_REACHED',
      `The lock on ${quoted(this.keys)} is not extended: its maxHold of ` +
        `${limit.duration} ms is over, and it ends in ${Math.ceil(this.remaining())} ms. ` +
        'Finish by then, or give it a longer `maxHold`.',
    );
  }

  /** Applies the verdict on an extension to `ttl` sent at `sent`. */
  #take(verdict: Verdict, ttl: number, sent: Instant): void {
    if (verdict.kind === 'gone') this.lose('so many nodes no longer have it that no quorum is left');
    // S9: an extension that is confirmed after the end of the validity is too late, whatever the nodes say.
    if (!this.isHeld()) return;
    if (verdict.kind === 'unconfirmed') {
      this.#become('unconfirmed', () => this.#unconfirmed(verdict));
      return;
    }
    this.#validFor(ttl, sent);
    this.#become('held');
  }

  #unconfirmed({ votes }: Extract<Verdict, { kind: 'unconfirmed' }>): LockUnavailableError {
    return new LockUnavailableError(this.keys, 'a quorum of nodes did not confirm the extension', votes);
  }

  /** A nested call that joined the lock sees the release as a loss; the call that releases does not. */
  #tellJoined(): void {
    this.controller ??= new AbortController();
    this.controller.abort(
      new LockLostError(this.keys, 'it was released beneath a nested call that had joined it'),
    );
  }

  #releaseOnAll(): Promise<void> {
    const { context, lease } = this;
    this.#noticeLapse();
    if (this.#alive()) this.#become('released');
    if (this.joined) this.#tellJoined();
    this.#rest();
    lease.ended = true;
    context.ended(this);
    const released = release(context.nodes, lease, nodeTimeLimit(this.ttl, context.settings.nodeTimeout));
    if (lease.keepFor === 0) this.follower?.();
    return released;
  }
}
