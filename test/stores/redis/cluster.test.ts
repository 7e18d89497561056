import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Cluster, type Redis } from 'ioredis';
import { setTimeout as delay } from 'node:timers/promises';
import { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { LockInspector } from '../../../lib/redlock/inspect/lock-inspector.js';
import type { LockHandle } from '../../../lib/core/lock-handle.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { AcquireTerms } from '../../../lib/redlock/redlock.js';
import { countLocks, newFleet, redlockOver } from '../../support/core.js';
import { freePort } from '../../support/free-port.js';
import { PATIENT } from '../../support/patience.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';

// A Cluster of one server that has all slots: the client works as with a Cluster of many servers.

const once: AcquireTerms = { ttl: 60_000, retry: NO_RETRY, renew: false, signals: [] };

let server: RedisServer;
let looker: Redis;
let cluster: Cluster;

beforeAll(async () => {
  server = await startRedis({ args: ['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1'] });
  looker = server.client();
  await looker.call('CLUSTER', 'ADDSLOTSRANGE', 0, 16_383);
  while (!String(await looker.call('CLUSTER', 'INFO')).includes('cluster_state:ok')) await delay(10);
  cluster = new Cluster([{ host: server.host, port: server.port }]);
});
afterAll(async () => {
  cluster.disconnect();
  await server.stop();
});

async function clusterNode(fleet = newFleet()): Promise<RedisStore> {
  const node = new RedisStore(cluster, false, fleet);
  await node.connect();
  return node;
}

test('a lock on a Cluster can be acquired, excludes others, and can be extended and released', async () => {
  const redlock = redlockOver([await clusterNode()], PATIENT);
  const lock = await redlock.acquire(['k'], once);
  await expect(redlock.acquire(['k'], once)).rejects.toMatchObject({ code: 'LOCK_HELD' });
  await lock.extend();
  await lock.release();
  await expect(countLocks(looker)).resolves.toBe(0);
});

test('a lock on a Cluster can have several keys with a common hash tag', async () => {
  const lock = await redlockOver([await clusterNode()], PATIENT).acquire(['{orders}:1', '{orders}:2'], once);
  await expect(countLocks(looker)).resolves.toBe(2);
  await lock.release();
});

test('a forbidden key of a Cluster hides the locks and waiters of no other key (NOPERM)', async () => {
  await looker.call('ACL', 'SETUSER', 'locks', 'on', '>secret', '&*', '+@all', '~*');
  const redisOptions = { username: 'locks', password: 'secret' };
  const client = new Cluster([{ host: server.host, port: server.port }], { redisOptions });
  const node = new RedisStore(client, false, newFleet());
  await node.connect();
  const lock = await redlockOver([node], PATIENT).acquire(['good'], once);
  await looker.call('ACL', 'SETUSER', 'locks', 'resetkeys', '~lock:{good*', '~lock:redlock*');
  await expect(node.waiting(['bad', 'good'])).resolves.toEqual([[], []]);
  await expect(node.read(['bad', 'good'])).resolves.toEqual([
    expect.objectContaining({ message: expect.stringContaining('NOPERM') }),
    expect.objectContaining({ holders: [expect.objectContaining({ owner: 'me' })] }),
  ]);
  await lock.release();
  await node.close();
  client.disconnect();
});

test('a lock on keys with different hash tags is refused without a request, and the error says what to do', async () => {
  const redlock = redlockOver([await clusterNode()], PATIENT);
  expect(() => redlock.acquire(['a', 'b'], once)).toThrow(RangeError);
  expect(() => redlock.acquire(['a', 'b'], once)).toThrow(
    /cannot store a lock of "a", "b": .* give them a common hash tag, such as {orders}:1 and {orders}:2/,
  );
});

test('locks on a Cluster can be inspected, listed and released by force', async () => {
  const node = await clusterNode();
  const redlock = redlockOver([node], PATIENT);
  const inspection = new LockInspector([node], PATIENT, redlock.held);
  const keys = Array.from({ length: 20 }, (_, index) => `listed:${index}`);
  await Promise.all(keys.map((key) => redlock.acquire([key], once)));
  await expect(inspection.inspect('listed:7')).resolves.toMatchObject({ held: true, owner: 'me' });
  const listed: string[] = [];
  for await (const { key } of inspection.list({ prefix: 'listed:' })) listed.push(key);
  expect(listed.toSorted()).toEqual(keys.toSorted());
  for (const key of keys) await expect(inspection.forceRelease(key)).resolves.toBe(true);
  expect([...redlock.held]).toEqual([]);
  await expect(countLocks(looker)).resolves.toBe(0);
});

test('`list` and `inspect` reject when the Cluster cannot be reached', async () => {
  const nobody = new Cluster([{ host: server.host, port: await freePort() }], { lazyConnect: true });
  nobody.on('error', () => undefined);
  const nodes = [new RedisStore(nobody, false, newFleet())];
  const inspection = new LockInspector(nodes, { nodeTimeout: 500 }, new Set());
  const listed = async (): Promise<void> => {
    for await (const { key } of inspection.list()) throw new Error(key);
  };
  await expect(listed()).rejects.toThrow('Could not list all locks: the node gave no usable answer');
  await expect(inspection.inspect('k')).rejects.toThrow('not connected');
  nobody.disconnect();
});

test('a store with a restart guard grants locks on a Cluster, and logs once that the guard does not work there', async () => {
  const fleet = newFleet(true);
  const redlock = redlockOver([await clusterNode(fleet)], { ...PATIENT, guard: 60_000 });
  await (await redlock.acquire(['k'], once)).release();
  expect(fleet.warnings).toEqual([
    expect.stringContaining('restartGuard does not work on a Cluster'),
    expect.stringContaining('a restart can forget locks'),
  ]);
});

test('an acquire on a Cluster stores nothing when it arrives late (S16)', async () => {
  const node = await clusterNode();
  const redlock = redlockOver([node], { nodeTimeout: 100 });
  await (await redlockOver([node], PATIENT).acquire(['k'], once)).release();
  server.pause();
  await expect(redlock.acquire(['k'], once)).rejects.toThrow('no answer within 100 ms');
  // The deadline is on the server's clock, which the store only estimates. The delay exceeds the error of the estimate.
  await delay(200);
  server.resume();
  await looker.ping();
  await expect(countLocks(looker)).resolves.toBe(0);
});

test('an acquire fails within the time limit and leaves no key when the Cluster is down (CLUSTERDOWN)', async () => {
  const redlock = redlockOver([await clusterNode()], { nodeTimeout: 100 });
  await looker.call('CLUSTER', 'DELSLOTSRANGE', 0, 16_383);
  // The client repeats the acquire for longer than the time limit.
  await expect(redlock.acquire(['k'], once)).rejects.toThrow('no answer within 100 ms');
  await looker.call('CLUSTER', 'ADDSLOTSRANGE', 0, 16_383);
  while (!String(await looker.call('CLUSTER', 'INFO')).includes('cluster_state:ok')) await delay(10);
  // The client sends the commands again, too late to store anything (S16).
  await delay(500);
  await expect(countLocks(looker)).resolves.toBe(0);
  let lock: LockHandle | undefined;
  while (!lock) lock = await redlock.acquire(['k'], once).catch(() => undefined);
  await lock.release();
});

test('a store follows a slot that has moved to another server (MOVED)', async () => {
  const second = await startRedis({
    args: ['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1'],
  });
  const other = second.client();
  await looker.call('CLUSTER', 'MEET', '127.0.0.1', second.port);
  const ids = await Promise.all(
    [looker, other].map((client) => client.call('CLUSTER', 'MYID') as Promise<string>),
  );
  const knows = async (client: Redis): Promise<boolean> =>
    ids.every((id) => knownNodes.get(client)?.includes(id) ?? false);
  const knownNodes = new Map<Redis, string>();
  while (!((await knows(looker)) && (await knows(other)))) {
    for (const client of [looker, other])
      knownNodes.set(client, String(await client.call('CLUSTER', 'NODES')));
    await delay(20);
  }
  while (!String(await other.call('CLUSTER', 'INFO')).includes('cluster_state:ok')) await delay(20);

  const redlock = redlockOver([await clusterNode()], PATIENT);
  await (await redlock.acquire(['moving'], once)).release();
  const slot = (await looker.call('CLUSTER', 'KEYSLOT', 'lock:{moving}')) as number;
  await other.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', ids[0]!);
  await looker.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', ids[1]!);
  await looker.call('MIGRATE', '127.0.0.1', second.port, 'lock:{moving}', 0, 5_000);
  await other.call('CLUSTER', 'SETSLOT', slot, 'NODE', ids[1]!);
  await looker.call('CLUSTER', 'SETSLOT', slot, 'NODE', ids[1]!);

  const lock = await redlock.acquire(['moving'], once);
  await expect(countLocks(other)).resolves.toBe(1);
  // A list asks every master for its locks.
  const inspection = new LockInspector([await clusterNode()], PATIENT, new Set());
  const stays = await redlock.acquire(['stays'], once);
  await expect(countLocks(looker)).resolves.toBe(1);
  const listed: string[] = [];
  for await (const { key } of inspection.list()) listed.push(key);
  expect(listed.toSorted()).toEqual(['moving', 'stays']);
  await stays.release();
  await lock.release();
  await expect(countLocks(other)).resolves.toBe(0);
  await second.stop();
});
