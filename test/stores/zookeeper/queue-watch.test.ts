import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import type { ZooKeeperClient } from '../../../lib/stores/zookeeper/client/zookeeper-client.js';
import type { HolderRecord } from '../../../lib/stores/zookeeper/key-record.js';
import type { KeyRecords } from '../../../lib/stores/zookeeper/key-records.js';
import { viewOf } from '../../../lib/stores/zookeeper/key-view.js';
import { entryOf, Names, waiterName } from '../../../lib/stores/zookeeper/names.js';
import { QueueWatch, type Watcher } from '../../../lib/stores/zookeeper/queue-watch.js';

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

const WAITER = { process: 'p', number: 1, owner: 'me', keys: ['k'], mode: 'exclusive' as const };

/** A watch of the only waiter for a key, on records that `answer` may replace. */
function watchOf(ttl: number): {
  readonly watch: QueueWatch;
  readonly watcher: Watcher;
  readonly answer: { error?: Error; reads: number };
} {
  const answer: { error?: Error; reads: number } = { reads: 0 };
  const holder: HolderRecord = {
    ...{ id: 'a', token: 1, renewals: 0, owner: 'it', since: 0, sentAt: 0, ttl, mode: 'exclusive' },
  };
  const entry = entryOf(WAITER, { mode: 'exclusive' }, 0);
  const records = {
    queueOf: async () => [entry],
    async read() {
      answer.reads++;
      if (answer.error) throw answer.error;
      return viewOf(
        {
          ...{ key: 'k', version: 1, record: { token: 1, holders: [holder], ticks: {} }, waiters: [entry] },
          ...{ storedAt: undefined, transaction: 1n, hasQueue: true, generation: 0 },
        },
        undefined,
      );
    },
  } as unknown as KeyRecords;
  const client = { available: true } as unknown as ZooKeeperClient;
  const watch = new QueueWatch('k', { client, records, names: new Names('lock:') });
  const watcher: Watcher = { waiter: waiterName(WAITER), told: () => undefined, last: 'wait' };
  watch.watchers.add(watcher);
  return { watch, watcher, answer };
}

test('a waiter for a lock whose ttl is longer than the longest timer does not read the key again and again', async () => {
  const { watch, answer } = watchOf(2 ** 31 - 1);
  watch.look();
  await jest.advanceTimersByTimeAsync(60_000);
  expect(answer.reads).toBe(1);
  watch.close();
});

test('a look that fails while there is a connection is repeated', async () => {
  const { watch, answer } = watchOf(600_000);
  answer.error = new Error('the data is of another program');
  watch.look();
  await jest.advanceTimersByTimeAsync(1_500);
  expect(answer.reads).toBe(2);
  watch.close();
  await jest.advanceTimersByTimeAsync(10_000);
  expect(answer.reads).toBe(2);
});
