import type { Instant } from '../../core/clock.js';
import type { NodeVote } from '../../core/errors.js';
import { HeldLock } from '../held-lock.js';
import { type Mirror, WHY } from '../renewal-ports.js';

/**
 * A lock of another thread, in the thread that renews it. Its renewals, extensions, healing and the rules of the validity
 * are those of any other lock. It tells the thread that holds the lock of them, and sends nothing more when that thread
 * renews the lock again.
 */
export class AdoptedLock extends HeldLock {
  /** The thread that holds the lock; `undefined` after its end. */
  private mirror: Mirror | undefined;

  /** @param isUnconfirmed - `true` if the last renewal of the thread that holds the lock has failed */
  mirrorTo(mirror: Mirror, isUnconfirmed: boolean): void {
    this.mirror = mirror;
    mirror.ends(this.end);
    if (this.limit.reached) mirror.because(WHY.maxHold);
    if (!isUnconfirmed) return;
    this.become('unconfirmed');
    this.watchValidity();
  }

  /** Renews the lock at once, which was not renewed while the thread that holds it did not run. */
  renewAgain(): void {
    if (!this.isHeld() || this.isPlanned) return;
    this.mirror?.because(WHY.none);
    this.plan(0);
  }

  /**
   * Ends the lock. The thread that holds it sends the release itself. A node that was asked to store the lock again may do
   * so after that release, so this thread releases such a lock once more: on its connection the release comes after the
   * request (S15). If the request was not answered, a further release follows its deadline (S27).
   *
   * @param isReleased - `false` for a lost lock, which may be released later
   * @returns `true` if this must be called again when the lost lock is released
   */
  endMirror(isReleased: boolean): boolean {
    this.mirror = undefined;
    if (isReleased && this.hasHealed) {
      void this.release();
      return false;
    }
    this.become('released');
    this.lease.ended = true;
    this.stop();
    return this.hasHealed;
  }

  /** Ends the renewal of a lock that is renewed by the thread that holds it again. The lease does not end. */
  returnMirror(): void {
    this.mirror = undefined;
    this.become('released');
    this.stop();
  }

  override lose(reason: string): void {
    if (this.isAlive) this.mirror?.lost();
    super.lose(reason);
  }

  protected override endAfter(left: number, at: Instant): void {
    super.endAfter(left, at);
    this.mirror?.ends(this.end);
  }

  protected override mayAsk(): boolean {
    return this.mirror?.isRenewed !== false;
  }

  protected override mayRenew(): boolean {
    if (!this.mayAsk()) return false;
    if (this.mirror?.mayRenew !== false) return true;
    this.mirror.because(WHY.blocked);
    this.watchValidity();
    return false;
  }

  /** S9: a thread that hung may read the request of an extension only after its holder renews the lock again. */
  protected override assertExtensible(): void {
    super.assertExtensible();
    if (!this.mayAsk())
      throw new Error('the thread that holds the lock renews it again, and has to extend it itself');
  }

  protected override isOver(delay: number): boolean {
    const isOver = super.isOver(delay);
    if (this.limit.since) this.mirror?.because(isOver ? WHY.maxHold : WHY.none);
    return isOver;
  }

  protected override gone(): void {
    this.mirror?.because(WHY.gone);
    super.gone();
  }

  protected override renewalFailed(votes: readonly NodeVote[]): void {
    this.mirror?.renewed(votes);
    super.renewalFailed(votes);
  }

  protected override renewed(ttl: number, sent: Instant): void {
    this.mirror?.because(WHY.none);
    const wasUnconfirmed = this.isUnconfirmed;
    super.renewed(ttl, sent);
    if (wasUnconfirmed) this.mirror?.renewed();
  }
}
