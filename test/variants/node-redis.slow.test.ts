import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { INestApplication } from '@nestjs/common';
import type { Redis } from 'ioredis';
import { LockService, LockUnavailableError } from '../../lib/index.js';
import { nodeRedisCluster, nodeRedisSentinel } from '../support/clients.js';
import { countLocks } from '../support/core.js';
import { startApp } from '../support/nest-app.js';
import { addReplica, startMasters } from '../support/redis-cluster.js';
import type { RedisServer } from '../support/redis-server.js';
import { startTcpProxy } from '../support/tcp-proxy.js';
import { PATIENCE, type SentinelGroup, startSentinelGroup } from '../support/sentinel-group.js';
import { until } from '../support/until.js';
import { setFailOverAfter } from '../support/fail-over-after.js';

// sentinel.test.ts and cluster.test.ts test clients of ioredis. These tests pass clients of node-redis in.

/** Milliseconds. A single attempt gives up after a fifth of the ttl, and a busy machine never stalls for that long. */
const TTL = 60_000;
const once = { retry: false, ttl: TTL } as const;
/** A waiter with these options polls late. If it gets its lock sooner, a message has woken it. */
const IN_TURN = { ttl: TTL, retry: { timeout: PATIENCE, delay: PATIENCE / 2 } };

describe('a client of createSentinel', () => {
  let group: SentinelGroup;
  let app: INestApplication;
  let ours: INestApplication;
  let locks: LockService;
  let others: LockService;

  beforeAll(async () => {
    group = await startSentinelGroup();
    const sentinelRootNodes = group.sentinels.map(({ host, port }) => ({ host, port }));
    const client = nodeRedisSentinel({ name: 'locks', sentinelRootNodes });
    await until(() => client.isReady, PATIENCE);
    app = await startApp({}, { nodes: client });
    ours = await startApp({}, { nodes: { sentinels: sentinelRootNodes, name: 'locks' } });
    [locks, others] = [app, ours].map((each) => each.get(LockService)) as [LockService, LockService];
  });
  afterAll(async () => {
    await Promise.all([app, ours].map((each) => each.close()));
  });

  test('a client of `createSentinel` locks 50 keys, excludes another application, and acquires a lock when its holder releases', async () => {
    const keys = Array.from({ length: 50 }, (_, index) => `key:${index}`);
    const held = await Promise.all(keys.map((key) => locks.acquire(key, once)));
    await expect(others.tryAcquire('key:7', { ttl: TTL })).resolves.toBeNull();
    await Promise.all(held.map((lock) => lock.extend()));
    const waiting = locks.acquire('turn', IN_TURN);
    await (await waiting).release();
    const taken = await others.acquire('turn', once);
    const next = locks.acquire('turn', IN_TURN);
    const looker = group.master.client();
    await until(async () => (await looker.zcard('lock:{turn}:q')) === 1);
    await taken.release();
    await (await next).release();
    await Promise.all(held.map((lock) => lock.release()));
    await expect(countLocks(looker)).resolves.toBe(0);
  });

  test('a client of `createSentinel` gets no lock after the master dies until the replica takes over with the replicated locks', async () => {
    const { master, replica } = group;
    const looker = replica.client();
    const held = await locks.acquire('held', { ttl: PATIENCE });
    await until(async () => (await countLocks(looker)) === 1);
    const waiting = locks.acquire('held', { ...IN_TURN, ttl: PATIENCE });
    await until(async () => (await looker.zcard('lock:{held}:q')) === 1);
    // The replica must not become the master before the refusal.
    await setFailOverAfter(group, 600_000);
    await master.kill();
    await expect(locks.tryAcquire('other')).rejects.toBeInstanceOf(LockUnavailableError);
    await setFailOverAfter(group, 500);
    await until(() => succeeds(locks.acquire('other', once).then((lock) => lock.release())), PATIENCE);
    await expect(locks.tryAcquire('held', { ttl: TTL })).resolves.toBeNull();
    await held.extend();
    expect(held.state).toBe('held');
    // Without a subscription the message is lost, and the waiter asks only after its long sleep.
    await until(
      async () => ((await looker.pubsub('CHANNELS', 'lock:wake:*')) as string[]).length > 0,
      PATIENCE,
    );
    await held.release();
    const next = await waiting;
    expect(next.fencingToken).toBeGreaterThan(held.fencingToken);
    await next.release();
    await expect(countLocks(looker)).resolves.toBe(0);
  });
});

test('a client of `createSentinel` subscribes at the new master when the old master dies during a subscription', async () => {
  const group = await startSentinelGroup();
  const { master, replica } = group;
  const proxy = await startTcpProxy(master);
  const sentinelRootNodes = group.sentinels.map(({ host, port }) => ({ host, port }));
  // node-redis 6.3 goes on connecting to the old master, which would keep this process alive.
  let ends = false;
  const client = nodeRedisSentinel({
    name: 'locks',
    sentinelRootNodes,
    nodeClientOptions: { socket: { reconnectStrategy: () => (ends ? false : 100) } },
    nodeAddressMap: { [`${master.host}:${master.port}`]: { host: proxy.host, port: proxy.port } },
  });
  await until(() => client.isReady, PATIENCE);
  const app = await startApp({}, { nodes: client });
  const ours = await startApp({}, { nodes: { sentinels: sentinelRootNodes, name: 'locks' } });
  const held = await ours.get(LockService).acquire('held', { ttl: PATIENCE });
  // Commands still arrive over the open connection. The connection for messages is refused again and again.
  proxy.refuse();
  const runs = async () =>
    Number(/cmdstat_evalsha:calls=(\d+)/.exec(await master.client().info('commandstats'))?.[1]);
  const before = await runs();
  const waiting = app.get(LockService).acquire('held', IN_TURN);
  await until(async () => (await runs()) > before);
  const looker = replica.client();
  await until(async () => (await countLocks(looker)) === 1);
  proxy.cut();
  await master.kill();
  await until(async () => (await looker.zcard('lock:{held}:q')) === 1, PATIENCE);
  // The library checks the connection with a further channel, which ends in `:beat`.
  const channels = async () => (await looker.pubsub('CHANNELS', 'lock:wake:*')) as string[];
  await until(async () => (await channels()).some((name) => !name.endsWith(':beat')));
  await until(() => succeeds(held.extend()), PATIENCE);
  await held.release();
  const next = await waiting;
  expect(next.fencingToken).toBeGreaterThan(held.fencingToken);
  await next.release();
  await Promise.all([app, ours].map((each) => each.close()));
  ends = true;
});

describe('a client of createCluster', () => {
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
    const rootNodes = masters.map(({ url }) => ({ url }));
    const clients = [0, 1].map(() => nodeRedisCluster({ rootNodes }));
    await until(() => clients.every(({ isReady }) => isReady));
    apps = await Promise.all(clients.map((nodes) => startApp({}, { nodes })));
    [locks, others] = apps.map((each) => each.get(LockService)) as [LockService, LockService];
  });
  afterAll(async () => {
    await Promise.all(apps.map((each) => each.close()));
  });

  test('a client of `createCluster` stores locks on all masters, and locks several keys together only if they have one hash slot', async () => {
    const keys = Array.from({ length: 30 }, (_, index) => `key:${index}`);
    const held = await Promise.all(keys.map((key) => locks.acquire(key, once)));
    const spread = await Promise.all(lookers.map(countLocks));
    expect(Math.min(...spread)).toBeGreaterThan(0);
    await expect(Promise.all(keys.map((key) => others.tryAcquire(key, { ttl: TTL })))).resolves.toEqual(
      keys.map(() => null),
    );
    await Promise.all(held.map((lock) => lock.extend()));
    const listed: string[] = [];
    for await (const { key } of others.list()) listed.push(key);
    expect(listed.toSorted()).toEqual(keys.toSorted());
    await Promise.all(held.map((lock) => lock.release()));
    const two = await locks.acquire(['{orders}:1', '{orders}:2'], once);
    await expect(others.tryAcquire('{orders}:2', { ttl: TTL })).resolves.toBeNull();
    await two.release();
    await expect(locks.acquire(['a', 'b'], once)).rejects.toThrow('give them a common hash tag');
    await expect(Promise.all(lookers.map(countLocks))).resolves.toEqual([0, 0, 0]);
  });

  test('every master of a Cluster wakes waiters by a message (clients of `createCluster`)', async () => {
    const keys = Array.from({ length: 12 }, (_, index) => `queue:${index}`);
    const taken = await Promise.all(keys.map((key) => locks.acquire(key, once)));
    const waiting = keys.map((key) => others.acquire(key, IN_TURN));
    const inLine = async (): Promise<number> =>
      (await Promise.all(lookers.map((looker) => looker.keys('*:q')))).flat().length;
    await until(async () => (await inLine()) === keys.length);
    const start = performance.now();
    await Promise.all(taken.map((lock) => lock.release()));
    await Promise.all(waiting.map(async (lock) => (await lock).release()));
    expect(performance.now() - start).toBeLessThan(PATIENCE / 4);
  });

  test('a client of `createCluster` gets no lock on keys of a dead master until the replica of that master takes over with the replicated locks', async () => {
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
    // The replica must not become the master before the refusals.
    await looker.config('SET', 'cluster-replica-no-failover', 'yes');
    await master.kill();
    for (const each of [locks, others])
      await expect(each.tryAcquire(other)).rejects.toBeInstanceOf(LockUnavailableError);
    // TAKEOVER makes the replica a master at once, without an election by the other masters.
    await looker.call('CLUSTER', 'FAILOVER', 'TAKEOVER');
    for (const each of [locks, others])
      await until(() => succeeds(each.acquire(other, once).then((lock) => lock.release())), PATIENCE);
    await expect(others.tryAcquire(one, { ttl: TTL })).resolves.toBeNull();
    await held.extend();
    expect(held.state).toBe('held');
    await held.release();
    await expect(countLocks(looker)).resolves.toBe(0);
  });
});

function succeeds(promise: Promise<unknown>): Promise<boolean> {
  return promise.then(
    () => true,
    () => false,
  );
}
