import { randomFillSync } from 'node:crypto';
import type { Instant } from './clock.js';

// A virtual machine or a container can be restored several times from one snapshot. The restored processes have the
// same random bytes: those that are in memory, and those that their random generators make next. Only their clocks
// differ. So each id contains the moment at which it was made, by both clocks (S5).

/** 128 bits, so that two attempts never share an id (S5). */
const ID_BYTES = 16;

/** Length of an id in characters. */
export const ID_LENGTH = ID_BYTES * 2;

/** Random bytes for the next ids: one request for 16 KiB of random bytes costs hardly more than one for 16 bytes. */
const words = new Uint32Array((1_024 * ID_BYTES) / Uint32Array.BYTES_PER_ELEMENT);
const pool = Buffer.from(words.buffer);
let used = pool.length;

/** The monotonic clock, with nanoseconds as fractions of a millisecond, and the wall clock. */
const moment = new Float64Array(2);
const momentWords = new Uint32Array(moment.buffer);

/**
 * Makes an id of 128 random bits, combined with a moment. The exclusive or leaves the bits as random as they were.
 *
 * @param made - the present moment: to read both clocks again would more than double the time of this function, to
 * 0.8 us
 */
export function randomId({ monotonic, wall }: Instant): string {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  moment[0] = monotonic;
  moment[1] = wall;
  for (let word = 0; word < momentWords.length; word++) {
    words[used / Uint32Array.BYTES_PER_ELEMENT + word]! ^= momentWords[word]!;
  }
  used += ID_BYTES;
  return pool.toString('hex', used - ID_BYTES, used);
}

const LOADED_AT = Date.now();

/** The number of values for the monotonic clock in a {@link momentNumber}: its nanoseconds, without the higher digits. */
const NANOSECONDS = 2 ** 14;

/**
 * Makes a whole number from the present moment, by both clocks. The number is larger than `last`, and below 2^53 for
 * the first 17 years of the process.
 */
export function momentNumber(last: number): number {
  const nanoseconds = Math.floor(performance.now() * 1e6) % NANOSECONDS;
  return Math.max(last + 1, (Date.now() - LOADED_AT) * NANOSECONDS + nanoseconds);
}
