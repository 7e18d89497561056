import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type INestApplication, Injectable } from '@nestjs/common';
import { Cron, ScheduleModule } from '@nestjs/schedule';
import { Cluster, type ClusterNode, type ClusterOptions, type Redis } from 'ioredis';
import { Cluster as Cluster6 } from 'ioredis-6';
import { LockService, LockUnavailableError, WithLock } from '../../lib/index.js';
import { countLocks } from '../support/core.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { startApp } from '../support/nest-app.js';
import { PATIENCE } from '../support/sentinel-group.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { CLUSTER_RIGHTS, RIGHTS } from './acl-rights.js';

// These tests use several servers; test/stores/redis/cluster.test.ts tests errors of a Cluster on one server.

/** Milliseconds. A single attempt gives up after a fifth of the ttl, and a busy machine never stalls for that long. */
const TTL = 60_000;
const once = { retry: false, ttl: TTL } as const;

const ARGS = ['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1'];
// Without this option, a master waits five seconds for more replicas.
const QUICK = ['--repl-diskless-sync-delay', '0'];

/** Three masters, and a replica of the first. */
async function startCluster(): Promise<RedisServer[]> {
  const servers = await Promise.all(
    Array.from({ length: 4 }, () => startRedis({ args: [...ARGS, ...QUICK] })),
  );
  const [first, ...others] = servers.map((server) => server.client()) as [Redis, ...Redis[]];
  await Promise.all([
    first.call('CLUSTER', 'ADDSLOTSRANGE', 0, 5_460),
    others[0]!.call('CLUSTER', 'ADDSLOTSRANGE', 5_461, 10_922),
    others[1]!.call('CLUSTER', 'ADDSLOTSRANGE', 10_923, 16_383),
  ]);
  // Every server meets every other server: servers are slow to tell each other of a third server.
  for (const [index, client] of [first, ...others].entries()) {
    for (const { host, port } of servers.slice(index + 1)) await client.call('CLUSTER', 'MEET', host, port);
  }
  const knownBy = async (client: Redis): Promise<number> =>
    String(await client.call('CLUSTER', 'NODES')).split(' connected').length - 1;
  for (const client of [first, ...others]) await until(async () => (await knownBy(client)) === 4);
  await others[2]!.call('CLUSTER', 'REPLICATE', String(await first.call('CLUSTER', 'MYID')));
  await until(async () => (await first.info('replication')).includes('state=online'));
  for (const client of [first, ...others]) {
    await until(
      async () => String(await client.call('CLUSTER', 'INFO')).includes('cluster_state:ok'),
      30_000,
    );
  }
  return servers;
}

/** Makes a client of ioredis 5 and one of ioredis 6. They are closed at the end: an open client keeps Jest from ending. */
function clientsOf(nodes: ClusterNode[], options: ClusterOptions = {}): Cluster[] {
  const clients = [new Cluster(nodes, options), new Cluster6(nodes, options as object) as unknown as Cluster];
  for (const client of clients) cleanUpAfterTests(async () => client.disconnect());
  return clients;
}

describe('a Cluster of three masters', () => {
  let servers: RedisServer[];
  let lookers: Redis[];
  let apps: INestApplication[];
  /** Locks over a Cluster client of ioredis 5, and over one of ioredis 6. */
  let five: LockService;
  let six: LockService;

  beforeAll(async () => {
    servers = await startCluster();
    lookers = servers.map((server) => server.client());
    const nodes = servers.map(({ host, port }) => ({ host, port }));
    apps = await Promise.all(clientsOf(nodes).map((cluster) => startApp({}, { nodes: cluster })));
    [five, six] = apps.map((app) => app.get(LockService)) as [LockService, LockService];
  });
  afterAll(async () => {
    await Promise.all(apps.map((app) => app.close()));
  });

  const held = (): Promise<number[]> => Promise.all(lookers.slice(0, 3).map(countLocks));

  /** Counts the keys that have waiters. */
  async function inLine(): Promise<number> {
    const queues = await Promise.all(lookers.slice(0, 3).map((looker) => looker.keys('*:q')));
    return queues.flat().length;
  }

  test('a Cluster spreads locks over all masters, and grants each lock to only one of two clients (ioredis 5 and 6)', async () => {
    const keys = Array.from({ length: 30 }, (_, index) => `key:${index}`);
    const locks = await Promise.all(keys.map((key) => five.acquire(key, once)));
    const spread = await held();
    expect(Math.min(...spread)).toBeGreaterThan(0);
    expect(spread.reduce((sum, count) => sum + count)).toBe(30);
    await expect(Promise.all(keys.map((key) => six.tryAcquire(key, { ttl: TTL })))).resolves.toEqual(
      keys.map(() => null),
    );
    await Promise.all(locks.map((lock) => lock.extend()));
    await Promise.all(locks.map((lock) => lock.release()));
    await expect(held()).resolves.toEqual([0, 0, 0]);
  });

  test.each(['five', 'six'])(
    'several keys of one hash slot can be locked together in a Cluster (ioredis %s)',
    async (version) => {
      const [locks, others] = version === 'five' ? [five, six] : [six, five];
      const lock = await locks.acquire(['{orders}:1', '{orders}:2'], once);
      await expect(others.tryAcquire('{orders}:2', { ttl: TTL })).resolves.toBeNull();
      await lock.release();
      await expect(held()).resolves.toEqual([0, 0, 0]);
    },
  );

  test.each(['five', 'six'])(
    'a lock on keys of several hash slots is refused in a Cluster (ioredis %s)',
    async (version) => {
      const locks = version === 'five' ? five : six;
      await expect(locks.acquire(['a', 'b'], once)).rejects.toThrow('give them a common hash tag');
      await expect(held()).resolves.toEqual([0, 0, 0]);
    },
  );

  test('every master of a Cluster wakes waiters by a message (clients of ioredis 5 and 6)', async () => {
    const keys = Array.from({ length: 12 }, (_, index) => `queue:${index}`);
    const taken = await Promise.all(keys.map((key) => five.acquire(key, once)));
    const inTime = { ttl: TTL, retry: { timeout: TTL, delay: TTL } };
    const waiting = keys.flatMap((key) => [six.acquire(key, inTime), five.acquire(key, inTime)]);
    await until(async () => (await inLine()) === keys.length);
    const start = performance.now();
    await Promise.all(taken.map((lock) => lock.release()));
    await Promise.all(waiting.map(async (lock) => (await lock).release()));
    // Polling would take one minute for each waiter.
    expect(performance.now() - start).toBeLessThan(TTL / 2);
    await expect(held()).resolves.toEqual([0, 0, 0]);
  });

  test('for each key and tick, only one of two instances (ioredis 5 and 6) runs a `oncePerTick` method, whichever master has the key', async () => {
    @Injectable()
    class Yearly {
      @Cron('0 0 0 1 1 *', { timeZone: 'UTC' })
      @WithLock((...keys: string[]) => keys, { oncePerTick: true, ttl: TTL })
      async run(...keys: string[]): Promise<string | undefined> {
        return keys.join();
      }
    }
    const nodes = servers.map(({ host, port }) => ({ host, port }));
    const instances = await Promise.all(
      clientsOf(nodes).map((cluster) =>
        startApp({ imports: [ScheduleModule.forRoot()], providers: [Yearly] }, { nodes: cluster }),
      ),
    );
    const [one, two] = instances.map((app) => app.get(Yearly)) as [Yearly, Yearly];
    const keys = Array.from({ length: 12 }, (_, index) => `tick:${index}`);
    for (const key of keys) {
      await expect(one.run(key)).resolves.toBe(key);
      await expect(two.run(key)).resolves.toBeUndefined();
    }
    const marks = await Promise.all(lookers.slice(0, 3).map((looker) => looker.keys('*:t:*')));
    expect(marks.map(({ length }) => length > 0)).toEqual([true, true, true]);
    const several = ['{tenant}:1', '{tenant}:2'];
    await expect(two.run(...several)).resolves.toBe(several.join());
    await expect(one.run(...several)).resolves.toBeUndefined();
    await expect(held()).resolves.toEqual([0, 0, 0]);
    await Promise.all(instances.map((app) => app.close()));
  });

  test('in a Cluster, locks work for a Redis user that has only the ACL rights in docs/choosing-nodes.md', async () => {
    const user = ['locks', 'reset', 'on', '>secret', ...RIGHTS, ...CLUSTER_RIGHTS];
    await Promise.all(lookers.map((looker) => looker.call('ACL', 'SETUSER', ...user)));
    const redisOptions = { username: 'locks', password: 'secret' };
    const nodes = servers.map(({ host, port }) => ({ host, port }));
    for (const cluster of clientsOf(nodes, { redisOptions })) {
      const app = await startApp({}, { nodes: cluster });
      const locks = app.get(LockService);
      const taken = await Promise.all(['a', 'b', 'c', 'd'].map((key) => locks.acquire(key, once)));
      const listed: string[] = [];
      for await (const { key } of locks.list()) listed.push(key);
      expect(listed.toSorted()).toEqual(['a', 'b', 'c', 'd']);
      await Promise.all(taken.map((lock) => lock.extend()));
      const waiting = ['a', 'b', 'c', 'd'].map((key) => locks.acquire(key, { retry: { timeout: TTL } }));
      await until(async () => (await inLine()) === 4);
      await Promise.all(taken.map((lock) => lock.release()));
      await Promise.all(waiting.map(async (lock) => (await lock).release()));
      await app.close();
    }
    const logs = await Promise.all(lookers.map((looker) => looker.call('ACL', 'LOG')));
    expect(logs).toEqual([[], [], [], []]);
  });

  test('a Cluster refuses locks on keys of a dead master until the replica of that master takes over with the replicated locks', async () => {
    const [master, , , replica] = servers as [RedisServer, RedisServer, RedisServer, RedisServer];
    const slotOf = async (key: string): Promise<number> =>
      (await lookers[0]!.call('CLUSTER', 'KEYSLOT', `lock:{${key}}`)) as number;
    const keys: string[] = [];
    for (let i = 0; keys.length < 3; i++) {
      if ((await slotOf(`key:${i}`)) <= 5_460) keys.push(`key:${i}`);
    }
    const [one, two, other] = keys as [string, string, string];
    const options = { ttl: PATIENCE };
    const locks = await Promise.all([five.acquire(one, options), six.acquire(two, options)]);
    // Without READONLY, a replica of a Cluster answers MOVED.
    await lookers[3]!.readonly();
    await until(async () => (await countLocks(lookers[3]!)) === 2);
    // Set the short timeout only now. Servers that join a Cluster forget a server that does not answer within the
    // timeout, and a server on a busy machine may be slower.
    await Promise.all(lookers.map((looker) => looker.config('SET', 'cluster-node-timeout', '1000')));
    // `tryAcquire` waits up to two seconds for an answer. The replica must not become the master meanwhile.
    const mayFailOver = (may: boolean): Promise<unknown> =>
      lookers[3]!.config('SET', 'cluster-replica-no-failover', may ? 'no' : 'yes');
    await mayFailOver(false);
    await master.kill();
    await expect(five.tryAcquire(other)).rejects.toBeInstanceOf(LockUnavailableError);
    await mayFailOver(true);

    for (const service of [five, six]) {
      await until(
        () =>
          service.acquire(other, once).then(
            (lock) => lock.release().then(() => true),
            () => false,
          ),
        PATIENCE,
      );
    }
    await expect(lookers[3]!.info('replication')).resolves.toContain('role:master');
    await expect(six.tryAcquire(one, { ttl: TTL })).resolves.toBeNull();
    await expect(five.tryAcquire(two, { ttl: TTL })).resolves.toBeNull();
    for (const lock of locks) {
      await lock.extend();
      expect(lock.state).toBe('held');
      await lock.release();
    }
    await expect(countLocks(replica.client())).resolves.toBe(0);
  });
});
