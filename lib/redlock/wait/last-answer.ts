import { elapsedSince, type Instant, now } from '../../core/clock.js';
import { LockHeldError, LockUnavailableError } from '../../core/errors.js';
import type { LockHolder } from '../../core/lock-info.js';
import type { LockKind } from '../../core/lock-mode.js';
import type { WaiterId } from '../../core/waiter-id.js';
import type { AcquiredLock } from './attempt.js';

/** The holders of the lock in the last answers of the nodes, at the moment `at`. */
interface Holding {
  readonly owner: string;
  /** Milliseconds, counted from `at`. */
  readonly retryAfter: number;
  readonly holders: readonly LockHolder[];
  readonly permitsSeen?: number | undefined;
  readonly at: Instant;
}

/**
 * The last answer to the calls of one queue. It becomes the error of a call that gives up without an attempt of its own.
 * Holders are kept without an error object, because an error is expensive to make.
 */
export class LastAnswer {
  #last: LockUnavailableError | Holding | undefined;

  constructor(
    private readonly id: WaiterId,
    private readonly kind: LockKind,
  ) {}

  refused(outcome: LockHeldError | LockUnavailableError): void {
    // The refusal because of a tick concerns only calls for that tick.
    if (outcome instanceof LockHeldError && outcome.ranTick !== undefined) return;
    if (outcome instanceof LockUnavailableError) {
      this.#last = outcome;
    } else {
      const { owner, retryAfter, holders, permitsSeen } = outcome;
      this.#last = { owner, retryAfter, holders, permitsSeen, at: now() };
    }
  }

  /** A call of this process got the lock, so it is a holder for the calls behind it. */
  acquired(lock: AcquiredLock): void {
    const holders = [...this.#others(), this.#holderOf(lock)];
    const retryAfter = Math.min(lock.ttl, ...holders.map(({ remaining }) => remaining));
    this.#last = { owner: this.id.owner, retryAfter, holders, at: now() };
  }

  /** The error for a call that gives up now. */
  get error(): LockHeldError | LockUnavailableError {
    const last = this.#last;
    if (!last)
      return new LockUnavailableError(
        this.id.keys,
        'no node has answered the earlier calls of this process for the lock',
      );
    return last instanceof LockUnavailableError ? last : this.#heldError(last);
  }

  /** The error with the holder, if a holder was the reason of the last refusal. */
  get held(): LockHeldError | undefined {
    const last = this.#last;
    return last && !(last instanceof LockUnavailableError) ? this.#heldError(last) : undefined;
  }

  #heldError({ owner, retryAfter, holders, permitsSeen, at }: Holding): LockHeldError {
    const left = Math.max(0, retryAfter - elapsedSince(at));
    return new LockHeldError(this.id.keys, owner, left, { holders, permitsSeen, kind: this.kind });
  }

  /** Describes a holder of this process that no node has named yet. */
  #holderOf({ id, ttl, fencingToken, mode, slot }: AcquiredLock): LockHolder {
    const { owner } = this.id;
    const holder = { id, owner, since: new Date(), remaining: ttl, fencingToken, mode };
    return slot === undefined ? holder : { ...holder, slot };
  }

  /** The holders of other permits in the last refusal. */
  #others(): readonly LockHolder[] {
    const last = this.#last;
    if (this.kind.mode !== 'permits' || !last || last instanceof LockUnavailableError) return [];
    const since = elapsedSince(last.at);
    const left = last.holders.map((holder) => ({ ...holder, remaining: holder.remaining - since }));
    return left.filter(({ mode, remaining }) => mode === 'permits' && remaining > 0);
  }
}
