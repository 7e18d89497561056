import type { Instant } from '../../core/clock.js';
import { WHY, type Why } from '../renewal-ports.js';
import { fromSharedTime, toSharedTime } from './shared-clock.js';

/** Number of locks in one block of shared memory. */
export const SLOTS_PER_BLOCK = 256;

/**
 * Bytes of a slot for the text that describes its lock. A lock with longer keys is handed over by a message. `npm run
 * bench -- thread` measures both.
 */
export const TEXT_BYTES = 480;

/** The bytes of a slot: two ends, three numbers, and the text. */
const BYTES_PER_SLOT = 16 + 12 + TEXT_BYTES;

/** The state of a slot before the thread that renews knows its lock: the lock is offered, and then taken. */
const OFFER = { none: 0, made: 1, taken: 2 } as const;

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
  /** The state of the offer of each slot, and at the end the number of offers so far. */
  readonly #offers: Int32Array;
  /** The text of each slot, filled up with spaces. */
  readonly #texts: Buffer;
  /** The number of offers at the last look. */
  #seen = 0;

  constructor(readonly memory = new SharedArrayBuffer(SLOTS_PER_BLOCK * BYTES_PER_SLOT + 4)) {
    const words = SLOTS_PER_BLOCK * 4;
    this.#ends = new BigInt64Array(memory, 0, 2 * SLOTS_PER_BLOCK);
    this.#flags = new Int32Array(memory, 4 * words, 2 * SLOTS_PER_BLOCK);
    this.#offers = new Int32Array(memory, 6 * words, SLOTS_PER_BLOCK + 1);
    this.#texts = Buffer.from(memory, 7 * words + 4);
  }

  /**
   * Offers a lock to the thread that renews, which takes it at its next look, even if this thread does not run then. That
   * costs no message, which is dear, and a lock that is released before the look is {@link withdraw}n.
   *
   * @param text - describes the lock
   * @returns `false` if the text is too long
   */
  offer(slot: number, text: string): boolean {
    if (Buffer.byteLength(text) > TEXT_BYTES) return false;
    const at = slot * TEXT_BYTES;
    this.#texts.fill(' ', at + this.#texts.write(text, at), at + TEXT_BYTES);
    Atomics.store(this.#offers, slot, OFFER.made);
    Atomics.add(this.#offers, SLOTS_PER_BLOCK, 1);
    return true;
  }

  /** Says that the lock is handed over by a message. */
  skipOffer(slot: number): void {
    Atomics.store(this.#offers, slot, OFFER.taken);
  }

  /** Withdraws the offer of a lock. Returns `false` if the other thread has taken the lock. */
  withdraw(slot: number): boolean {
    return Atomics.compareExchange(this.#offers, slot, OFFER.made, OFFER.none) === OFFER.made;
  }

  /** Takes the locks that were offered since the last look. Returns their texts. */
  take(): readonly string[] {
    const count = Atomics.load(this.#offers, SLOTS_PER_BLOCK);
    if (count === this.#seen) return [];
    this.#seen = count;
    const texts: string[] = [];
    for (let slot = 0; slot < SLOTS_PER_BLOCK; slot++) {
      if (Atomics.compareExchange(this.#offers, slot, OFFER.made, OFFER.taken) !== OFFER.made) continue;
      texts.push(this.#texts.toString('utf8', slot * TEXT_BYTES, (slot + 1) * TEXT_BYTES));
    }
    return texts;
  }

  /** Clears a slot for another lock with this end of the validity. */
  begin(slot: number, end: Instant): void {
    this.setEnd(slot, end);
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
