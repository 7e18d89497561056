import { now } from './clock.js';
import { EXCLUSIVE, type LockKind } from './lock-mode.js';
import { randomId } from './random-id.js';
import type { Tick, TickMark } from './tick.js';

const LOADED_AT = Date.now();

/**
 * One attempt to lock some keys, in the form that the client asks every node to store. A store reads a lease and does
 * not change it.
 *
 * Each attempt makes a new lease with a new id: if two attempts shared an id, the late reply to the first attempt would
 * count for the second attempt (S5).
 */
export class Lease {
  readonly id: string;

  /**
   * `true` when the attempt has failed or the lock is released. From then on the client may send only the release of
   * the lease: a write that reaches a node after the release would stay for the whole ttl (S15).
   */
  ended = false;

  /**
   * The slot of each key, in the order of the keys; `undefined` without permits, and until the slots are known. The
   * vote of a node that stored the lease in another slot does not count.
   */
  slots: readonly number[] | undefined;

  /**
   * The number of permits that another caller recently asked for, if that number is larger than the number that this
   * lease asks for. The larger number is then the limit of the key.
   * @internal Used by the algorithm only, like the other internal members.
   */
  permitsSeen: number | undefined;

  /**
   * Set in the thread that has acquired the lock, after another thread of the process has renewed it: what the store
   * knows of the expiry may be out of date. `'in doubt'` if that thread may still extend it, because an extension was not
   * answered.
   * @internal
   */
  lent: 'certain' | 'in doubt' | undefined;

  /**
   * `true` in the thread that renews the lock of another thread: the store has not acquired it.
   * @internal
   */
  isCopy: boolean | undefined;

  /**
   * The wall-clock time of the attempt, counted from {@link LOADED_AT}: V8 stores a small integer in the object itself.
   */
  readonly #madeAt: number;

  /** The data that the release leaves on the nodes, if any. */
  #afterwards: Afterwards | undefined;

  /** @internal */
  constructor(
    readonly keys: readonly string[],
    /** Readable name of the process. */
    readonly owner: string,
    /**
     * Milliseconds for which a node keeps the lease, counted from the last acquire or extend. If the calls of `extend`
     * had different ttls, this is the longest ttl.
     */
    public ttl: number,
    tick?: Tick,
    readonly kind: LockKind = EXCLUSIVE,
    /** The moment of the attempt. */
    made = now(),
    id?: string,
  ) {
    this.id = id ?? randomId(made);
    this.#madeAt = made.wall - LOADED_AT;
    if (tick) this.#afterwards = { tick, minHold: 0, sent: undefined };
  }

  /**
   * Copies a lease of another thread of this process, which has acquired it.
   * @param keepFor - milliseconds for which a release would keep the keys now
   * @param isEnded - reads whether the other thread has ended the lease
   * @param isTakenBack - reads whether the other thread renews the lock again
   * @internal
   */
  static copied(
    { id, keys, owner, ttl, kind, since, slots, permitsSeen }: CopiedLease,
    keepFor: number,
    isEnded: () => boolean,
    isTakenBack: () => boolean,
  ): Lease {
    const made = now();
    const lease = new Lease(keys, owner, ttl, undefined, kind, { ...made, wall: since }, id);
    let ended = false;
    Object.defineProperty(lease, 'ended', {
      get: () => ended || isEnded(),
      set: (value: boolean) => {
        ended = value;
      },
    });
    Object.defineProperty(lease, 'mayBeStored', { get: () => !lease.ended && !isTakenBack() });
    lease.slots = slots;
    lease.permitsSeen = permitsSeen;
    lease.isCopy = true;
    lease.acquired(made.monotonic, keepFor);
    return lease;
  }

  /**
   * The time of the attempt, in milliseconds since 1970 by this machine's clock.
   * @internal
   */
  get since(): number {
    return this.#madeAt + LOADED_AT;
  }

  /**
   * `false` when no node may be asked any more to store the lease, or to extend it: it has ended, or the other thread that
   * holds the lock renews it again. That thread sends its release then, which a request from here could follow (S27).
   * @internal
   */
  get mayBeStored(): boolean {
    return !this.ended;
  }

  /** The tick of a schedule for which the lease was requested, if any. */
  get tick(): Tick | undefined {
    return this.#afterwards?.tick;
  }

  /**
   * Marks the lock as acquired. Without this call, a release neither keeps the keys for the rest of `minHold` nor
   * stores a tick: a failed attempt leaves no data.
   *
   * @param sent - the `performance.now()` of the first request
   * @internal
   */
  acquired(sent: number, minHold: number): void {
    const { tick } = this;
    if (minHold > 0 || tick) this.#afterwards = { tick, minHold, sent };
  }

  /**
   * Records that another caller asked for more permits than this lease did.
   * @internal
   */
  seePermits(permits: number): void {
    this.permitsSeen = Math.max(this.permitsSeen ?? 0, permits);
  }

  /** Milliseconds for which nodes must keep the keys if the lock is released now; 0 to free the keys. */
  get keepFor(): number {
    const { sent, minHold = 0 } = this.#afterwards ?? {};
    return sent === undefined ? 0 : leftUntil(sent + minHold);
  }

  /** The tick that nodes must remember if the lock is released now. */
  get mark(): TickMark | undefined {
    const { sent, tick } = this.#afterwards ?? {};
    if (!tick || sent === undefined) return undefined;
    const life = tick.from === 'release' ? tick.life : leftUntil(sent + tick.life);
    return life > 0 ? { schedule: tick.schedule, at: tick.at, life } : undefined;
  }

  /**
   * Milliseconds after which a release that a node has missed is no longer needed: the lease has then expired, and the
   * record of its tick would have expired, too.
   * @internal
   */
  get pendingFor(): number {
    const { sent, tick } = this.#afterwards ?? {};
    return tick && sent !== undefined ? Math.max(this.ttl, tick.life) : this.ttl;
  }
}

/** The properties of a lease that another thread needs in order to renew and release it. */
export type CopiedLease = Pick<
  Lease,
  'id' | 'keys' | 'owner' | 'ttl' | 'kind' | 'since' | 'slots' | 'permitsSeen'
>;

interface Afterwards {
  readonly tick: Tick | undefined;
  /** Milliseconds for which other callers find the keys held, even if the lock is released sooner. */
  readonly minHold: number;
  /**
   * The `performance.now()` of the first request; `undefined` before the lock is acquired. It is a time of the
   * monotonic clock, because a wall clock that is set forward must not shorten `minHold`. If the machine is suspended,
   * `minHold` becomes longer.
   */
  readonly sent: number | undefined;
}

function leftUntil(time: number): number {
  return Math.max(0, Math.ceil(time - performance.now()));
}
