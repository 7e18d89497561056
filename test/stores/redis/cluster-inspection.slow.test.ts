import { afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { Cluster } from 'ioredis';
import { Cluster as Cluster6 } from 'ioredis-6';
import { setTimeout as delay } from 'node:timers/promises';
import { LockService } from '../../../lib/index.js';
import { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { AcquireTerms } from '../../../lib/redlock/redlock.js';
import { newFleet, redlockOver } from '../../support/core.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { startApp } from '../../support/nest-app.js';
import { PATIENT } from '../../support/patience.js';
import { meet, startClusterServer, startMasters } from '../../support/redis-cluster.js';
import { DURABLE, type RedisServer, startRedis } from '../../support/redis-server.js';
import { until } from '../../support/until.js';
import { likeValkey } from '../../support/valkey-info.js';

// A Cluster is one node with several servers: any of its masters can make the node unfit, or its locks weaker.

const once: AcquireTerms = { ttl: 60_000, retry: NO_RETRY, renew: false, signals: [] };

const EVICTING = [...DURABLE.args!, '--maxmemory-policy', 'allkeys-lru'];

let masters: RedisServer[];
let durable: RedisServer;
let evicting: RedisServer;

beforeAll(async () => {
  masters = await startMasters(DURABLE.args!, EVICTING);
  [durable, evicting] = masters as [RedisServer, RedisServer];
});

const left: (() => void)[] = [];
afterEach(() => {
  for (const leave of left.splice(0)) leave();
});

function pause(server: RedisServer): void {
  server.pause();
  left.push(() => server.resume());
}

/** Connects a client to the Cluster of these servers; resolves when the client is ready. */
async function clientOf(
  [first]: readonly RedisServer[],
  user: object = {},
  Client: typeof Cluster = Cluster,
): Promise<Cluster> {
  const client = new Client([{ host: first!.host, port: first!.port }], {
    redisOptions: user,
    lazyConnect: true,
  });
  cleanUpAfterTests(async () => client.disconnect());
  left.push(() => client.disconnect());
  await client.connect();
  return client;
}

async function nodeOf(client: Cluster, fleet = newFleet()): Promise<RedisStore> {
  const node = new RedisStore(client, false, fleet);
  left.push(() => void node.close());
  await node.connect();
  return node;
}

async function runIdOf(server: RedisServer): Promise<string> {
  return /^run_id:(\w+)/m.exec(await server.client().info('server'))![1]!;
}

/** A key in a slot of the master. */
async function keyOn(master: RedisServer): Promise<string> {
  for (let count = 0; ; count++) {
    const slot = (await master.client().call('CLUSTER', 'KEYSLOT', `lock:{${count}}`)) as number;
    if (slot < 8_192 === (master === durable)) return String(count);
  }
}

describe('start-up (S17)', () => {
  test.each([
    ['5', Cluster],
    ['6', Cluster6 as unknown as typeof Cluster],
  ])(
    'start-up fails when one Redis Cluster is given several times, through different clients of ioredis %s',
    async (_version, Client) => {
      const [a, b] = masters as [RedisServer, RedisServer];
      const nodes = await Promise.all([[a], [b], [a]].map((start) => clientOf(start, {}, Client)));
      await expect(startApp({}, { nodes })).rejects.toThrow(
        /^Redis at cluster 127\.0\.0\.1:\d+( \(2\))? cannot be used for locks: master 127\.0\.0\.1:\d+: it is the same server as cluster 127/,
      );
    },
  );

  test('start-up fails when a Redis Cluster and one of its masters are given', async () => {
    const nodes = [await clientOf(masters), evicting.url, durable.url];
    await expect(startApp({}, { nodes })).rejects.toThrow('it is a node of a Redis Cluster');
  });

  test('start-up fails when a Valkey Cluster and one of its masters are given', async () => {
    const cluster = await clientOf(masters);
    for (const master of cluster.nodes('master')) likeValkey(master);
    const plain = evicting.client();
    await plain.ping();
    const third = await startRedis(DURABLE);
    await expect(startApp({}, { nodes: [cluster, likeValkey(plain), third.url] })).rejects.toThrow(
      'it is a node of a Redis Cluster',
    );
  });
});

test('the log and `checkNodes` name each master that weakens the locks of a Cluster (S13, S14)', async () => {
  const weak = await startMasters([], EVICTING);
  const fleet = newFleet();
  await nodeOf(await clientOf(weak), fleet);
  const [first, second] = weak.map(({ port }) => `master 127.0.0.1:${port}: `);
  const found = [
    // The warning does not advise `restartGuard`, which does not work on a Cluster.
    `${first}a restart can forget locks that are held; set appendonly to yes and appendfsync to always`,
    expect.stringContaining(`${second}maxmemory-policy is allkeys-lru`),
  ];
  const prefix = `cluster 127.0.0.1:${weak[0]!.port}: `;
  expect(fleet.warnings.map((warning) => warning.replace(prefix, ''))).toEqual(expect.arrayContaining(found));
  expect(fleet.warnings).toHaveLength(2);
  const app = await startApp({}, { nodes: await clientOf(weak) });
  left.push(() => void app.close());
  const { nodes } = await app.get(LockService).checkNodes();
  expect(nodes).toEqual([
    { node: `cluster 127.0.0.1:${weak[0]!.port}`, state: 'voting', warnings: expect.arrayContaining(found) },
  ]);
  expect(nodes[0]!.warnings).toHaveLength(2);
});

test('a Cluster grants locks even if the Redis user may not run INFO, and the store warns once', async () => {
  for (const master of masters) {
    await master.client().call('ACL', 'SETUSER', 'app', 'on', '>secret', '~*', '&*', '+@all', '-info');
  }
  const fleet = newFleet();
  const node = await nodeOf(
    await clientOf(masters, { username: 'app', password: 'secret', enableReadyCheck: false }),
    fleet,
  );
  expect(fleet.warnings).toEqual([expect.stringMatching(/^cluster [\d.:]+: its user may not run INFO/)]);
  await (await redlockOver([node], PATIENT).acquire(['k'], once)).release();
});

test('a Cluster grants locks while one master does not answer, and checks that master later', async () => {
  const client = await clientOf(masters);
  // These pings connect the client to both masters.
  await Promise.all(client.nodes('master').map((master) => master.ping()));
  pause(evicting);
  const fleet = newFleet();
  const node = await nodeOf(client, fleet);
  const redlock = redlockOver([node], PATIENT);
  await (await redlock.acquire([await keyOn(durable)], once)).release();
  evicting.resume();
  await until(() => fleet.warnings.some((warning) => warning.includes('allkeys-lru')));
  expect([...fleet.runIds.keys()].toSorted()).toEqual((await Promise.all(masters.map(runIdOf))).toSorted());
});

test('a Cluster grants locks on other masters although one master has been silent for long', async () => {
  const node = await nodeOf(await clientOf(masters));
  const [here, there] = [await keyOn(durable), await keyOn(evicting)];
  pause(evicting);
  await expect(redlockOver([node], { nodeTimeout: 100 }).acquire([there], once)).rejects.toThrow('no answer');
  // A node of a single server would get no more requests after one second.
  await delay(1_500);
  await (await redlockOver([node], PATIENT).acquire([here], once)).release();
});

test('a store checks a master that joins the Cluster, and forgets a master that leaves', async () => {
  const servers = await startMasters(DURABLE.args!, DURABLE.args!);
  const fleet = newFleet();
  const node = await nodeOf(await clientOf(servers), fleet);
  const redlock = redlockOver([node], PATIENT);
  expect(fleet.runIds.size).toBe(2);

  const joining = await startClusterServer(EVICTING);
  const all = [...servers, joining];
  await meet(all);
  const clients = all.map((server) => server.client());
  const [, , newId] = await Promise.all(clients.map((client) => client.call('CLUSTER', 'MYID')));
  const slot = (await clients[0]!.call('CLUSTER', 'KEYSLOT', 'lock:{k}')) as number;
  const owner = slot < 8_192 ? 0 : 1;
  const oldId = await clients[owner]!.call('CLUSTER', 'MYID');
  /** Moves the slot of the key. Its new master announces the move first: the other servers believe the new master. */
  const move = async (to: unknown, from: unknown, [source, target]: [number, number]): Promise<void> => {
    await clients[target]!.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', String(from));
    await clients[source]!.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', String(to));
    const keys = (await clients[source]!.call('CLUSTER', 'GETKEYSINSLOT', slot, 100)) as string[];
    for (const key of keys) {
      await clients[source]!.call('MIGRATE', '127.0.0.1', all[target]!.port, key, 0, 60_000);
    }
    for (const index of [target, source, 1 - owner]) {
      await clients[index]!.call('CLUSTER', 'SETSLOT', slot, 'NODE', String(to));
    }
  };

  await move(newId, oldId, [owner, 2]);
  // The old master answers MOVED, so that the client reads again which master has which slot.
  await (await redlock.acquire(['k'], once)).release();
  await until(() => fleet.runIds.size === 3);
  expect(fleet.runIds.has(await runIdOf(joining))).toBe(true);
  expect(fleet.warnings).toEqual([expect.stringContaining(`master 127.0.0.1:${joining.port}: maxmemory`)]);
  await expect(node.check(0)).resolves.toMatchObject({ warnings: [expect.stringContaining('allkeys-lru')] });

  await move(oldId, newId, [2, owner]);
  await (await redlock.acquire(['k'], once)).release();
  await until(() => fleet.runIds.size === 2);
  expect(fleet.runIds.has(await runIdOf(joining))).toBe(false);
  await expect(node.check(0)).resolves.toEqual({ state: 'voting', warnings: [] });
});
