import { checkMilliseconds } from '../core/checks.js';
import { elapsedSince, now } from '../core/clock.js';
import { LockLostError, LockUnavailableError, RedlockError } from '../core/errors.js';
import type { Lease } from '../core/lease.js';
import { isWatched, releases, slotsOf } from '../core/lock-events.js';
import type { LockHandle } from '../core/lock-handle.js';
import { SHORTEST_TTL_MS } from '../core/lock-options.js';
import { neutrally } from '../core/neutral.js';
import { quoted } from '../core/printable.js';
import { showAs } from '../core/shown-as.js';
import { NO_SLOT } from '../core/slot-list.js';
import { detach, notDetached } from './detach.js';
import { checkCanExchange, notConfirmed } from './exchange.js';
import { Extension, type Verdict } from './extend.js';
import type { LentRenewal } from './lent-renewal.js';
import type { NodeSet } from './node-set.js';
import { release } from './release.js';
import type { ExtendFailure } from './renewal-ports.js';
import { type RenewalContext, RenewedLock } from './renewed-lock.js';
import { checkTtl } from './store-limits.js';
import { drop, releaseAgain } from './stray-releases.js';
import { nodeTimeLimit } from './validity.js';

/**
 * Objects that all held locks of one {@link Redlock} share. Each of many thousand locks keeps only one reference to
 * them.
 */
export interface LeaseContext extends RenewalContext {
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

/**
 * The only implementation of {@link LockHandle}: what its owner can do with a lock, from `extend` to `release`. Until when
 * it is held is the matter of `ExpiringLock`, and its renewal that of {@link RenewedLock}.
 *
 * A process can hold many thousands of locks. So a lock without pending work consists of this object and its lease
 * only: it has no timer, no promise and no function. For that its parts are base classes, and not objects of their own. A
 * field that few locks need is not `#private`, and is set only when needed: V8 reserves space in each object for every
 * `#private` name.
 */
export class HeldLock extends RenewedLock<LeaseContext> implements LockHandle {
  /** The position in the list of all held locks. */
  heldSlot = NO_SLOT;
  #release: Promise<void> | undefined;
  /** The nested call that joined the lock and has not left it (S18). */
  joined: Joined | undefined;
  /** Tells why the lock must stay with this call, if it must; set for few locks. */
  boundBy: (() => string | undefined) | undefined;
  /** `true` after {@link detach}. */
  private wasDetached: true | undefined;
  /**
   * Starts the next waiting call of this process, if that call is the first of all waiters. Called when the release has
   * been sent: the request of the next call uses the same connections, so the nodes answer it after the release.
   */
  follower: (() => void) | undefined;

  // One function for all locks: each call of `release` would otherwise make one.
  static readonly #extendOf = (lock: HeldLock, ttl: number): Promise<void> => lock.#extendOnAll(ttl);
  static readonly #detachOf = (lock: HeldLock): Promise<string> => lock.#detachOnAll();
  static readonly #releaseOf = (lock: HeldLock): Promise<void> => lock.#releaseOnAll();

  extend(ttl = this.ttl): Promise<void> {
    return neutrally(HeldLock.#extendOf, this, ttl);
  }

  async #extendOnAll(ttl: number): Promise<void> {
    const { settings, nodes } = this.context;
    checkMilliseconds('ttl', ttl, SHORTEST_TTL_MS);
    checkTtl(nodes.stores, ttl);
    settings.guard.checkCovers(ttl);
    if (this.lent?.isAway) return this.#extendElsewhere(this.lent, ttl);
    await this.turn();
    let next = this.ttl / 10;
    try {
      this.assertHeld();
      this.assertExtensible();
      const sent = now();
      this.#mayBeExtendedTo(ttl);
      const limit = Math.min(nodeTimeLimit(ttl, settings.nodeTimeout), this.remaining());
      const verdict = await new Promise<Verdict>((resolve) => {
        const extended = (answer: Verdict): void => {
          this.take(answer, ttl, sent);
          resolve(answer);
        };
        // Frequent extensions put the renewals off, so they heal the lock in their place (S26).
        const missedBy = this.limit.renew ? (asked: NodeSet): void => this.missedBy(asked) : undefined;
        new Extension(
          nodes,
          { lease: this.lease, extended, ...(missedBy && { missedBy }) },
          ttl,
          limit,
          sent,
        );
      });
      this.assertHeld();
      if (verdict.kind === 'unconfirmed') throw this.unconfirmed(verdict.votes);
      this.ownTtl = ttl;
      next = this.untilRenewal(sent);
    } finally {
      this.passTurn(next);
    }
  }

  /**
   * Extends the lock in the other thread. If that takes longer than a renewal and an extension may, the thread hangs, and
   * the lock is taken back.
   */
  async #extendElsewhere(lent: LentRenewal, ttl: number): Promise<void> {
    this.assertHeld();
    this.assertExtensible();
    this.#mayBeExtendedTo(ttl);
    const limit = this.nodeLimit + nodeTimeLimit(ttl, this.context.settings.nodeTimeout);
    const failure = await lent.extend(ttl, limit, () => this.takeBack('other'));
    // The nodes may still carry the extension out.
    if (failure) this.lease.lent = 'in doubt';
    this.assertHeld();
    if (failure?.reason === 'returned') return this.#extendOnAll(ttl);
    if (failure) throw this.#whyNotExtended(failure);
    this.ownTtl = ttl;
  }

  /**
   * A node may store the new ttl although its answer is lost, so a failed release must be repeated until the new ttl has
   * passed. The renewals keep their ttl until the extension is confirmed.
   */
  #mayBeExtendedTo(ttl: number): void {
    this.ownTtl = this.ttl;
    this.lease.ttl = Math.max(this.lease.ttl, ttl);
  }

  #whyNotExtended(failure: Exclude<ExtendFailure, { readonly reason: 'returned' }>): RedlockError {
    if (failure.reason === 'unconfirmed') return this.unconfirmed(failure.votes);
    return failure.reason === 'lost'
      ? this.whyNotHeld()
      : new LockUnavailableError(this.keys, failure.message, [], `extend the lock on ${quoted(this.keys)}`);
  }

  protected assertExtensible(what = 'extended'): void {
    const { since, duration } = this.limit;
    if (!since || elapsedSince(since) < duration) return;
    throw new RedlockError(
      'MAX_HOLD_REACHED',
      `The lock on ${quoted(this.keys)} is not ${what}: its \`maxHold\` of ` +
        `${duration} ms has passed, and the lock ends in ${Math.ceil(this.remaining())} ms. ` +
        'Finish the work by then, or give the lock a longer `maxHold`.',
    );
  }

  detach(): Promise<string> {
    return neutrally(HeldLock.#detachOf, this);
  }

  async #detachOnAll(): Promise<string> {
    this.#assertDetachable();
    await this.turn();
    let next = this.ttl / 10;
    try {
      this.#assertDetachable();
      const { since, duration } = this.limit;
      const earlier = (this.replaced ??= []);
      const { lease, fencingToken, ttl, declaredAs } = this;
      const maxHold = since && { duration, passed: Math.ceil(elapsedSince(since)) };
      const detachment = await detach(
        this.context,
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
        Math.min(this.nodeLimit, this.remaining() / 2),
      );
      if (detachment.kind !== 'detached') {
        earlier.push(detachment.lease);
        if (detachment.kind === 'gone') this.gone();
        // A nested call may have joined meanwhile.
        this.#assertDetachable();
        throw notConfirmed(this.keys, detachment.votes, 'detach');
      }
      next = Infinity;
      if (this.joined) this.#tellJoined();
      this.wasDetached = true;
      this.#release = Promise.resolve();
      this.become('released');
      this.#endLease();
      return detachment.text;
    } finally {
      this.passTurn(next);
    }
  }

  #assertDetachable(): void {
    this.assertHeld();
    this.assertExtensible('detached');
    const { keys } = this;
    const why = this.joined
      ? 'a nested call has joined it. Detach it when the nested call has ended'
      : this.lent
        ? "a thread renews it (`renew: 'thread'`). Acquire a lock that another process attaches without a thread, and give " +
          "`renew: 'thread'` to `attach`"
        : this.boundBy?.();
    if (why !== undefined) throw notDetached(keys, why);
    checkCanExchange(this.context.nodes, keys, 'LOCK_NOT_DETACHED', 'detached');
  }

  protected override whyNotHeld(): LockLostError {
    return super.whyNotHeld(
      this.wasDetached ? 'it was detached, so that another process can hold it' : undefined,
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
    this.abort(error);
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

  #releaseOnAll(): Promise<void> {
    this.noticeLapse();
    if (this.isAlive) this.become('released');
    if (this.joined) this.#tellJoined();
    this.#endLease();
    const { lease, context, nodeLimit } = this;
    const { nodes, unconfirmed } = context;
    const released = release(nodes, lease, nodeLimit, unconfirmed, true);
    for (const each of this.replaced ?? []) {
      // A node that still keeps this lease keeps it for the rest of `minHold`.
      each.acquired(performance.now(), lease.keepFor);
      // Another attacher may give it back a moment later.
      void drop(nodes, each, { limit: nodeLimit, mayComeLater: true });
    }
    if (lease.keepFor === 0) this.follower?.();
    const strayFor = this.lent?.strayFor ?? 0;
    if (strayFor > 0) releaseAgain(nodes, lease, nodeLimit, strayFor);
    return released;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }

  protected stop(): void {
    this.rest();
    this.context.ended(this);
  }

  #endLease(): void {
    this.rest(true);
    this.lease.ended = true;
    this.context.ended(this);
  }
}

showAs(HeldLock, 'LockHandle', (lock) => lock.described());
