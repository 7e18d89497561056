import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Redis } from 'ioredis';
import { Redis as Redis6 } from 'ioredis-6';
import { openClient } from '../../../lib/stores/redis/connection/connection.js';
import { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { AcquireTerms, Redlock } from '../../../lib/redlock/redlock.js';
import { newFleet, redlockOver } from '../../support/core.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { PATIENT } from '../../support/patience.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { until } from '../../support/until.js';

// A server that loads its data answers INFO. It answers other commands with an error.

const once: AcquireTerms = { ttl: 60_000, retry: NO_RETRY, renew: false, signals: [] };

/** Number of keys. The server takes over eight seconds to load them: longer than a connection of a store may be silent. */
const KEYS = 8_000;

let server: RedisServer;
let restarted: Promise<void>;
let ours: Redis;
let connections = 0;
/** A node with a connection of its own, and two over clients that are passed in. */
let nodes: RedisStore[];

beforeAll(async () => {
  const slowly = ['--key-load-delay', '1000', '--loading-process-events-interval-bytes', '1024'];
  server = await startRedis({ args: slowly });
  const client = server.client();
  await client.eval("for i = 1, ARGV[1] do redis.call('SET', i, '') end", 0, KEYS);
  await client.save();

  const passedIn = [new Redis(server.url), new Redis6(server.url)] as [Redis, Redis6];
  for (const each of passedIn) {
    cleanUpAfterTests(async () => each.disconnect());
    each.on('error', () => undefined);
  }
  ours = openClient(server.url);
  nodes = [ours, ...(passedIn as Redis[])].map((each) => new RedisStore(each, each === ours, newFleet()));
  await Promise.all(nodes.map((node) => node.connect()));
  ours.on('connect', () => connections++);
  restarted = server.restart();
});
afterAll(async () => {
  await Promise.all(nodes.map((node) => node.close()));
});

async function attempt(redlock: Redlock): Promise<string> {
  try {
    const lock = await redlock.acquire(['k'], once);
    await lock.release();
    return 'acquired';
  } catch (error) {
    return (error as Error).message;
  }
}

test('a store reports that its server is LOADING, not that the server is disconnected', async () => {
  for (const node of nodes) {
    const redlock = redlockOver([node], PATIENT);
    await until(async () => (await attempt(redlock)).includes(': LOADING '));
    await expect(node.check(0)).rejects.toThrow(/^LOADING .*; wait until it has finished$/);
  }
});

test('a store votes over its existing connection after the server has loaded its data', async () => {
  await restarted;
  for (const node of nodes) {
    const redlock = redlockOver([node], PATIENT);
    await until(async () => (await attempt(redlock)) === 'acquired');
  }
  expect(connections).toBe(1);
});
