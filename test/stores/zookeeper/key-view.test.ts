import { describe, expect, jest, test } from '@jest/globals';
import type { HolderRecord } from '../../../lib/stores/zookeeper/key-record.js';
import { isOver, isSuspect, type KeyView, viewOf } from '../../../lib/stores/zookeeper/key-view.js';
import type { ClockReading } from '../../../lib/stores/zookeeper/leader-clock.js';

const TTL = 10_000;
const SENT = 1_800_000_000_000;

const HOLDER: HolderRecord = {
  ...{ id: 'a', token: 1, renewals: 0, owner: 'me', since: SENT, sentAt: SENT, ttl: TTL, mode: 'exclusive' },
};

function viewWith(holder: HolderRecord, clock?: ClockReading, before?: KeyView): KeyView {
  const view = viewOf(
    {
      ...{ key: 'k', version: 1, record: { token: 1, holders: [holder], ticks: {} }, waiters: [] },
      ...{ storedAt: { epoch: 3, time: SENT + 10 }, transaction: 50n, hasQueue: false, generation: 0 },
    },
    before,
  );
  return { ...view, clock };
}

describe('the end of a lock in the view of another process', () => {
  test('a process counts the ttl and 1 % from the moment at which it first saw the stamp, and again after a renewal', () => {
    jest.useFakeTimers();
    try {
      const first = viewWith(HOLDER);
      jest.advanceTimersByTime(6_000);
      const second = viewWith(HOLDER, undefined, first);
      jest.advanceTimersByTime(4_050);
      expect(isOver(second, HOLDER)).toBe(false);
      jest.advanceTimersByTime(60);
      expect(isOver(second, HOLDER)).toBe(true);
      const renewed = { ...HOLDER, renewals: 1 };
      expect(isOver(viewWith(renewed, undefined, second), renewed)).toBe(false);
      // Another lock with the same id, after the holder had left its slot, has another token.
      const anotherTime = { ...HOLDER, token: 2 };
      expect(isOver(viewWith(anotherTime, undefined, second), anotherTime)).toBe(false);
    } finally {
      jest.useRealTimers();
    }
  });

  const late: ClockReading = { epoch: 3, time: SENT + 10 + 11_100, error: 20, transaction: 51n };

  test.each<[string, Partial<ClockReading>, Partial<HolderRecord>, boolean]>([
    ['the ttl, 1 % and a second lie between the writes', {}, {}, true],
    ['less than that lies between the writes', { time: late.time - 1 }, {}, false],
    ['another leader stored the later write', { epoch: 4 }, {}, false],
    ["the clock of this process differs from the leader's", { error: 501 }, {}, false],
    ["the holder's clock differed from the leader's", {}, { sentAt: SENT - 491 }, false],
    ['the later time was read before the holder wrote', { transaction: 49n }, {}, false],
    ['an earlier version stored the stamp', {}, { storedAt: { epoch: 3, time: SENT - 400 } }, true],
    ['an earlier leader stored the stamp', {}, { storedAt: { epoch: 2, time: SENT } }, false],
  ])('the comparison of two times, when %s', (_, reading, holder, isPast) => {
    const record = { ...HOLDER, ...holder };
    expect(isOver(viewWith(record, { ...late, ...reading }), record)).toBe(isPast);
  });

  test('another look at the clock is worth its request only when the lock may have ended long ago', () => {
    jest.useFakeTimers({ now: SENT + 11_000 });
    try {
      expect(isSuspect(viewWith(HOLDER), HOLDER)).toBe(false);
      jest.advanceTimersByTime(200);
      expect(isSuspect(viewWith(HOLDER), HOLDER)).toBe(true);
      expect(isSuspect(viewWith(HOLDER, { ...late, transaction: 1n }), HOLDER)).toBe(true);
      // A later leader has another clock.
      expect(isSuspect(viewWith(HOLDER, { ...late, epoch: 4 }), HOLDER)).toBe(false);
    } finally {
      jest.useRealTimers();
    }
  });
});
