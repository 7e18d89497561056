import { randomFillSync } from 'node:crypto';
import type { Tick, TickMark } from './tick.js';

/** 128 bits, so that two attempts never share an id (S5). */
const ID_BYTES = 16;

/** Length of the ids of claims, in characters. */
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
 * Claims keep their time as the difference to this: a small whole number is kept in the object itself, a large one
 * takes another 16 bytes for each of the many locks that a process may hold.
 */
const LOADED_AT = Date.now();

/**
 * One attempt to lock some keys: what every node is asked to store.
 *
 * An id that is used for two attempts lets the late reply of the first count for the second, so every attempt
 * makes a claim of its own (S5).
 */
export class Lease {
  readonly id = randomId();

  /** When the attempt was made, in milliseconds after {@link LOADED_AT}. */
  // Rounded, because a difference of large numbers is large to V8, whatever its value.
  readonly #madeAt = Math.round(Date.now() - LOADED_AT);

  /**
   * Set when the attempt has failed or the lock is released. A node must not start anything for an ended
   * claim but its release: a write that arrived after the release would stay for the whole ttl (S15).
   */
  ended = false;

  // Plain numbers: a process may hold ten thousand locks. By the monotonic clock, because a wall clock that is put
  // forward must not cut short what is kept; a suspended machine makes it longer.
  /** The time of `performance.now()` until which the keys are kept though the lock is released sooner. */
  #keptUntil = 0;
  /** When the lock for a tick was acquired, by `performance.now()`; -1 before. */
  #ranAt = -1;

  constructor(
    readonly keys: readonly string[],
    readonly owner: string,
    /** Milliseconds that a node keeps the claim, counted from the last acquire or extend; the longest asked for so far. */
    public ttl: number,
    /** The firing of a schedule that it is for, if any. */
    readonly tick?: Tick,
  ) {}

  /** When the attempt was made, by this machine's clock, in milliseconds since 1970; for people. */
  get since(): number {
    return LOADED_AT + this.#madeAt;
  }

  /**
   * The lock is acquired. Only from now on does a release keep or leave anything: an attempt that failed does not.
   *
   * @param sent - when the first request was sent, by `performance.now()`
   */
  acquired(sent: number, minHold: number): void {
    if (minHold > 0) this.#keptUntil = sent + minHold;
    if (this.tick) this.#ranAt = sent;
  }

  /** Milliseconds that the keys must be kept when the claim is released now; 0 to delete them. */
  get keepFor(): number {
    return leftUntil(this.#keptUntil);
  }

  /** What nodes must remember of its tick when the claim is released now. */
  get mark(): TickMark | undefined {
    const { tick } = this;
    if (!tick || this.#ranAt < 0) return undefined;
    const life = tick.from === 'release' ? tick.life : leftUntil(this.#ranAt + tick.life);
    return life > 0 ? { schedule: tick.schedule, at: tick.at, life } : undefined;
  }

  /** Milliseconds after the release for which a node that missed it must still be told. */
  get owedFor(): number {
    return this.tick && this.#ranAt >= 0 ? Math.max(this.ttl, this.tick.life) : this.ttl;
  }
}

function leftUntil(time: number): number {
  return Math.max(0, Math.ceil(time - performance.now()));
}
