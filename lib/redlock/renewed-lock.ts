import { elapsedSince, type Instant, now } from '../core/clock.js';
import { LockUnavailableError, type NodeVote } from '../core/errors.js';
import type { Lease } from '../core/lease.js';
import type { ResolvedLockOptions } from '../core/lock-options.js';
import { quoted } from '../core/printable.js';
import { NO_SLOT } from '../core/slot-list.js';
import type { ClockWatch } from './clock-watch.js';
import { type ExpiryContext, ExpiringLock } from './expiring-lock.js';
import { type Extensible, Extension, type Verdict } from './extend.js';
import { type Healed, Healing } from './healing.js';
import { LentRenewal } from './lent-renewal.js';
import type { NodeSet } from './node-set.js';
import type { Nodes } from './nodes.js';
import { Release } from './release.js';
import { type RemotelyRenewed, WHY } from './renewal-ports.js';
import { nodeTimeLimit } from './validity.js';
import { type Batch, EARLY, type Renewable, type Watchdog } from './watchdog.js';

/** The objects that a {@link RenewedLock} shares with all others. */
export interface RenewalContext extends ExpiryContext {
  readonly nodes: Nodes;
  readonly watchdog: Watchdog;
  readonly clocks: ClockWatch;
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

const GONE = 'fewer than a quorum of nodes still store it';

/** Settings of the renewal: whether the lock is renewed, and the limit of its extensions (`maxHold`). */
interface HoldLimit {
  readonly renew: boolean;
  readonly since: Instant | undefined;
  readonly duration: number;
  /** `true` after a renewal was left out because of the limit. */
  reached: boolean;
}

/** The settings that all renewed locks without a limit share. Most locks are of this kind. */
const RENEWED: HoldLimit = { renew: true, since: undefined, duration: Infinity, reached: false };
const NOT_RENEWED: HoldLimit = { ...RENEWED, renew: false };

/** When a lock is renewed, on which nodes, and what follows from their answers. */
export abstract class RenewedLock<Context extends RenewalContext = RenewalContext>
  extends ExpiringLock<Context>
  implements Renewable, Extensible, Healed, RemotelyRenewed
{
  protected readonly limit: HoldLimit;
  /** The renewal by the other thread; only with `renew: 'thread'`. */
  protected lent: LentRenewal | undefined;
  /** The planned work, if any: the renewal, or a check at the end of the validity. */
  #batch: Batch | undefined;
  /** The last healing, which may ask nodes again. */
  #healing: Healing | undefined;
  /** The position in `#batch`. */
  batchSlot = NO_SLOT;
  /** A timer for the end of the validity, used when the end may come before the next renewal. */
  private lapse: NodeJS.Timeout | undefined;
  /**
   * The calls that wait for the end of the current extension (S9: one at a time); `undefined` when no extension is
   * under way.
   */
  #waiting: (() => void)[] | undefined;
  /**
   * Leases that some nodes may still keep although nobody needs them: of failed calls of `detach`, and those in whose
   * place `attach` has put this one.
   */
  protected replaced: Lease[] | undefined;

  /**
   * @param validFrom - the moment of the first request of the acquisition
   * @param taken - milliseconds since `validFrom`, which the caller has just measured
   */
  constructor(
    lease: Lease,
    fencingToken: number,
    context: Context,
    validFrom: Instant,
    taken: number,
    { renew, maxHold, maxBlocked, lock, replaced, since = validFrom, ttl = lease.ttl }: HoldTerms,
  ) {
    super(lease, fencingToken, context);
    if (lock !== undefined) this.declaredAs = lock;
    if (replaced) this.replaced = replaced;
    if (ttl !== lease.ttl) this.ownTtl = ttl;
    const { thread } = context.settings;
    if (renew === 'thread' && thread && maxBlocked !== undefined)
      this.lent = new LentRenewal(thread, maxBlocked);
    this.limit =
      maxHold !== undefined
        ? { renew: renew !== false, since, duration: maxHold, reached: false }
        : renew === false
          ? NOT_RENEWED
          : RENEWED;
    const usable = this.validFor(ttl, validFrom);
    this.plan(ttl / 3 - taken, usable - taken);
  }

  /** `true` if a node was asked to store the lock again. */
  protected get hasHealed(): boolean {
    return this.#healing !== undefined;
  }

  /** Renews the lock. A method of {@link Renewable}, for the watchdog only. */
  renew(limit: number, sent: Instant): boolean {
    this.#batch = undefined;
    this.noticeLapse();
    if (!this.isAlive || !this.mayRenew()) return false;
    this.#waiting = [];
    // Usually no timer is needed, because the answers or the time limit come long before the end of the validity. When
    // the event loop was blocked, the renewal may be so late that the validity ends first.
    if (this.remaining() <= limit) this.watchValidity();
    const { nodes } = this.context;
    new Extension(nodes, this, this.ttl, limit, sent, nodes.limitsOfRenewals);
    return true;
  }

  /** Checks the validity at its planned end. A method of {@link Renewable}, for the watchdog only. */
  lapses(): void {
    this.#batch = undefined;
    this.noticeLapse();
    this.#watchOn();
  }

  /**
   * Starts the timer for the end of the validity, if the end may come before the batch runs. A method of
   * {@link Renewable}, for the watchdog only. Does nothing if the lock has left the batch, because its renewal was
   * requested meanwhile.
   */
  waits(batch: Batch, within: number): void {
    if (this.#batch === batch && this.remaining() <= within) this.watchValidity();
  }

  /** Takes the result of a renewal. A method of {@link Extensible}. */
  extended(verdict: Verdict, ttl: number, sent: Instant): void {
    try {
      this.take(verdict, ttl, sent);
      // After a failed renewal ask again soon: a node that was slow once may answer now, and the rest of the validity
      // allows only a few attempts.
      this.passTurn(verdict.kind === 'extended' ? this.untilRenewal(sent) : this.ttl / 10);
    } finally {
      this.context.watchdog.answered(ttl);
    }
  }

  /**
   * Takes the late result of a renewal. The validity counts from the request, even when the answers are late (S9). A
   * method of {@link Extensible}.
   */
  extendedLate(ttl: number, sent: Instant): void {
    this.take({ kind: 'extended' }, ttl, sent);
    // The next extension may already be under way. That extension then plans the next step.
    if (!this.isAlive || this.#waiting) return;
    this.#leaveBatch();
    this.plan(this.untilRenewal(sent));
  }

  /** Heals the lock on these nodes (S26). A method of {@link Extensible}. */
  missedBy(asked: NodeSet): void {
    if (!this.isHeld() || !this.mayAsk()) return;
    const { nodes, settings } = this.context;
    // Leases that `attach` has replaced may have come back to these nodes, and would keep the lock from healing.
    for (const each of this.replaced ?? [])
      new Release(nodes, each, this.nodeLimit, 0, asked, Infinity, () => undefined);
    this.#healing?.end();
    this.#healing = new Healing(nodes, this, settings.guard.duration, this.nodeLimit, asked);
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
    this.plan(delay);
  }

  /** Hands the renewal over to the thread, unless an extension is under way, which does that when it ends. */
  handOver(): void {
    if (!this.lent || this.lent.isAway || this.#waiting || !this.isHeld()) return;
    const delay = (this.#batch?.due ?? 0) - performance.now();
    this.#leaveBatch();
    this.plan(Math.max(0, delay));
  }

  renewedElsewhere(votes?: readonly NodeVote[]): void {
    if (!this.isHeld()) return;
    if (!votes) return this.become('held');
    this.lent?.failed();
    this.become('unconfirmed', () => this.unconfirmed(votes));
    this.takeBack('failed');
  }

  /**
   * Takes the renewal back from a thread that could not renew the lock: its connections may be gone, while those of this
   * thread are not.
   */
  protected takeBack(because: 'failed' | 'other'): void {
    this.lent?.takeBack(because);
    this.renewHere();
  }

  renewHere(): void {
    if (!this.lent?.isAway) return;
    // The last end that the thread has written was confirmed by a quorum.
    this.#readEnd();
    this.noticeLapse();
    this.lent.returned(this.nodeLimit);
    this.#leaveBatch();
    this.plan(0);
  }

  /**
   * Checks the validity, because the timers stood still (S29).
   *
   * @param paused - milliseconds of the validity that have passed although neither clock shows them
   */
  overslept(paused: number): void {
    if (!this.isAlive) return;
    // The thread may adopt the lock only now, with the end from before the pause, and would write that end.
    if (paused > 0 && this.lent?.isAway) this.takeBack('other');
    const at = now();
    this.endAfter(this.leftAt(at) - paused, at);
    this.noticeLapse();
    if (!this.isAlive || (this.#batch && !this.lapse)) return;
    this.#stopTimer();
    this.watchValidity();
  }

  protected override leftAt(at: Instant): number {
    this.#readEnd();
    return super.leftAt(at);
  }

  /** Reads the end of the validity that the other thread has written since the last time. */
  #readEnd(): void {
    if (!this.lent?.isAway) return;
    const end = this.lent.newEnd(this.end);
    if (end) this.end = end;
  }

  protected whyLapsed(): string {
    const { reached, duration } = this.limit;
    const why = this.lent?.why;
    if (why === WHY.gone) return GONE;
    if (why === WHY.blocked)
      return `the event loop was blocked for longer than its maxBlocked of ${this.lent?.maxBlocked} ms, so it was not renewed`;
    return (reached || why === WHY.maxHold) && !this.isUnconfirmed
      ? `its maxHold of ${duration} ms had passed, so it was not renewed`
      : `its validity ran out before a quorum renewed it (ttl ${this.ttl} ms)`;
  }

  /** `false` when nothing may be sent for the lock any more, although it has not ended. */
  protected mayAsk(): boolean {
    return true;
  }

  /** `false` when a renewal must be left out. */
  protected mayRenew(): boolean {
    return this.mayAsk();
  }

  /** Applies the verdict on an extension: `ttl` is the requested ttl, and `sent` the moment of the request. */
  protected take(verdict: Verdict, ttl: number, sent: Instant): void {
    this.context.clocks.look();
    if (verdict.kind === 'gone') this.gone();
    // S9: an extension that is confirmed after the end of the validity is too late, even if a quorum extended the lock.
    if (!this.isHeld()) return;
    if (verdict.kind === 'unconfirmed') this.renewalFailed(verdict.votes);
    else this.renewed(ttl, sent);
  }

  protected gone(): void {
    this.lose(GONE);
  }

  protected renewalFailed(votes: readonly NodeVote[]): void {
    this.lent?.failedHere();
    this.become('unconfirmed', () => this.unconfirmed(votes));
  }

  protected renewed(ttl: number, sent: Instant): void {
    this.lent?.renewedHere();
    this.validFor(ttl, sent);
    this.become('held');
  }

  protected unconfirmed(votes: readonly NodeVote[]): LockUnavailableError {
    const what = `extend the lock on ${quoted(this.keys)}`;
    return new LockUnavailableError(
      this.keys,
      'fewer than a quorum of nodes confirmed the extension',
      votes,
      what,
    );
  }

  /** Milliseconds within which a node must carry out a request. */
  protected get nodeLimit(): number {
    return nodeTimeLimit(this.ttl, this.context.settings.nodeTimeout);
  }

  /**
   * Milliseconds until a third of the ttl has passed since the last request. Two more attempts then fit into the rest
   * of the ttl.
   */
  protected untilRenewal(sent: Instant): number {
    return this.ttl / 3 - elapsedSince(sent);
  }

  /** Waits until no other extension is under way (S9: one at a time); earlier callers come first. */
  protected async turn(): Promise<void> {
    const waiting = this.#waiting;
    if (waiting) {
      await new Promise<void>((resolve) => waiting.push(resolve));
      return;
    }
    this.#waiting = [];
    this.#leaveBatch();
  }

  /** @param delay - milliseconds until the next renewal, if no other call waits to extend the lock */
  protected passTurn(delay: number): void {
    const next = this.#waiting?.shift();
    if (next) return next();
    this.#waiting = undefined;
    this.plan(delay);
  }

  /** `true` if the next step is planned, or an extension is under way. */
  protected get isPlanned(): boolean {
    return this.#batch !== undefined || this.#waiting !== undefined;
  }

  /** Plans the next step: a renewal after `delay` milliseconds, or a check at the end of the validity. */
  protected plan(delay: number, remaining = this.remaining()): void {
    if (!this.isAlive) return;
    const isElsewhere = this.#isElsewhere();
    const renew = this.limit.renew && !isElsewhere;
    if (renew && delay >= remaining) return this.watchValidity();
    const renewing = renew && !this.isOver(delay);
    // The thread should have renewed the lock when two thirds of its ttl were left.
    const look = isElsewhere ? this.ttl / 3 : 0;
    const next = Math.max(0, renewing ? delay : remaining - look);
    this.#batch = this.context.watchdog.plan(this, this.ttl, next, renewing);
    if (this.isUnconfirmed) this.watchValidity();
    else this.#stopTimer();
  }

  /** `true` if `maxHold` will have passed in `delay` milliseconds. */
  protected isOver(delay: number): boolean {
    const { limit } = this;
    if (!limit.since) return false;
    // The delay is negative when a late answer plans a renewal that is already due.
    limit.reached = elapsedSince(limit.since) + Math.max(0, delay) >= limit.duration;
    return limit.reached;
  }

  /** `true` if another thread renews the lock. Hands it over if the thread can renew by now. */
  #isElsewhere(): boolean {
    const { lent } = this;
    if (!lent) return false;
    if (lent.mayHandOver) {
      const { since, duration } = this.limit;
      lent.handOver(this, {
        lease: this.lease,
        replaced: this.replaced,
        fencingToken: this.fencingToken,
        ttl: this.ttl,
        end: this.end,
        isUnconfirmed: this.isUnconfirmed,
        maxHold: since && { since, duration },
        maxBlocked: lent.maxBlocked,
      });
    }
    return lent.isAway;
  }

  /**
   * Goes on after a look at the validity. A lock that is renewed elsewhere is looked at when a third of its ttl is left.
   * A thread that has not renewed the lock by then hangs, or the event loop was blocked for longer than `maxBlocked`.
   */
  #watchOn(): void {
    if (!this.isAlive) return;
    if (!this.lent?.isAway || this.lent.why === WHY.maxHold) return this.watchValidity();
    if (this.remaining() > this.ttl * (1 / 3 + EARLY)) this.plan(0);
    else this.takeBack('other');
  }

  /** Starts a timer that reports the loss, when the end of the validity may come before the next renewal (S10). */
  protected watchValidity(): void {
    this.lapse ??= setTimeout(() => {
      this.lapse = undefined;
      this.noticeLapse();
      this.#watchOn();
    }, this.remaining()).unref();
  }

  #stopTimer(): void {
    if (!this.lapse) return;
    clearTimeout(this.lapse);
    this.lapse = undefined;
  }

  #leaveBatch(): void {
    if (this.#batch) this.context.watchdog.cancel(this, this.#batch);
    this.#batch = undefined;
  }

  /** Cancels all planned work. */
  protected rest(isReleased = false): void {
    this.lent?.end(isReleased);
    this.#healing?.end();
    this.#stopTimer();
    this.#leaveBatch();
  }
}
