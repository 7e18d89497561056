import { AsyncLocalStorage } from 'node:async_hooks';
import { expect, test } from '@jest/globals';
import type { ZooKeeperClient } from '../../../lib/stores/zookeeper/client/zookeeper-client.js';
import { LeaderClock } from '../../../lib/stores/zookeeper/leader-clock.js';

test('one reading serves all callers that ask at the same time, in the context of none (S30)', async () => {
  const caller = new AsyncLocalStorage<string>();
  const contexts: unknown[] = [];
  const client = {
    async ask() {
      contexts.push(caller.getStore());
      return { created: 1n, modified: (3n << 32n) + 7n, mtime: Date.now(), version: 1 };
    },
  } as unknown as ZooKeeperClient;
  const clock = new LeaderClock(client);
  await Promise.all(['one', 'other'].map((name) => caller.run(name, () => clock.read())));
  expect(contexts).toEqual([undefined]);
  expect(clock.latest).toMatchObject({ epoch: 3, transaction: (3n << 32n) + 7n });
});
