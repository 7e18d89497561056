import { expect, test } from '@jest/globals';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { Lease } from '../../lib/core/lease.js';
import type { AcquireTerms } from '../../lib/core/ports.js';
import { TestNode } from '../../lib/testing/test-node.js';

test.each([
  ['in memory', () => new MemoryStore()],
  ['in a test', () => new TestNode()],
])('a node %s tells who waits when to try, as the release says', async (_where, make) => {
  const node = make();
  const terms: AcquireTerms = { limit: 1_000, guard: 0, seed: 0, floor: 'fine' };
  const place = { keys: ['k'], process: 'b', number: 1, owner: 'them' };
  const told: number[] = [];
  node.listen(place, (after) => told.push(after));
  const claim = new Lease(['k'], 'me', 60_000);
  await node.acquire(claim, terms);
  await node.acquire(new Lease(['k'], 'them', 60_000), { ...terms, order: { place, waited: 0 } });
  await node.release(claim, 700);
  expect(told).toEqual([700]);
});
