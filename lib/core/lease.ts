import { randomFillSync } from 'node:crypto';
import { EXCLUSIVE, type LockKind } from './lock-mode.js';
import type { Tick, TickMark } from './tick.js';

/** 128 bits, so that two attempts never share an id (S5). */
const ID_BYTES = 16;

/** Length of the ids of leases, in characters. */
export const ID_LENGTH = ID_BYTES * 2;

/** Random bytes for the ids to come: asking for 16 KiB at once costs hardly more than asking for 16 bytes. */
const pool = Buffer.alloc(1_024 * ID_BYTES);
let used = pool.length;

function randomId(): string {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  used += ID_BYTES;
  return pool.toString('hex', used - ID_BYTES, used);
}

/**
 * One attempt to lock some keys: what every node is asked to store. A store reads it, and changes nothing of it.
 *
 * An id that is used for two attempts lets the late reply of the first count for the second, so every attempt
 * makes a lease of its own (S5).
 */
export class Lease {
  readonly id = randomId();

  /**
   * Set when the attempt has failed or the lock is released. A node must not start anything for an ended
   * lease but its release: a write that arrived after the release would stay for the whole ttl (S15).
   */
  ended = false;

  /**
   * The slot that it has of each key, in the order of the keys; only with permits, and once it is known. A node that has
   * another one for it does not count as holding it.
   */
  slots: readonly number[] | undefined;

  /**
   * The most permits that anybody asked for lately for one of its keys, where that is more than it asked for itself; that is the
   * limit then.
   * @internal The algorithm's own, as what is marked so below.
   */
  permitsSeen: number | undefined;

  /** What the release leaves behind, if anything. */
  #afterwards: Afterwards | undefined;

  /** @internal */
  constructor(
    readonly keys: readonly string[],
    /** Readable name of the process. */
    readonly owner: string,
    /** Milliseconds that a node keeps the lease, counted from the last acquire or extend; the longest asked for so far. */
    public ttl: number,
    tick?: Tick,
    readonly kind: LockKind = EXCLUSIVE,
  ) {
    if (tick) this.#afterwards = { tick, minHold: 0, sent: undefined };
  }

  /** The firing of a schedule that it is for, if any. */
  get tick(): Tick | undefined {
    return this.#afterwards?.tick;
  }

  /**
   * The lock is acquired. Only from now on does a release keep or leave anything: an attempt that failed does not.
   *
   * @param sent - when the first request was sent, by `performance.now()`
   * @internal
   */
  acquired(sent: number, minHold: number): void {
    const { tick } = this;
    if (minHold > 0 || tick) this.#afterwards = { tick, minHold, sent };
  }

  /**
   * Others ask for so many permits, which is more than it does.
   * @internal
   */
  seePermits(permits: number): void {
    this.permitsSeen = Math.max(this.permitsSeen ?? 0, permits);
  }

  /** Milliseconds that the keys must be kept when the lease is released now; 0 to free them. */
  get keepFor(): number {
    const { sent, minHold = 0 } = this.#afterwards ?? {};
    return sent === undefined ? 0 : leftUntil(sent + minHold);
  }

  /** What nodes must remember of its tick when the lease is released now. */
  get mark(): TickMark | undefined {
    const { sent, tick } = this.#afterwards ?? {};
    if (!tick || sent === undefined) return undefined;
    const life = tick.from === 'release' ? tick.life : leftUntil(sent + tick.life);
    return life > 0 ? { schedule: tick.schedule, at: tick.at, life } : undefined;
  }

  /**
   * Milliseconds after the release for which a node that missed it must still be told.
   * @internal
   */
  get pendingFor(): number {
    const { sent, tick } = this.#afterwards ?? {};
    return tick && sent !== undefined ? Math.max(this.ttl, tick.life) : this.ttl;
  }
}

interface Afterwards {
  readonly tick: Tick | undefined;
  /** Milliseconds for which the keys are kept at least, though the lock is released sooner. */
  readonly minHold: number;
  /**
   * When the first request was sent; `undefined` before the lock is acquired. By `performance.now()`, because a wall clock
   * that is put forward must not cut short what is kept; a suspended machine makes it longer.
   */
  readonly sent: number | undefined;
}

function leftUntil(time: number): number {
  return Math.max(0, Math.ceil(time - performance.now()));
}
