import type { Instant } from '../core/clock.js';
import type {
  ExtendFailure,
  HandedOver,
  RemotelyRenewed,
  RemoteRenewal,
  RenewalThread,
  Why,
} from './renewal-ports.js';
import { STRAY_MARGIN_MS } from './stray-releases.js';

/** A call of `extend` that the other thread has to answer. */
interface Call {
  readonly remote: RemoteRenewal;
  /** Milliseconds within which a thread that runs has answered. */
  readonly limit: number;
  readonly hangs: () => void;
}

/**
 * The renewal of a lock with `renew: 'thread'`, in the thread that holds it. The lock renews itself until the other thread
 * takes it over, and again after it was taken back, until its next renewal.
 */
export class LentRenewal {
  /** `#private`, because it knows the options of the nodes, which no log of a lock may show. */
  readonly #thread: RenewalThread;
  /** The renewal by the other thread, while there is one. */
  #remote: RemoteRenewal | undefined;
  /**
   * Set while this thread renews a lock that the other thread had taken over, until its next renewal: `'failed'` if only
   * the other thread is known to have failed.
   */
  #takenBack: 'failed' | 'other' | undefined;
  /** Number of failures of the other thread since it renewed the lock last. */
  #failures = 0;
  /** The time of the monotonic clock until which a request of a thread that renews no more may still reach a node. */
  #strayUntil = -Infinity;
  /** The calls of {@link extend} without an answer. */
  #calls: Set<Call> | undefined;
  /** The timer of the first of these calls. */
  #hanging: NodeJS.Timeout | undefined;

  /** @param maxBlocked - milliseconds for which the other thread renews while this one is blocked */
  constructor(
    thread: RenewalThread,
    readonly maxBlocked: number,
  ) {
    this.#thread = thread;
  }

  /** `true` while the other thread renews the lock. */
  get isAway(): boolean {
    return this.#remote !== undefined;
  }

  /** `true` if the lock may be handed over, as soon as the other thread can renew. */
  get mayHandOver(): boolean {
    return !this.#remote && !this.#takenBack;
  }

  /** The reason why the other thread does not renew the lock; `undefined` if the lock renews itself. */
  get why(): Why | undefined {
    return this.#remote?.why;
  }

  handOver(lock: RemotelyRenewed, handedOver: HandedOver): void {
    this.#remote = this.#thread.takeOver(lock, handedOver);
  }

  /**
   * The end of the validity that the other thread has written since the last call, if it has.
   *
   * @param known - the end so far
   */
  newEnd(known: Instant): Instant | undefined {
    const end = this.#remote?.newEnd();
    if (end && Math.floor(end.monotonic) > known.monotonic) this.#failures = 0;
    return end;
  }

  /**
   * Extends the lock in the other thread, which does it in turn with its renewals (S9).
   *
   * @param limit - milliseconds that a renewal and this extension may take
   * @param hangs - called when it takes longer, so the other thread hangs
   */
  async extend(ttl: number, limit: number, hangs: () => void): Promise<ExtendFailure | undefined> {
    const remote = this.#remote!;
    const call: Call = { remote, limit: limit + STRAY_MARGIN_MS, hangs };
    const calls = (this.#calls ??= new Set());
    calls.add(call);
    if (calls.size === 1) this.#await(call);
    const failure = await remote.extend(ttl);
    calls.delete(call);
    clearTimeout(this.#hanging);
    const [next] = calls;
    if (next) this.#await(next);
    return failure;
  }

  /** Awaits the answer to the first call. The time of the next call counts from that answer, because they take turns. */
  #await(call: Call): void {
    // When the event loop was blocked, the answer may have arrived, and Node has not read it yet. `setImmediate` lets Node
    // read it first.
    this.#hanging = setTimeout(setImmediate, call.limit, () => {
      if (this.#calls?.has(call) && this.#remote === call.remote) call.hangs();
    });
  }

  /** Called when the other thread could not renew the lock. */
  failed(): void {
    this.#failures++;
  }

  /** Takes the renewal back. The lock calls {@link returned} when it has read the last end. */
  takeBack(because: 'failed' | 'other'): void {
    this.#remote?.takeBack();
    this.#takenBack = because;
  }

  /** @param limit - milliseconds within which a node must carry out a request of the other thread */
  returned(limit: number): void {
    this.#remote = undefined;
    this.#strayUntil = performance.now() + limit + STRAY_MARGIN_MS;
  }

  /** Called when this thread has tried to renew the lock, and could not either. */
  failedHere(): void {
    if (this.#takenBack) this.#takenBack = 'other';
  }

  /**
   * Called when this thread has renewed the lock: the other thread may try again (S31). Once it may have failed because a
   * server was away for a moment.
   */
  renewedHere(): void {
    if (this.#takenBack === 'failed' && this.#failures > 1) this.#thread.outdone();
    this.#takenBack = undefined;
  }

  /** Ends the renewal of a lock that is lost or released. The other thread must hear of the release of a lost lock, too. */
  end(isReleased: boolean): void {
    this.#remote?.end(isReleased);
    if (isReleased) this.#remote = undefined;
  }

  /** Milliseconds for which a request of the other thread may still reach a node, although the lock was taken back. */
  get strayFor(): number {
    return Math.max(0, this.#strayUntil - performance.now());
  }
}
