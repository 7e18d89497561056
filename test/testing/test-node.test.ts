import { expect, test } from '@jest/globals';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { Lease } from '../../lib/core/lease.js';
import { TestNode } from '../../lib/testing/test-node.js';
import { EXCLUSIVE, type LockKind, SHARED } from '../../lib/core/lock-mode.js';
import { acquireOn, extendOn, releaseOn } from '../support/ask-store.js';

test.each([
  ['MemoryStore', () => new MemoryStore()],
  ['TestNode', () => new TestNode()],
])(
  '%s tells waiters to retry after the pause that the request for the release contains',
  async (_where, make) => {
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
  },
);

test.each<[string, LockKind]>([
  ['readers', SHARED],
  ['permits', { mode: 'permits', permits: 3 }],
])(
  '`TestNode.drop` ends one of several %s if its id is given, and all of them otherwise',
  async (_what, kind) => {
    const node = new TestNode();
    const leases = [1, 2, 3].map(() => new Lease(['k'], 'them', 60_000, undefined, kind));
    for (const lease of leases) await acquireOn(node, lease);
    const [one, two, three] = leases as [Lease, Lease, Lease];
    expect([node.drop('k', one.id), node.drop('k', one.id)]).toEqual([true, false]);
    expect(await Promise.all(leases.map((lease) => extendOn(node, lease, 60_000)))).toEqual([
      false,
      true,
      true,
    ]);
    await releaseOn(node, two);
    expect(node.drop('k', two.id)).toBe(false);
    expect([node.drop('k'), node.drop('k')]).toEqual([true, false]);
    expect(await extendOn(node, three, 60_000)).toBe(false);
    await acquireOn(node, new Lease(['k'], 'us', 60_000, undefined, EXCLUSIVE));
    expect(node.drop('k')).toBe(true);
  },
);

test('`TestNode.drop` ends a lock on all its keys, and ends no other lock', async () => {
  const node = new TestNode();
  const pair = new Lease(['a', 'b'], 'them', 60_000, undefined, SHARED);
  const other = new Lease(['b'], 'them', 60_000, undefined, SHARED);
  for (const lease of [pair, other]) await acquireOn(node, lease);
  expect(node.drop('a')).toBe(true);
  const [state] = await node.read(['b']);
  expect(state).toMatchObject({ holders: [{ id: other.id }] });
});
