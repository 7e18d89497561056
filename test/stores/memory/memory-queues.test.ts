import { expect, test } from '@jest/globals';
import { EXCLUSIVE } from '../../../lib/core/lock-mode.js';
import { STANDBY_MS } from '../../../lib/core/store-times.js';
import { freshKey, leaseOf, StoreAsker } from '../../../lib/stores/contract/store-asker.js';
import { MemoryStore } from '../../../lib/stores/memory/memory-store.js';

test('a release tells the first waiter, and the next two to stand by, as on Redis, PostgreSQL and MySQL', async () => {
  const ask = new StoreAsker(new MemoryStore());
  const key = freshKey();
  const holder = leaseOf(EXCLUSIVE, key);
  await ask.granted(holder, { ordered: true });
  const waiters = [];
  for (let count = 0; count < 4; count++) waiters.push(await ask.queued(EXCLUSIVE, key));
  await ask.release(holder);
  expect(waiters.map(({ told }) => told)).toEqual([[0], [STANDBY_MS], [STANDBY_MS], []]);
});
