import { expect, test } from '@jest/globals';
import { MemoryNode } from '../../lib/memory/memory-node.js';
import { Claim } from '../../lib/redlock/claim.js';
import type { AcquireTerms } from '../../lib/redlock/lock-node.js';
import { TestNode } from '../../lib/testing/test-node.js';

test.each([
  ['in memory', () => new MemoryNode()],
  ['in a test', () => new TestNode()],
])('a node %s tells who waits when to try, as the release says', async (_where, make) => {
  const node = make();
  const terms: AcquireTerms = { limit: 1_000, guard: 0, seed: 0, floor: 'fine' };
  const place = { keys: ['k'], process: 'b', number: 1, owner: 'them' };
  const told: number[] = [];
  node.listen(place, (after) => told.push(after));
  const claim = new Claim(['k'], 'me', 60_000);
  await node.acquire(claim, terms);
  await node.acquire(new Claim(['k'], 'them', 60_000), { ...terms, order: { place, waited: 0 } });
  await node.release(claim, 700);
  expect(told).toEqual([700]);
});
