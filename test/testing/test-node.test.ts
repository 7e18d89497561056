import { expect, test } from '@jest/globals';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { Lease } from '../../lib/core/lease.js';
import { TestNode } from '../../lib/testing/test-node.js';
import { acquireOn, releaseOn } from '../support/ask-store.js';

test.each([
  ['in memory', () => new MemoryStore()],
  ['in a test', () => new TestNode()],
])('a node %s tells who waits when to try, as the release says', async (_where, make) => {
  const node = make();
  const waiter = { keys: ['k'], mode: 'exclusive' as const, process: 'b', number: 1, owner: 'them' };
  const told: number[] = [];
  node.listen(waiter, (after) => told.push(after));
  const lease = new Lease(['k'], 'me', 60_000);
  await acquireOn(node, lease, { ordered: true });
  const position = { waiter, waited: 0, next: undefined };
  await acquireOn(node, new Lease(['k'], 'them', 60_000), { ordered: true, position });
  await releaseOn(node, lease, 700);
  expect(told).toEqual([700]);
});
