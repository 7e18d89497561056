import { strict as assert } from 'node:assert';
import { afterAll, beforeAll, describe, test as jestTest } from '@jest/globals';
import {
  freshKey,
  inTurn,
  kindOf,
  leaseOf,
  type QueuedCaller,
  StoreAsker,
  type Terms,
} from '../../../lib/stores/contract/store-asker.js';
import type { LockKind } from '../../../lib/core/lock-mode.js';
import { SAME_CALL_MS } from '../../../lib/core/store-times.js';
import type { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { nodesTo } from '../../support/core.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';

// The server computes when a call came from the time that it has waited. A request that was on its way for longer than the
// requests before it seems to be of a later call.

/** Milliseconds from the arrival of a call to that of another call, and to the one that a late request of the first call shows. */
const [OTHER, LATE] = [0.4 * SAME_CALL_MS, 0.7 * SAME_CALL_MS];

const test = inTurn(jestTest);

let server: RedisServer;
let store: RedisStore;

beforeAll(async () => {
  server = await startRedis();
  [store] = nodesTo([server.url]) as [RedisStore];
  await store.connect();
});
afterAll(async () => {
  await store.close();
  await server.stop();
});

/** The terms of a request that shows the given time of arrival, in milliseconds after `began`. */
function shows({ terms }: QueuedCaller, began: number, came: number): Terms {
  const { position } = terms;
  return { ordered: true, position: { ...position!, waited: performance.now() - began - came } };
}

/** A call, and the kind of lock of another call that comes a little later. */
const CALLS: readonly (readonly [name: string, kind: LockKind, other: LockKind])[] = [
  ['an exclusive lock', kindOf('exclusive'), kindOf('exclusive')],
  ['a shared lock, before one for an exclusive lock', kindOf('shared'), kindOf('exclusive')],
  ['a permit', kindOf('permits', 1), kindOf('permits', 1)],
  ['a permit, before one for an exclusive lock', kindOf('permits', 1), kindOf('exclusive')],
];

describe('a waiting call whose request at its turn was on its way for longer than the ones before', () => {
  for (const [name, kind, otherKind] of CALLS) {
    test(`keeps its turn: a call for ${name}`, async () => {
      const ask = new StoreAsker(store);
      const key = freshKey();
      const holder = leaseOf(kindOf('exclusive'), key);
      await ask.granted(holder, { ordered: true });
      const mine = await ask.waiter(kind.mode, key);
      const other = await ask.waiter(otherKind.mode, key);
      const began = performance.now();
      await ask.refused(leaseOf(kind, key), shows(mine, began, 0));
      await ask.refused(leaseOf(otherKind, key), shows(other, began, OTHER));
      await ask.release(holder);
      await mine.toldAtOnce();
      const lease = leaseOf(kind, key);
      await ask.granted(lease, shows(mine, began, LATE));
      assert.ok(!other.told.includes(0), 'the other call was told, too');
      await ask.release(lease);
      await other.toldAtOnce();
      for (const waiter of [mine, other]) await waiter.leave();
    });
  }

  test('keeps its place behind a waiter in front of it, while there are permits for both', async () => {
    const ask = new StoreAsker(store);
    const key = freshKey();
    const kind = kindOf('permits', 2);
    const holders = [leaseOf(kind, key), leaseOf(kind, key)];
    for (const holder of holders) await ask.granted(holder, { ordered: true });
    const front = await ask.waiter(kind.mode, key);
    const mine = await ask.waiter(kind.mode, key);
    const other = await ask.waiter(kind.mode, key);
    const began = performance.now();
    await ask.refused(leaseOf(kind, key), shows(front, began, -OTHER));
    await ask.refused(leaseOf(kind, key), shows(mine, began, 0));
    await ask.refused(leaseOf(kind, key), shows(other, began, OTHER));
    for (const holder of holders) await ask.release(holder);
    const leases = [leaseOf(kind, key), leaseOf(kind, key)] as const;
    await ask.granted(leases[0], shows(mine, began, LATE));
    await ask.granted(leases[1], shows(front, began, -OTHER));
    for (const lease of leases) await ask.release(lease);
    for (const waiter of [front, mine, other]) await waiter.leave();
  });
});
