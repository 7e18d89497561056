import { expect, test } from '@jest/globals';
import { LockService } from '../../../../lib/index.js';
import { type NodeRedis, nodeRedis, nodeRedisCluster, nodeRedisSentinel } from '../../../support/clients.js';
import { startApp } from '../../../support/nest-app.js';
import { startMasters } from '../../../support/redis-cluster.js';
import { type RedisServer, startRedis } from '../../../support/redis-server.js';
import { startSentinel } from '../../../support/sentinel.js';
import { until } from '../../../support/until.js';

// An application that closes its client may open it again, for example with new credentials.

/** With a limit of attempts, a waiter in the queue that gets no message sleeps for the whole delay. */
const IN_TURN = { ttl: 60_000, retry: { timeout: 60_000, attempts: 1_000, delay: 30_000 } };

/** Milliseconds. Only a message can end a wait this soon. */
const BY_MESSAGE_MS = 20_000;

interface Setup {
  readonly servers: readonly RedisServer[];
  readonly open: () => NodeRedis | ReturnType<typeof nodeRedisCluster> | ReturnType<typeof nodeRedisSentinel>;
}

const CLIENTS: Readonly<Record<string, () => Promise<Setup>>> = {
  createClient: async () => {
    const server = await startRedis();
    return { servers: [server], open: () => nodeRedis(server.url) };
  },
  createCluster: async () => {
    const servers = await startMasters([], [], []);
    return { servers, open: () => nodeRedisCluster({ rootNodes: servers.map(({ url }) => ({ url })) }) };
  },
  createSentinel: async () => {
    const master = await startRedis();
    const port = await startSentinel(master, 'locks');
    const options = { name: 'locks', sentinelRootNodes: [{ host: master.host, port }] };
    return { servers: [master], open: () => nodeRedisSentinel(options) };
  },
};

test.each(Object.entries(CLIENTS))(
  'a waiter over a client of %s is woken by a message after the client was closed and opened again',
  async (_, setUp) => {
    const { servers, open } = await setUp();
    const [client, another] = [open(), open()];
    const lookers = servers.map((server) => server.client());
    const inLine = async (): Promise<number> =>
      (await Promise.all(lookers.map((looker) => looker.keys('*:q')))).flat().length;
    await until(() => client.isReady && another.isReady);
    const apps = [await startApp({}, { nodes: client }), await startApp({}, { nodes: another })];
    const [locks, others] = apps.map((app) => app.get(LockService)) as [LockService, LockService];
    const handOver = async (key: string): Promise<number> => {
      const taken = await others.acquire(key, IN_TURN);
      const waiting = locks.acquire(key, IN_TURN);
      await until(async () => (await inLine()) === 1);
      const begun = performance.now();
      await taken.release();
      await (await waiting).release();
      return performance.now() - begun;
    };
    expect(await handOver('before')).toBeLessThan(BY_MESSAGE_MS);
    await client.destroy();
    await expect(locks.tryAcquire('closed')).rejects.toThrow('is not open');
    await client.connect();
    await until(() => locks.tryAcquire('again').then(Boolean, () => false));
    expect(await handOver('after')).toBeLessThan(BY_MESSAGE_MS);
    await Promise.all(apps.map((app) => app.close()));
  },
);
