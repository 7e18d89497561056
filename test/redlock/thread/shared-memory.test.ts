import { describe, expect, test } from '@jest/globals';
import { WHY } from '../../../lib/redlock/renewal-ports.js';
import { LockSlots, SLOTS_PER_BLOCK, TEXT_BYTES } from '../../../lib/redlock/thread/lock-slots.js';
import { fromSharedTime, toSharedTime } from '../../../lib/redlock/thread/shared-clock.js';

/** More than the time between two readings of a clock on a busy machine. */
const LONG_MS = 10_000;

function sharedNow(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

describe('the clock that all threads share', () => {
  test('a time of this thread is converted to the clock of all threads, and never to a later time', () => {
    const before = sharedNow();
    const time = performance.now();
    const after = sharedNow();
    expect(toSharedTime(time)).toBeLessThanOrEqual(after);
    expect(toSharedTime(time)).toBeGreaterThan(before - LONG_MS);
  });

  test('a shared time is converted to the clock of this thread, and never to a later time', () => {
    const before = performance.now();
    const time = sharedNow();
    const after = performance.now();
    expect(fromSharedTime(time)).toBeLessThanOrEqual(after);
    expect(fromSharedTime(time)).toBeGreaterThan(before - LONG_MS);
  });

  test('a time becomes earlier by the errors of both conversions', () => {
    const time = performance.now();
    expect(fromSharedTime(toSharedTime(time))).toBeLessThan(time);
  });
});

describe('the state of locks in shared memory', () => {
  test('another instance over the same memory reads the end of each lock, which is never too late', () => {
    const slots = new LockSlots();
    const others = new LockSlots(slots.memory);
    const end = { monotonic: 5_000.7, wall: Date.now() + 0.9 };
    slots.setEnd(0, end);
    slots.setEnd(SLOTS_PER_BLOCK - 1, { monotonic: 9_000, wall: 77 });
    const read = others.endOf(0);
    expect(read.monotonic).toBeLessThan(end.monotonic);
    expect(read.monotonic).toBeGreaterThan(end.monotonic - LONG_MS);
    expect(read.wall).toBe(Math.floor(end.wall));
    expect(others.endOf(SLOTS_PER_BLOCK - 1).wall).toBe(77);
    expect(others.endOf(1).wall).toBe(0);
  });

  test('a lock has its own mark and reason, which are gone when its slot is used again', () => {
    const slots = new LockSlots();
    const others = new LockSlots(slots.memory);
    slots.setEnded(3);
    others.setWhy(4, WHY.blocked);
    expect([2, 3, 4].map((slot) => others.isEnded(slot))).toEqual([false, true, false]);
    expect([3, 4, 5].map((slot) => slots.whyOf(slot))).toEqual([WHY.none, WHY.blocked, WHY.none]);
    slots.setEnd(4, { monotonic: 1, wall: 1 });
    slots.begin(3, { monotonic: 2, wall: 2 });
    slots.begin(4, { monotonic: 2, wall: 2 });
    expect([slots.isEnded(3), slots.whyOf(4), slots.endOf(4).wall]).toEqual([false, WHY.none, 2]);
  });

  test('another instance takes each lock that was offered once, unless the offer was withdrawn', () => {
    const slots = new LockSlots();
    const others = new LockSlots(slots.memory);
    expect(others.take()).toEqual([]);
    const long = JSON.stringify('ключ '.repeat(45));
    expect([slots.offer(0, long), slots.offer(1, '"b"'), slots.offer(SLOTS_PER_BLOCK - 1, '"c"')]).toEqual([
      true,
      true,
      true,
    ]);
    expect(slots.withdraw(1)).toBe(true);
    expect(others.take().map((text) => JSON.parse(text) as unknown)).toEqual([JSON.parse(long), 'c']);
    expect([others.take(), slots.withdraw(0), slots.withdraw(1)]).toEqual([[], false, false]);
    // The text of another lock of the slot is shorter.
    slots.offer(0, '"d"');
    expect(others.take().map((text) => JSON.parse(text) as unknown)).toEqual(['d']);
  });

  test('a lock is not offered whose text has more bytes than a slot', () => {
    const slots = new LockSlots();
    expect([
      slots.offer(0, 'я'.repeat(TEXT_BYTES / 2)),
      slots.offer(1, 'я'.repeat(TEXT_BYTES / 2 + 1)),
    ]).toEqual([true, false]);
    expect(new LockSlots(slots.memory).take()).toHaveLength(1);
  });
});
