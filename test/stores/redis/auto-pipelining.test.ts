import { expect, test } from '@jest/globals';
import { Cluster as ValkeyCluster, Redis as Valkey } from 'iovalkey';
import { Lease } from '../../../lib/core/lease.js';
import { driverFor, type RedisClient } from '../../../lib/stores/redis/driver-for.js';
import { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { newFleet } from '../../support/core.js';
import { startMasters } from '../../support/redis-cluster.js';
import { startRedis } from '../../support/redis-server.js';

// With `enableAutoPipelining`, iovalkey and ioredis up to 5.10 collect commands. On a Cluster they put scripts of
// several hash slots into one pipeline, and then refuse it.

const TTL = 60_000;

/** Acquires, extends and releases many locks. Resolves to the number of locks that were granted, and of those extended. */
async function lockManyOn(client: RedisClient): Promise<readonly [granted: number, extended: number]> {
  const store = new RedisStore(driverFor(client), false, newFleet());
  await store.connect();
  const leases = Array.from({ length: 20 }, (_, index) => new Lease([`k${index}`], 'me', TTL));
  const granted = await Promise.all(leases.map((lease) => acquireOn(store, lease)));
  const extended = await Promise.all(leases.map((lease) => extendOn(store, lease, TTL)));
  await Promise.all(leases.map((lease) => releaseOn(store, lease)));
  await store.close();
  return [granted.filter((reply) => reply.granted).length, extended.filter(Boolean).length];
}

test('a store with a Cluster client that has `enableAutoPipelining` keeps locks of many slots', async () => {
  const servers = await startMasters([], [], []);
  const [{ host, port }] = servers as [(typeof servers)[number]];
  const cluster = new ValkeyCluster([{ host, port }], { enableAutoPipelining: true });
  try {
    await expect(lockManyOn(cluster)).resolves.toEqual([20, 20]);
  } finally {
    cluster.disconnect();
    await Promise.all(servers.map((server) => server.stop()));
  }
});

test('a store with a client of one server that has `enableAutoPipelining` keeps locks', async () => {
  const server = await startRedis();
  const client = new Valkey(server.url, { enableAutoPipelining: true });
  await expect(lockManyOn(client)).resolves.toEqual([20, 20]);
  client.disconnect();
  await server.stop();
});
