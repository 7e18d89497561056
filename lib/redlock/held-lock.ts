import { AsyncLocalStorage } from 'node:async_hooks';
import { checkMilliseconds } from '../core/checks.js';
import { elapsedSince, type Instant, now } from '../core/clock.js';
import { LockLostError, LockUnavailableError, type NodeVote, RedlockError } from '../core/errors.js';
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
import { neutrally, tellNeutrally } from '../core/neutral.js';
import type { LockMode } from '../core/lock-mode.js';
import { type ResolvedLockOptions, SHORTEST_TTL_MS } from '../core/lock-options.js';
import type { Store } from '../core/ports.js';
import { detach } from './detach.js';
import { checkCanExchange, drop, notConfirmed } from './exchange.js';
import { type Extensible, Extension, type Verdict } from './extend.js';
import type { Nodes } from './nodes.js';
import { type Healed, Healing } from './healing.js';
import type { NodeSet } from './node-set.js';
import { Release, release } from './release.js';
import type { RestartGuard } from './restart-guard.js';
import { showAs } from '../core/shown-as.js';
import { NO_SLOT } from '../core/slot-list.js';
import { checkTtl } from './store-limits.js';
import { nodeTimeLimit, usableTtl } from './validity.js';
import type { ClockWatch } from './clock-watch.js';
import { WHY } from './thread/lock-slots.js';
import { type ExtendFailure, votesOf } from './thread/messages.js';
import type { Mirror, RemotelyRenewed, RemoteRenewal, RenewalThread } from './thread/renewal-ports.js';
import { type Batch, EARLY, type Renewable, type Watchdog } from './watchdog.js';

/** Settings of all locks of one {@link Redlock}. */
export interface RedlockSettings {
  /** Readable name of this process, stored with every lock. */
  readonly owner: string;
  readonly driftFactor: number;
  readonly guard: RestartGuard;
  /** Time limit of a node in milliseconds; `undefined` to compute it from each lock's ttl. */
  readonly nodeTimeout: number | undefined;
  /** The prefix that the stores add to each key. */
  readonly keyPrefix?: string;
  /** The thread that renews locks with `renew: 'thread'`. */
  readonly thread?: RenewalThread | undefined;
  /** Called for every lost lock. */
  readonly lost?: (error: LockLostError) => void;
  /** Called for every store that the shutdown could not close. */
  readonly unclosed?: (store: Store, error: Error) => void;
}

/**
 * Objects that all held locks of one {@link Redlock} share. Each of many thousand locks keeps only one reference to
 * them.
 */
export interface LeaseContext {
  readonly settings: RedlockSettings;
  readonly nodes: Nodes;
  readonly watchdog: Watchdog;
  readonly clocks: ClockWatch;
  /** Aborts when the shutdown of the application begins. */
  readonly closing: AbortSignal;
  /** Called when a lock is lost and when it is released. */
  readonly ended: (lock: HeldLock) => void;
  /** Registers work that must end before the nodes are closed; returns the function to call when the work has ended. */
  readonly busy: () => () => void;
  /** Called for every release that no quorum has confirmed. */
  readonly unconfirmed: (lease: Lease) => void;
}

/** A nested call that has joined a lock, or the handle that a nested call received (S18). */
export interface Joined {
  /** `true` for a call, which always releases at its end; `false` for a handle, whose owner may forget to release. */
  readonly isCall: boolean;
}

/** The options that limit the time for which a lock is held. */
export type HoldTerms = Pick<ResolvedLockOptions, 'renew' | 'lock'> &
  Partial<Pick<ResolvedLockOptions, 'maxHold' | 'maxBlocked'>> & {
    /** The moment from which `maxHold` counts; the first request by default. */
    readonly since?: Instant;
    /** The ttl of the renewals, if the lease has a longer one. */
    readonly ttl?: number;
    /** The leases in whose place the lock has come, which some nodes may still keep. */
    readonly replaced?: Lease[];
  };

const LOADED_AT = Date.now();

/** Milliseconds for which a node may take a request for one that has time left, because its clock is only estimated. */
const STRAY_MARGIN_MS = 200;

const GONE = 'fewer than a quorum of nodes still store it';

/** Settings of the renewal: whether the lock is renewed, and the limit of its extensions (`maxHold`). */
interface HoldLimit {
  readonly renew: boolean;
  readonly since: Instant | undefined;
  readonly duration: number;
  /** `true` after a renewal was left out because of the limit. */
  reached: boolean;
  /** Milliseconds for which another thread renews while this one is blocked; `undefined` without another thread. */
  readonly maxBlocked: number | undefined;
  /**
   * Set while this thread renews a lock that the other thread had taken over, until its next renewal: `'failed'` if only
   * the other thread is known to have failed.
   */
  takenBack?: 'failed' | 'other' | undefined;
  /** Number of failures of the other thread since it renewed the lock last. */
  failures?: number;
  /** The time of the monotonic clock until which a request of a thread that renews no more may still reach a node. */
  strayUntil?: number;
}

/** The settings that all renewed locks without a limit share. Most locks are of this kind. */
const RENEWED: HoldLimit = {
  renew: true,
  since: undefined,
  duration: Infinity,
  reached: false,
  maxBlocked: undefined,
};
const NOT_RENEWED: HoldLimit = { ...RENEWED, renew: false };

/**
 * The only implementation of {@link LockHandle}: counts down the validity, renews, and reports a loss.
 *
 * A process can hold many thousands of locks. So a lock without pending work consists of this object and its lease
 * only: it has no timer, no promise and no function. A field that few locks need is not `#private`, and is set only
 * when needed: V8 reserves space in each object for every `#private` name.
 */
export class HeldLock implements LockHandle, Renewable, Extensible, Healed, RemotelyRenewed {
  /**
   * The state of an acquired lock. `'unconfirmed'` lasts from a failed renewal to the next successful renewal. A lost
   * lock has the error of the loss as its state. A lost or released lock is never held again.
   */
  #state: Exclude<LockState, 'lost'> | LockLostError = 'held';
  /** The name of the declared lock. */
  private declaredAs: string | undefined;
  /**
   * The ttl of the last call of `extend`, if there was one. The lease has the longest ttl that was requested so far.
   */
  private ownTtl: number | undefined;
  /**
   * The end of the validity, by the monotonic clock and by the wall clock (S11). The values are whole milliseconds, and
   * the wall-clock time counts from {@link LOADED_AT}, because V8 stores small integers in the object itself. That
   * saves 32 bytes of heap for each held lock (`npm run bench -- held`).
   */
  #endsAt = 0;
  #endsAtWall = 0;
  readonly #limit: HoldLimit;
  readonly #context: LeaseContext;
  /** The planned work, if any: the renewal, or a check at the end of the validity. */
  #batch: Batch | undefined;
  /** The last healing, which may ask nodes again. */
  #healing: Healing | undefined;
  /** The position in `#batch`; `heldSlot` is the position in the list of all held locks. */
  batchSlot = NO_SLOT;
  heldSlot = NO_SLOT;
  /** A timer for the end of the validity, used when the end may come before the next renewal. */
  private lapse: NodeJS.Timeout | undefined;
  /**
   * The calls that wait for the end of the current extension (S9: one at a time); `undefined` when no extension is
   * under way.
   */
  #waiting: (() => void)[] | undefined;
  /** The source of the signal, made on first use: most callers never read the signal. */
  private controller: AbortController | undefined;
  /** Runs the listeners of the signal in the asynchronous context in which it was read first. */
  private inContext: (<T>(task: () => T) => T) | undefined;
  #release: Promise<void> | undefined;
  /** The thread that renews the lock in place of this thread. */
  private remote: RemoteRenewal | undefined;
  /** The thread that holds the lock, if this thread only renews it. */
  private mirror: Mirror | undefined;
  /** The nested call that joined the lock and has not left it (S18). */
  joined: Joined | undefined;
  /** Tells why the lock must stay with this call, if it must; set for few locks. */
  boundBy: (() => string | undefined) | undefined;
  /** `true` after {@link detach}. */
  private wasDetached: true | undefined;
  /**
   * Leases that some nodes may still keep although nobody needs them: of failed calls of {@link detach}, and those in whose
   * place `attach` has put this one.
   */
  private replaced: Lease[] | undefined;
  /**
   * Starts the next waiting call of this process, if that call is the first of all waiters. Called when the release has
   * been sent: the request of the next call uses the same connections, so the nodes answer it after the release.
   */
  follower: (() => void) | undefined;

  // One function for all locks: each call of `release` would otherwise make one.
  static readonly #extendOf = (lock: HeldLock, ttl: number): Promise<void> => lock.#extendOnAll(ttl);
  static readonly #detachOf = (lock: HeldLock): Promise<string> => lock.#detachOnAll();
  static readonly #releaseOf = (lock: HeldLock): Promise<void> => lock.#releaseOnAll();

  /**
   * @param validFrom - the moment of the first request of the acquisition
   * @param taken - milliseconds since `validFrom`, which the caller has just measured
   */
  constructor(
    readonly lease: Lease,
    readonly fencingToken: number,
    context: LeaseContext,
    validFrom: Instant,
    taken: number,
    { renew, maxHold, maxBlocked, lock, replaced, since = validFrom, ttl = lease.ttl }: HoldTerms,
  ) {
    this.#context = context;
    if (lock !== undefined) this.declaredAs = lock;
    if (replaced) this.replaced = replaced;
    if (ttl !== lease.ttl) this.ownTtl = ttl;
    const byThread = renew === 'thread' && context.settings.thread !== undefined;
    this.#limit =
      maxHold !== undefined || byThread
        ? {
            renew: renew !== false,
            since: maxHold === undefined ? undefined : since,
            duration: maxHold ?? Infinity,
            reached: false,
            maxBlocked: byThread ? maxBlocked : undefined,
          }
        : renew === false
          ? NOT_RENEWED
          : RENEWED;
    const usable = this.#validFor(ttl, validFrom);
    this.#plan(ttl / 3 - taken, usable - taken);
  }

  /**
   * Tells another thread, which holds the lock, about its renewals.
   *
   * @param isUnconfirmed - `true` if the last renewal of that thread has failed
   */
  mirrorTo(mirror: Mirror, isUnconfirmed: boolean): void {
    this.mirror = mirror;
    this.#tellEnd();
    if (this.#limit.reached) mirror.because(WHY.maxHold);
    if (!isUnconfirmed) return;
    this.#become('unconfirmed');
    this.#watchValidity();
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

  /** The number of permits that another caller asked for, if it is larger than this lock's own number. */
  get permitsSeen(): number | undefined {
    return this.lease.permitsSeen;
  }

  /** Milliseconds for which the nodes keep the lock after its acquisition and after each extension. */
  get ttl(): number {
    return this.ownTtl ?? this.lease.ttl;
  }

  get signal(): AbortSignal {
    if (!this.controller) {
      this.controller = new AbortController();
      // The signal belongs to the call that reads it, in contrast to the timer that aborts it (S30).
      this.inContext = AsyncLocalStorage.snapshot();
      const { loss } = this;
      if (loss) this.controller.abort(loss);
    }
    return this.controller.signal;
  }

  get closing(): AbortSignal {
    return this.#context.closing;
  }

  remaining(): number {
    return this.#alive() ? Math.max(0, this.#leftAt(now())) : 0;
  }

  /** Milliseconds of the validity that are left, by the clock that shows less (S11); negative after its end. */
  #leftAt({ monotonic, wall }: Instant): number {
    if (this.remote) this.#readEnd(this.remote);
    return Math.min(this.#endsAt - monotonic, this.#endsAtWall + LOADED_AT - wall);
  }

  /**
   * Sets the end on both clocks to the same moment. Otherwise one clock would keep the time that only the other has
   * shown: after a wall clock was set back, it would show no suspend until it has caught up (S11).
   */
  #endAfter(left: number, { monotonic, wall }: Instant): void {
    // Round down: the validity must not be too long.
    this.#endsAt = Math.floor(monotonic + left);
    this.#endsAtWall = Math.floor(wall - LOADED_AT + left);
    this.#tellEnd();
  }

  #tellEnd(): void {
    this.mirror?.ends({ monotonic: this.#endsAt, wall: this.#endsAtWall + LOADED_AT });
  }

  /** Reads the end of the validity that the other thread has written since the last time. */
  #readEnd(remote: RemoteRenewal): void {
    const end = remote.newEnd();
    if (!end) return;
    if (Math.floor(end.monotonic) > this.#endsAt) this.#limit.failures = 0;
    this.#endsAt = Math.floor(end.monotonic);
    this.#endsAtWall = Math.floor(end.wall - LOADED_AT);
  }

  /**
   * Makes the lock valid for a ttl that was requested at `sent` (S2, S4), unless it is already valid for longer.
   *
   * @returns the validity in milliseconds, counted from `sent`
   */
  #validFor(ttl: number, sent: Instant): number {
    const usable = usableTtl(ttl, this.#context.settings.driftFactor);
    // Read the monotonic clock first: a pause between the readings then shortens the validity.
    const at = now();
    const left = usable - Math.max(at.monotonic - sent.monotonic, at.wall - sent.wall);
    this.#endAfter(Math.max(left, this.#leftAt(at)), at);
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

  extend(ttl = this.ttl): Promise<void> {
    return neutrally(HeldLock.#extendOf, this, ttl);
  }

  async #extendOnAll(ttl: number): Promise<void> {
    const { settings, nodes } = this.#context;
    checkMilliseconds('ttl', ttl, SHORTEST_TTL_MS);
    checkTtl(nodes.stores, ttl);
    settings.guard.checkCovers(ttl);
    if (this.remote) return this.#extendElsewhere(this.remote, ttl);
    await this.#turn();
    let next = this.ttl / 10;
    try {
      this.assertHeld();
      this.#assertExtensible();
      this.#assertRenewed();
      const sent = now();
      this.ownTtl = this.ttl;
      // A node may store the new ttl although its answer is lost, so a failed release must be repeated until the new
      // ttl has passed.
      this.lease.ttl = Math.max(this.lease.ttl, ttl);
      const limit = Math.min(nodeTimeLimit(ttl, settings.nodeTimeout), this.remaining());
      const verdict = await new Promise<Verdict>((resolve) => {
        const extended = (answer: Verdict): void => {
          this.#take(answer, ttl, sent);
          resolve(answer);
        };
        // Frequent extensions put the renewals off, so they heal the lock in their place (S26).
        const missedBy = this.#limit.renew ? (asked: NodeSet): void => this.missedBy(asked) : undefined;
        new Extension(
          nodes,
          { lease: this.lease, extended, ...(missedBy && { missedBy }) },
          ttl,
          limit,
          sent,
        );
      });
      this.assertHeld();
      if (verdict.kind === 'unconfirmed') throw this.#unconfirmed(verdict.votes);
      this.ownTtl = ttl;
      next = this.#untilRenewal(sent);
    } finally {
      this.#passTurn(next);
    }
  }

  detach(): Promise<string> {
    return neutrally(HeldLock.#detachOf, this);
  }

  async #detachOnAll(): Promise<string> {
    this.#assertDetachable();
    await this.#turn();
    let next = this.ttl / 10;
    try {
      this.#assertDetachable();
      const { since, duration } = this.#limit;
      const earlier = (this.replaced ??= []);
      const { lease, fencingToken, ttl, declaredAs } = this;
      const maxHold = since && { duration, passed: Math.ceil(elapsedSince(since)) };
      const detachment = await detach(
        this.#context,
        {
          lease,
          fencingToken,
          ttl,
          maxHold,
          lock: declaredAs,
          earlier,
          isHeld: () => this.isHeld(),
          isJoined: () => this.joined !== undefined,
        },
        // A detachment sends two requests, one after the other. Both must end while the lock is valid (S10).
        Math.min(this.#nodeLimit, this.remaining() / 2),
      );
      if (detachment.kind !== 'detached') {
        earlier.push(detachment.lease);
        if (detachment.kind === 'gone') this.lose(GONE);
        // A nested call may have joined meanwhile.
        this.#assertDetachable();
        throw notConfirmed(this.keys, detachment.votes, 'detach');
      }
      next = Infinity;
      if (this.joined) this.#tellJoined();
      this.wasDetached = true;
      this.#release = Promise.resolve();
      this.#become('released');
      this.#rest(true);
      lease.ended = true;
      this.#context.ended(this);
      return detachment.text;
    } finally {
      this.#passTurn(next);
    }
  }

  #assertDetachable(): void {
    this.assertHeld();
    this.#assertExtensible('detached');
    const { keys } = this;
    const why = this.joined
      ? 'a nested call has joined it. Detach it when the nested call has ended'
      : this.#limit.maxBlocked !== undefined
        ? "a thread renews it (`renew: 'thread'`). Acquire a lock that another process attaches without a thread, and give " +
          "`renew: 'thread'` to `attach`"
        : this.boundBy?.();
    if (why !== undefined) throw notDetached(keys, why);
    checkCanExchange(this.#context.nodes, keys, 'LOCK_NOT_DETACHED', 'detached');
  }

  /**
   * Extends the lock in the other thread, which does it in turn with its renewals (S9). If that takes longer than a renewal
   * and an extension may, the thread hangs, and the lock is taken back.
   */
  async #extendElsewhere(remote: RemoteRenewal, ttl: number): Promise<void> {
    this.assertHeld();
    this.#assertExtensible();
    this.ownTtl = this.ttl;
    this.lease.ttl = Math.max(this.lease.ttl, ttl);
    const hangs = setTimeout(
      () => {
        if (this.remote === remote) this.#takeBack('other');
      },
      this.#nodeLimit + nodeTimeLimit(ttl, this.#context.settings.nodeTimeout) + STRAY_MARGIN_MS,
    );
    const failure = await remote.extend(ttl);
    clearTimeout(hangs);
    // The nodes may still carry the extension out.
    if (failure) this.lease.lent = 'in doubt';
    this.assertHeld();
    if (failure?.reason === 'returned') return this.#extendOnAll(ttl);
    if (failure) throw this.#whyNotExtended(failure);
    this.ownTtl = ttl;
  }

  #whyNotExtended(failure: Exclude<ExtendFailure, { readonly reason: 'returned' }>): RedlockError {
    if (failure.reason === 'unconfirmed') return this.#unconfirmed(votesOf(failure.votes));
    return failure.reason === 'lost'
      ? this.#whyNotHeld()
      : new LockUnavailableError(this.keys, failure.message, [], `extend the lock on ${quoted(this.keys)}`);
  }

  release(): Promise<void> {
    if (this.#release) return this.#release;
    if (!isWatched(releases)) return this.#releaseNow();
    return releases.tracePromise(() => this.#releaseNow(), {
      keys: this.keys,
      id: this.id,
      fencingToken: this.fencingToken,
      mode: this.mode,
      ...slotsOf(this),
    });
  }

  #releaseNow(): Promise<void> {
    // A Promise keeps the context in which it was made, and this lock keeps the Promise.
    return (this.#release = neutrally(HeldLock.#releaseOf, this));
  }

  /** The properties that `JSON.stringify` and loggers show. */
  described(): object {
    return {
      keys: this.keys,
      mode: this.mode,
      ...slotsOf(this),
      state: this.state,
      fencingToken: this.fencingToken,
      remaining: Math.floor(this.remaining()),
      owner: this.lease.owner,
    };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }

  /**
   * Marks the lock as lost: the signal aborts and renewal ends. The keys expire with their ttl unless they are
   * released.
   */
  lose(reason: string): void {
    if (!this.#alive()) return;
    const error = new LockLostError(this.keys, reason, this.declaredAs);
    this.mirror?.lost();
    this.#rest();
    this.#context.ended(this);
    this.#become(error);
    this.#abort(error);
    const { lost } = this.#context.settings;
    if (lost) tellNeutrally(() => lost(error));
  }

  #abort(error: LockLostError): void {
    const { controller, inContext } = this;
    if (inContext) inContext(() => controller?.abort(error));
    else controller?.abort(error);
  }

  /** The error of the loss; `undefined` when the lock is held or was released before a loss. */
  get loss(): LockLostError | undefined {
    this.#noticeLapse();
    return this.#state instanceof LockLostError ? this.#state : undefined;
  }

  /** `true` for a held or unconfirmed lock without a noticed loss. */
  #alive(): boolean {
    return this.#state === 'held' || this.#state === 'unconfirmed';
  }

  /** @param error - makes the error for listeners; called only when there are listeners */
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
    tellNeutrally(() => lockStates.publish(event));
  }

  #whyNotHeld(): LockLostError {
    const how = this.wasDetached ? 'it was detached, so that another process can hold it' : 'it was released';
    return this.loss ?? new LockLostError(this.keys, how, this.declaredAs);
  }

  /**
   * Marks the lock as lost after the end of its validity. The clock decides, because a blocked event loop delays the
   * timer (S10).
   */
  #noticeLapse(): void {
    if (this.#alive() && this.remaining() === 0) this.lose(this.#whyLapsed());
  }

  #whyLapsed(): string {
    const { reached, duration, maxBlocked } = this.#limit;
    const why = this.remote?.why;
    if (why === WHY.gone) return GONE;
    if (why === WHY.blocked)
      return `the event loop was blocked for longer than its maxBlocked of ${maxBlocked} ms, so it was not renewed`;
    return (reached || why === WHY.maxHold) && this.#state === 'held'
      ? `its maxHold of ${duration} ms had passed, so it was not renewed`
      : `its validity ran out before a quorum renewed it (ttl ${this.ttl} ms)`;
  }

  /** Renews the lock. A method of {@link Renewable}, for the watchdog only. */
  renew(limit: number, sent: Instant): boolean {
    this.#batch = undefined;
    this.#noticeLapse();
    if (!this.#alive()) return false;
    if (this.mirror?.isRenewed === false) return false;
    if (this.mirror?.mayRenew === false) {
      this.mirror.because(WHY.blocked);
      this.#watchValidity();
      return false;
    }
    this.#waiting = [];
    // Usually no timer is needed, because the answers or the time limit come long before the end of the validity. When
    // the event loop was blocked, the renewal may be so late that the validity ends first.
    if (this.remaining() <= limit) this.#watchValidity();
    const { nodes } = this.#context;
    new Extension(nodes, this, this.ttl, limit, sent, nodes.limitsOfRenewals);
    return true;
  }

  /** Checks the validity at its planned end. A method of {@link Renewable}, for the watchdog only. */
  lapses(): void {
    this.#batch = undefined;
    this.#noticeLapse();
    this.#watchOn();
  }

  /** Renews the lock at once, which was not renewed while the thread that holds it did not run. */
  renewAgain(): void {
    if (!this.isHeld() || this.#batch || this.#waiting) return;
    this.mirror?.because(WHY.none);
    this.#plan(0);
  }

  /** Hands the renewal over to the thread, unless an extension is under way, which does that when it ends. */
  handOver(): void {
    if (this.#limit.maxBlocked === undefined || this.remote || this.#waiting || !this.isHeld()) return;
    const delay = (this.#batch?.due ?? 0) - performance.now();
    this.#leaveBatch();
    this.#plan(Math.max(0, delay));
  }

  renewedElsewhere(votes?: readonly NodeVote[]): void {
    if (!this.isHeld()) return;
    if (!votes) return this.#become('held');
    this.#limit.failures = (this.#limit.failures ?? 0) + 1;
    this.#become('unconfirmed', () => this.#unconfirmed(votes));
    this.#takeBack('failed');
  }

  /**
   * Takes the renewal back from a thread that could not renew the lock: its connections may be gone, while those of this
   * thread are not. After a renewal here the thread may try again (S31).
   */
  #takeBack(because: 'failed' | 'other'): void {
    this.remote?.takeBack();
    this.#limit.takenBack = because;
    this.renewHere();
  }

  renewHere(): void {
    if (!this.remote) return;
    // The last end that the thread has written was confirmed by a quorum.
    this.#readEnd(this.remote);
    this.#noticeLapse();
    this.remote = undefined;
    this.#limit.strayUntil = performance.now() + this.#nodeLimit + STRAY_MARGIN_MS;
    this.#leaveBatch();
    this.#plan(0);
  }

  /** Milliseconds within which a node must carry out a request. */
  get #nodeLimit(): number {
    return nodeTimeLimit(this.ttl, this.#context.settings.nodeTimeout);
  }

  /**
   * Goes on after a look at the validity. A lock that is renewed elsewhere is looked at when a third of its ttl is left.
   * A thread that has not renewed the lock by then hangs, or the event loop was blocked for longer than `maxBlocked`.
   */
  #watchOn(): void {
    if (!this.#alive()) return;
    if (!this.remote || this.remote.why === WHY.maxHold) return this.#watchValidity();
    if (this.remaining() > this.ttl * (1 / 3 + EARLY)) this.#plan(0);
    else this.#takeBack('other');
  }

  /**
   * Starts the timer for the end of the validity, if the end may come before the batch runs. A method of
   * {@link Renewable}, for the watchdog only. Does nothing if the lock has left the batch, because its renewal was
   * requested meanwhile.
   */
  waits(batch: Batch, within: number): void {
    if (this.#batch === batch && this.remaining() <= within) this.#watchValidity();
  }

  /** Takes the monotonic clock's end of the validity for the wall clock, too, which was set back (S11). */
  setBack(): void {
    const at = now();
    if (this.#alive()) this.#endAfter(this.#endsAt - at.monotonic, at);
  }

  /**
   * Checks the validity, because the timers stood still (S29).
   *
   * @param paused - milliseconds of the validity that have passed although neither clock shows them
   */
  overslept(paused: number): void {
    if (!this.#alive()) return;
    const at = now();
    this.#endAfter(this.#leftAt(at) - paused, at);
    this.#noticeLapse();
    if (!this.#alive() || (this.#batch && !this.lapse)) return;
    this.#stopTimer();
    this.#watchValidity();
  }

  /** Takes the result of a renewal. A method of {@link Extensible}. */
  extended(verdict: Verdict, ttl: number, sent: Instant): void {
    try {
      this.#take(verdict, ttl, sent);
      // After a failed renewal ask again soon: a node that was slow once may answer now, and the rest of the validity
      // allows only a few attempts.
      this.#passTurn(verdict.kind === 'extended' ? this.#untilRenewal(sent) : this.ttl / 10);
    } finally {
      this.#context.watchdog.answered(ttl);
    }
  }

  /**
   * Takes the late result of a renewal. The validity counts from the request, even when the answers are late (S9). A
   * method of {@link Extensible}.
   */
  extendedLate(ttl: number, sent: Instant): void {
    this.#take({ kind: 'extended' }, ttl, sent);
    // The next extension may already be under way. That extension then plans the next step.
    if (!this.#alive() || this.#waiting) return;
    this.#leaveBatch();
    this.#plan(this.#untilRenewal(sent));
  }

  /** Heals the lock on these nodes (S26). A method of {@link Extensible}. */
  missedBy(asked: NodeSet): void {
    if (!this.isHeld()) return;
    if (this.mirror?.isRenewed === false) return;
    const { nodes, settings } = this.#context;
    // Leases that `attach` has replaced may have come back to these nodes, and would keep the lock from healing.
    for (const each of this.replaced ?? [])
      new Release(nodes, each, this.#nodeLimit, 0, asked, Infinity, () => undefined);
    this.#healing?.end();
    this.#healing = new Healing(nodes, this, settings.guard.duration, this.#nodeLimit, asked);
  }

  /**
   * Ends a lock that another thread holds. That thread sends the release itself. A node that was asked to store the lock
   * again may do so after that release, so this thread releases such a lock once more: on its connection the release
   * comes after the request (S15). If the request was not answered, a further release follows its deadline (S27).
   *
   * @param isReleased - `false` for a lost lock, which may be released later
   * @returns `true` if this must be called again when the lost lock is released
   */
  endMirror(isReleased: boolean): boolean {
    this.mirror = undefined;
    if (isReleased && this.#healing) {
      void this.release();
      return false;
    }
    this.#rest();
    this.#become('released');
    this.lease.ended = true;
    this.#context.ended(this);
    return this.#healing !== undefined;
  }

  /** Ends the renewal of a lock that another thread holds and renews again. The lease does not end. */
  returnMirror(): void {
    this.mirror = undefined;
    this.#rest();
    this.#become('released');
    this.#context.ended(this);
  }

  /**
   * Renews the lock after so many milliseconds, when a node begins to vote again and can be healed, unless the planned
   * renewal comes sooner. A method of {@link Healed}.
   */
  healsIn(milliseconds: number): void {
    // The watchdog may renew the lock a little sooner than planned.
    const delay = milliseconds + EARLY * this.ttl;
    if (!this.#batch?.renews || this.#batch.due - performance.now() <= delay) return;
    this.#leaveBatch();
    this.#plan(delay);
  }

  /**
   * Milliseconds until a third of the ttl has passed since the last request. Two more attempts then fit into the rest
   * of the ttl.
   */
  #untilRenewal(sent: Instant): number {
    return this.ttl / 3 - elapsedSince(sent);
  }

  /** Plans the next step: a renewal after `delay` milliseconds, or a check at the end of the validity. */
  #plan(delay: number, remaining = this.remaining()): void {
    if (!this.#alive()) return;
    const isElsewhere = this.#isElsewhere();
    const renew = this.#limit.renew && !isElsewhere;
    if (renew && delay >= remaining) return this.#watchValidity();
    const renewing = renew && !this.#isOver(delay);
    // The thread should have renewed the lock when two thirds of its ttl were left.
    const look = isElsewhere ? this.ttl / 3 : 0;
    const next = Math.max(0, renewing ? delay : remaining - look);
    this.#batch = this.#context.watchdog.plan(this, this.ttl, next, renewing);
    if (this.#state === 'held') this.#stopTimer();
    else this.#watchValidity();
  }

  /** `true` if `maxHold` will have passed in `delay` milliseconds. */
  #isOver(delay: number): boolean {
    const limit = this.#limit;
    if (!limit.since) return false;
    // The delay is negative when a late answer plans a renewal that is already due.
    limit.reached = elapsedSince(limit.since) + Math.max(0, delay) >= limit.duration;
    this.mirror?.because(limit.reached ? WHY.maxHold : WHY.none);
    return limit.reached;
  }

  /** `true` if another thread renews the lock. Hands it over if the thread can renew by now. */
  #isElsewhere(): boolean {
    const { maxBlocked, since, duration, takenBack } = this.#limit;
    if (maxBlocked === undefined || takenBack) return false;
    this.remote ??= this.#context.settings.thread?.takeOver(this, {
      lease: this.lease,
      fencingToken: this.fencingToken,
      ttl: this.ttl,
      end: { monotonic: this.#endsAt, wall: this.#endsAtWall + LOADED_AT },
      isUnconfirmed: this.#state === 'unconfirmed',
      maxHold: since && { since, duration },
      maxBlocked,
    });
    return this.remote !== undefined;
  }

  /** Cancels all planned work. */
  #rest(isReleased = false): void {
    this.remote?.end(isReleased);
    // The thread must hear of the release of a lost lock, too.
    if (isReleased) this.remote = undefined;
    this.#healing?.end();
    this.#stopTimer();
    this.#leaveBatch();
  }

  #leaveBatch(): void {
    if (this.#batch) this.#context.watchdog.cancel(this, this.#batch);
    this.#batch = undefined;
  }

  /** Starts a timer that reports the loss, when the end of the validity may come before the next renewal (S10). */
  #watchValidity(): void {
    this.lapse ??= setTimeout(() => {
      this.lapse = undefined;
      this.#noticeLapse();
      this.#watchOn();
    }, this.remaining()).unref();
  }

  #stopTimer(): void {
    if (!this.lapse) return;
    clearTimeout(this.lapse);
    this.lapse = undefined;
  }

  /** Waits until no other extension is under way (S9: one at a time); earlier callers come first. */
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

  #assertExtensible(what = 'extended'): void {
    const limit = this.#limit;
    if (!limit.since || elapsedSince(limit.since) < limit.duration) return;
    throw new RedlockError(
      'MAX_HOLD_REACHED',
      `The lock on ${quoted(this.keys)} is not ${what}: its \`maxHold\` of ` +
        `${limit.duration} ms has passed, and the lock ends in ${Math.ceil(this.remaining())} ms. ` +
        'Finish the work by then, or give the lock a longer `maxHold`.',
    );
  }

  /** S9: a thread that hung may read the request of an extension only after its holder renews the lock again. */
  #assertRenewed(): void {
    if (this.mirror?.isRenewed === false)
      throw new Error('the thread that holds the lock renews it again, and has to extend it itself');
  }

  /** Applies the verdict on an extension: `ttl` is the requested ttl, and `sent` the moment of the request. */
  #take(verdict: Verdict, ttl: number, sent: Instant): void {
    this.#context.clocks.look();
    if (verdict.kind === 'gone') {
      this.mirror?.because(WHY.gone);
      this.lose(GONE);
    }
    // S9: an extension that is confirmed after the end of the validity is too late, even if a quorum extended the lock.
    if (!this.isHeld()) return;
    if (verdict.kind === 'unconfirmed') {
      if (this.#limit.takenBack) this.#limit.takenBack = 'other';
      this.mirror?.renewed(verdict.votes);
      this.#become('unconfirmed', () => this.#unconfirmed(verdict.votes));
      return;
    }
    this.mirror?.because(WHY.none);
    if (this.#limit.takenBack) this.#wasTakenBack();
    this.#validFor(ttl, sent);
    if (this.#state === 'unconfirmed') this.mirror?.renewed();
    this.#become('held');
  }

  /** Lets the thread try again, after a renewal here. Once it may have failed because a server was away for a moment. */
  #wasTakenBack(): void {
    const limit = this.#limit;
    if (limit.takenBack === 'failed' && (limit.failures ?? 0) > 1) this.#context.settings.thread?.outdone();
    limit.takenBack = undefined;
  }

  #unconfirmed(votes: readonly NodeVote[]): LockUnavailableError {
    const what = `extend the lock on ${quoted(this.keys)}`;
    return new LockUnavailableError(
      this.keys,
      'fewer than a quorum of nodes confirmed the extension',
      votes,
      what,
    );
  }

  /**
   * Aborts the signal for a nested call that joined the lock: for that call the release is a loss. The outer call,
   * which releases the lock, gets no error.
   */
  #tellJoined(): void {
    const error = new LockLostError(
      this.keys,
      'the outer call released it while a nested call still used it',
    );
    this.controller ??= new AbortController();
    this.#abort(error);
  }

  #releaseOnAll(): Promise<void> {
    const { lease } = this;
    const context = this.#context;
    this.#noticeLapse();
    if (this.#alive()) this.#become('released');
    if (this.joined) this.#tellJoined();
    this.#rest(true);
    lease.ended = true;
    context.ended(this);
    const { nodes, unconfirmed } = context;
    const released = release(nodes, lease, this.#nodeLimit, unconfirmed);
    for (const each of this.replaced ?? []) {
      // A node that still keeps this lease keeps it for the rest of `minHold`.
      each.acquired(performance.now(), lease.keepFor);
      // Another attacher may give it back a moment later.
      drop(nodes, each, { limit: this.#nodeLimit, mayComeLater: true });
    }
    if (lease.keepFor === 0) this.follower?.();
    this.#releaseStray();
    return released;
  }

  /**
   * Releases the lock once more after the deadline of a request of a thread that renews no more: a node may have stored
   * the lock by it after the release (S27).
   */
  #releaseStray(): void {
    const { strayUntil } = this.#limit;
    const left = strayUntil === undefined ? 0 : strayUntil - performance.now();
    if (left <= 0) return;
    const again = (): void => void release(this.#context.nodes, this.lease, this.#nodeLimit, () => undefined);
    setTimeout(again, left).unref();
  }
}

/** Makes the error of a lock that cannot be detached. */
export function notDetached(keys: readonly string[], why: string): RedlockError {
  return new RedlockError('LOCK_NOT_DETACHED', `The lock on ${quoted(keys)} is not detached: ${why}.`);
}

showAs(HeldLock, 'LockHandle', (lock) => lock.described());
