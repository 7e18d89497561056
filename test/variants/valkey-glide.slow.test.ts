import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { INestApplication } from '@nestjs/common';
import { Cluster, type Redis } from 'ioredis';
import { LockService, LockUnavailableError } from '../../lib/index.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import { glide, glideCluster, storeOver } from '../support/clients.js';
import { countLocks, newFleet, nodesTo, redlockOver } from '../support/core.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { startApp } from '../support/nest-app.js';
import { PATIENT } from '../support/patience.js';
import { addReplica, startMasters } from '../support/redis-cluster.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { PATIENCE } from '../support/sentinel-group.js';
import { startTcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

const TTL = 60_000;
const once = { retry: false, ttl: TTL } as const;

test('another server at the same address is refused for one guard, although GLIDE reconnects without a word (S12, S28)', async () => {
  /** Milliseconds; longer than a busy machine stands still. */
  const guard = 3_000;
  const [one, two] = [await startRedis(), await startRedis()];
  const attempt = async (store: ReturnType<typeof storeOver>): Promise<string> => {
    const redlock = redlockOver([store], { ...PATIENT, guard });
    return redlock.acquire(['k'], { ttl: guard, retry: NO_RETRY, renew: false, signals: [] }).then(
      (lock) => lock.release().then(() => 'acquired'),
      ({ message }: Error) => message,
    );
  };
  // The package has used the other server before, so that server has a record of its own.
  const [before] = nodesTo([two.url], newFleet(true)) as [ReturnType<typeof storeOver>];
  await before.connect();
  await until(async () => (await attempt(before)) === 'acquired');
  const proxy = await startTcpProxy(one);
  const store = storeOver(await glide(proxy), newFleet(true));
  await store.connect();
  await until(async () => (await attempt(store)) === 'acquired');
  const looker = two.client();
  const isUpForLong = async (): Promise<boolean> =>
    Number(/uptime_in_seconds:(\d+)/.exec(await looker.info('server'))?.[1]) >= guard / 1_000 + 2;
  await until(isUpForLong);
  proxy.redirect(two);
  proxy.cut();
  const busy = /not connected|no answer|not answered for a while|too late|connection was/;
  let answer = '';
  await until(async () => !busy.test((answer = await attempt(store))));
  expect(answer).toContain('another run of a server wrote its data');
  await until(async () => (await attempt(store)) === 'acquired');
  await Promise.all([before.close(), store.close(), proxy.close()]);
});

describe('a GlideClusterClient', () => {
  let masters: RedisServer[];
  let replica: RedisServer;
  let lookers: Redis[];
  let apps: INestApplication[];
  let locks: LockService;
  let others: LockService;

  beforeAll(async () => {
    masters = await startMasters([], [], []);
    replica = await addReplica(masters, masters[0]!);
    lookers = masters.map((server) => server.client());
    const ours = new Cluster(masters.map(({ host, port }) => ({ host, port })));
    cleanUpAfterTests(async () => ours.disconnect());
    const clients = [await glideCluster(masters), ours];
    apps = await Promise.all(clients.map((nodes) => startApp({}, { nodes })));
    [locks, others] = apps.map((each) => each.get(LockService)) as [LockService, LockService];
  });
  afterAll(async () => {
    await Promise.all(apps.map((each) => each.close()));
  });

  test('a GlideClusterClient stores locks on all masters, excludes a client of ioredis, and locks several keys together only if they have one hash slot', async () => {
    const keys = Array.from({ length: 30 }, (_, index) => `key:${index}`);
    const held = await Promise.all(keys.map((key) => locks.acquire(key, once)));
    expect(Math.min(...(await Promise.all(lookers.map(countLocks))))).toBeGreaterThan(0);
    await expect(Promise.all(keys.map((key) => others.tryAcquire(key, { ttl: TTL })))).resolves.toEqual(
      keys.map(() => null),
    );
    await Promise.all(held.map((lock) => lock.extend()));
    const listed: string[] = [];
    for await (const { key } of locks.list()) listed.push(key);
    expect(listed.toSorted()).toEqual(keys.toSorted());
    await Promise.all(held.map((lock) => lock.release()));
    const two = await locks.acquire(['{orders}:1', '{orders}:2'], once);
    await expect(others.tryAcquire('{orders}:2', { ttl: TTL })).resolves.toBeNull();
    await two.release();
    await expect(locks.acquire(['a', 'b'], once)).rejects.toThrow('give them a common hash tag');
    await expect(Promise.all(lookers.map(countLocks))).resolves.toEqual([0, 0, 0]);
  });

  test('a waiter over a GlideClusterClient polls, and gets the lock of a client of ioredis after its release', async () => {
    const taken = await others.acquire('polled', once);
    const waiting = locks.acquire('polled', { ttl: TTL, retry: { timeout: TTL, delay: 100 } });
    await taken.release();
    const next = await waiting;
    expect(next.fencingToken).toBeGreaterThan(taken.fencingToken);
    await next.release();
  });

  test('a GlideClusterClient gets no lock on keys of a dead master until the replica of that master takes over with the replicated locks', async () => {
    const [master] = masters as [RedisServer];
    const keys: string[] = [];
    for (let i = 0; keys.length < 2; i++) {
      const slot = (await lookers[0]!.call('CLUSTER', 'KEYSLOT', `lock:{key:${i}}`)) as number;
      if (slot < 5_000) keys.push(`key:${i}`);
    }
    const [one, other] = keys as [string, string];
    const held = await locks.acquire(one, { ttl: PATIENCE });
    const looker = replica.client();
    await looker.readonly();
    await until(async () => (await countLocks(looker)) === 1);
    // The replica must not become the master before the refusal.
    await looker.config('SET', 'cluster-replica-no-failover', 'yes');
    await master.kill();
    await expect(locks.tryAcquire(other)).rejects.toBeInstanceOf(LockUnavailableError);
    // TAKEOVER makes the replica a master at once, without an election by the other masters.
    await looker.call('CLUSTER', 'FAILOVER', 'TAKEOVER');
    const succeeds = (): Promise<boolean> =>
      locks.acquire(other, once).then(
        (lock) => lock.release().then(() => true),
        () => false,
      );
    await until(succeeds, PATIENCE);
    await expect(locks.tryAcquire(one, { ttl: TTL })).resolves.toBeNull();
    await held.extend();
    expect(held.state).toBe('held');
    await held.release();
    await expect(countLocks(looker)).resolves.toBe(0);
  });
});
