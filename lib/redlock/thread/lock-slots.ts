import type { Instant } from '../../core/clock.js';
import { fromSharedTime, toSharedTime } from './shared-clock.js';

/** Number of locks in one block of shared memory. */
export const SLOTS_PER_BLOCK = 256;

const BYTES_PER_SLOT = 24;

/** The reason why the thread does not renew a lock any more. */
export const WHY = { none: 0, blocked: 1, maxHold: 2, gone: 3 } as const;

export type Why = (typeof WHY)[keyof typeof WHY];

/** The state of a lock, which the thread that holds it writes. */
const STATE = { renewed: 0, ended: 1, returned: 2 } as const;

/**
 * A block of shared memory with the state of up to {@link SLOTS_PER_BLOCK} locks. The thread that renews a lock writes the
 * end of its validity, so that the thread that holds the lock knows it in the first statement after it was blocked.
 *
 * The two ends of a lock need no common guard. They always stand for the same moment, and a reader takes the smaller
 * rest. So a reader that sees one new and one old end sees the older or the shorter validity.
 */
export class LockSlots {
  readonly #ends: BigInt64Array;
  readonly #flags: Int32Array;

  constructor(readonly memory = new SharedArrayBuffer(SLOTS_PER_BLOCK * BYTES_PER_SLOT)) {
    this.#ends = new BigInt64Array(memory, 0, 2 * SLOTS_PER_BLOCK);
    this.#flags = new Int32Array(memory, SLOTS_PER_BLOCK * 16, 2 * SLOTS_PER_BLOCK);
  }

  /** Clears a slot for another lock. */
  clear(slot: number): void {
    this.setEnd(slot, { monotonic: 0, wall: 0 });
    Atomics.store(this.#flags, 2 * slot, STATE.renewed);
    Atomics.store(this.#flags, 2 * slot + 1, WHY.none);
  }

  /** Stores the end of the validity; both values in whole milliseconds at most, so never too late. */
  setEnd(slot: number, { monotonic, wall }: Instant): void {
    Atomics.store(this.#ends, 2 * slot, BigInt(Math.floor(toSharedTime(monotonic))));
    Atomics.store(this.#ends, 2 * slot + 1, BigInt(Math.floor(wall)));
  }

  endOf(slot: number): Instant {
    return {
      monotonic: fromSharedTime(this.sharedEndOf(slot)),
      wall: Number(Atomics.load(this.#ends, 2 * slot + 1)),
    };
  }

  /** The end of the validity by the shared clock, as it is stored. */
  sharedEndOf(slot: number): number {
    return Number(Atomics.load(this.#ends, 2 * slot));
  }

  /** Says that the lock is released or lost: the thread sends nothing for it from now on. */
  setEnded(slot: number): void {
    Atomics.store(this.#flags, 2 * slot, STATE.ended);
  }

  isEnded(slot: number): boolean {
    return Atomics.load(this.#flags, 2 * slot) === STATE.ended;
  }

  /**
   * Says that the thread that holds the lock renews it again. The lease does not end: a store of the other thread would
   * release an ended lease once more (S27), although the lock is held.
   */
  setReturned(slot: number): void {
    Atomics.store(this.#flags, 2 * slot, STATE.returned);
  }

  /** `true` while the lock is the thread's to renew. */
  isRenewed(slot: number): boolean {
    return Atomics.load(this.#flags, 2 * slot) === STATE.renewed;
  }

  setWhy(slot: number, why: Why): void {
    Atomics.store(this.#flags, 2 * slot + 1, why);
  }

  whyOf(slot: number): Why {
    return Atomics.load(this.#flags, 2 * slot + 1) as Why;
  }
}
