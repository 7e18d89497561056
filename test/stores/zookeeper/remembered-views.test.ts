import { describe, expect, jest, test } from '@jest/globals';
import type { HolderRecord } from '../../../lib/stores/zookeeper/key-record.js';
import { isOver, type KeyVersion } from '../../../lib/stores/zookeeper/key-view.js';
import { RememberedViews } from '../../../lib/stores/zookeeper/remembered-views.js';

const MANY = 10_001;
const TTL = 10_000;

const HOLDER: HolderRecord = {
  ...{ id: 'a', token: 1, renewals: 0, owner: 'me', since: 0, sentAt: 0, ttl: TTL, mode: 'exclusive' },
};

function versionOf(key: string, holders: readonly HolderRecord[]): KeyVersion {
  return {
    ...{ key, version: 1, record: { token: 1, holders, ticks: {} }, waiters: [], hasQueue: false },
    ...{ storedAt: { epoch: 1, time: 0 }, transaction: 1n, generation: 0 },
  };
}

describe('the time for which a process has watched the holder of a key', () => {
  test.each<[string, (views: RememberedViews) => void]>([
    [
      'when it lists many held keys',
      (views) => {
        for (let key = 0; key < MANY; key++) views.inspect(versionOf(`other:${key}`, [HOLDER]));
      },
    ],
    [
      'when it locks and frees many keys',
      (views) => {
        for (let key = 0; key < MANY; key++) views.learn(versionOf(`other:${key}`, []));
      },
    ],
  ])('is not forgotten %s', (_, meanwhile) => {
    jest.useFakeTimers();
    try {
      const views = new RememberedViews();
      views.learn(versionOf('crashed', [HOLDER]));
      meanwhile(views);
      jest.advanceTimersByTime(1.01 * TTL + 1);
      expect(isOver(views.learn(versionOf('crashed', [HOLDER])), HOLDER)).toBe(true);
    } finally {
      jest.useRealTimers();
    }
  });

  test('counts from its first inspection, also for a later lock', () => {
    jest.useFakeTimers();
    try {
      const views = new RememberedViews();
      views.inspect(versionOf('crashed', [HOLDER]));
      expect(views.get('crashed')).toBeUndefined();
      jest.advanceTimersByTime(1.01 * TTL + 1);
      expect(isOver(views.inspect(versionOf('crashed', [HOLDER])), HOLDER)).toBe(true);
      expect(isOver(views.learn(versionOf('crashed', [HOLDER])), HOLDER)).toBe(true);
    } finally {
      jest.useRealTimers();
    }
  });
});
