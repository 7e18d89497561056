import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { EXCLUSIVE, type LockKind } from '../../lib/core/lock-mode.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import type { RedisStore } from '../../lib/stores/redis/redis-store.js';
import { nodesTo, redlockOver } from '../support/core.js';
import { type RedisServer, startRedisNodes } from '../support/redis-server.js';
import { until } from '../support/until.js';

// The first node, which keeps the queue, stores a lease of a process that was killed. The lock is the matter of the other
// two nodes, and their releases tell nobody there.

/** More milliseconds than a test takes on a busy machine. */
const LONG = 60_000;

const ONE_PERMIT: LockKind = { mode: 'permits', permits: 1 };

const once: AcquireTerms = { ttl: LONG, retry: NO_RETRY, renew: false, signals: [] };

/** A waiter with a limit of attempts sleeps for the whole delay unless a message tells it to try. */
const waiting: AcquireTerms = {
  ...once,
  retry: { timeout: 2 * LONG, attempts: 1_000, delay: LONG, jitter: 0 },
};

let servers: RedisServer[];
let stores: RedisStore[];
let alice: Redlock;
let bob: Redlock;

beforeAll(async () => {
  servers = await startRedisNodes(3);
  const urls = servers.map(({ url }) => url);
  stores = nodesTo(urls);
  const others = nodesTo(urls);
  await Promise.all([...stores, ...others].map((node) => node.connect()));
  // Give the nodes much time to answer: each answer counts here.
  alice = redlockOver(stores, { owner: 'alice', nodeTimeout: LONG / 5 });
  bob = redlockOver(others, { owner: 'bob', nodeTimeout: LONG / 5 });
});
afterAll(async () => {
  await Promise.all([alice.close(), bob.close()]);
  await Promise.all(servers.map((server) => server.stop()));
});
beforeEach(async () => {
  await Promise.all(
    servers.map(async (server) => {
      const client = server.client();
      await client.flushall();
      client.disconnect();
    }),
  );
  const [first] = nodesTo([servers[0]!.url]);
  await first!.connect();
  const killed = redlockOver([first!], { owner: 'killed' });
  await killed.acquire(['k'], once);
  await killed.close();
});

test.each([
  ['an exclusive lock', EXCLUSIVE],
  ['the only permit', ONE_PERMIT],
])('a waiter for %s gets it when it is released on the other nodes', async (_, kind) => {
  const held = await alice.acquire(['k'], { ...once, kind });
  const next = bob.acquire(['k'], { ...waiting, kind });
  await until(async () => (await stores[0]!.waiting(['k']))[0]?.length === 1);
  const began = performance.now();
  await held.release();
  const lock = await next;
  // Without a message the waiter would sleep for a minute.
  expect(performance.now() - began).toBeLessThan(LONG / 2);
  await lock.release();
});

test('a process that has acquired the lock in spite of the lease does not wait for it afterwards', async () => {
  const held = await alice.acquire(['k'], once);
  await held.release();
  // The limit of attempts makes the call ask in the queue at once, where only the first node answers it.
  stores[0]!.contended = () => true;
  const began = performance.now();
  const lock = await alice.acquire(['k'], waiting);
  expect(performance.now() - began).toBeLessThan(LONG / 2);
  await lock.release();
});
