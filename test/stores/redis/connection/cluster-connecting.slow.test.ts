import { afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { Cluster, type ClusterOptions, type Redis } from 'ioredis';
import { Cluster as Cluster6 } from 'ioredis-6';
import { RedisStore } from '../../../../lib/stores/redis/redis-store.js';
import { NO_RETRY } from '../../../../lib/core/lock-options.js';
import { newFleet, redlockOver } from '../../../support/core.js';
import { cleanUpAfterTests } from '../../../support/leftovers.js';
import { PATIENT } from '../../../support/patience.js';
import { startMasters } from '../../../support/redis-cluster.js';
import type { RedisServer } from '../../../support/redis-server.js';
import { until } from '../../../support/until.js';

// Before the client of a Cluster is ready, it asks a random master if the Cluster is up.

const once = { ttl: 60_000, retry: NO_RETRY, renew: false, signals: [] };

let answering: RedisServer;
let hanging: RedisServer;
beforeAll(async () => {
  [answering, hanging] = (await startMasters([], [])) as [RedisServer, RedisServer];
});

const left: (() => unknown)[] = [];
afterEach(async () => {
  for (const leave of left.splice(0).toReversed()) await leave();
});

function hang(): void {
  hanging.pause();
  left.push(() => hanging.resume());
}

/** A client that first asks the master that hangs. */
function clientOf(Client: typeof Cluster, options: ClusterOptions = {}): Cluster {
  const nodes = [answering, hanging].map(({ host, port }) => ({ host, port }));
  const client = new Client(nodes, {
    redisOptions: { disconnectTimeout: 100 },
    // The client waits for the hanging master for twice this time.
    slotsRefreshTimeout: 500,
    ...options,
  });
  const { connectionPool: pool } = client as unknown as { connectionPool: Pool };
  const sample = pool.getSampleInstance.bind(pool);
  pool.getSampleInstance = () => {
    pool.getSampleInstance = sample;
    return pool.getInstanceByKey(`${hanging.host}:${hanging.port}`);
  };
  const close = (): void => client.disconnect();
  cleanUpAfterTests(async () => close());
  left.push(close);
  return client;
}

interface Pool {
  getInstanceByKey(key: string): Redis;
  getSampleInstance(role: string): Redis;
}

function nodeOf(client: Cluster): RedisStore {
  const node = new RedisStore(client, false, newFleet());
  left.push(() => node.close());
  return node;
}

/** Resolves when the node is connected; rejects when that takes too long. */
async function connected(node: RedisStore): Promise<void> {
  let done = false;
  void node.connect().then(() => (done = true));
  await until(() => done);
}

/** A key in a slot of the master. */
async function keyOn(master: RedisServer): Promise<string> {
  for (let count = 0; ; count++) {
    const slot = (await answering.client().call('CLUSTER', 'KEYSLOT', `lock:{${count}}`)) as number;
    if (slot < 8_192 === (master === answering)) return String(count);
  }
}

describe.each([
  ['5', Cluster],
  ['6', Cluster6 as unknown as typeof Cluster],
])('a Cluster client of ioredis %s that connects while a master hangs', (_version, Client) => {
  test.each([
    ['the client connects by itself', { lazyConnect: false }],
    ['the store connects the client', { lazyConnect: true }],
  ])(
    'if %s, a connecting Cluster client gets locks on masters that answer, and no answer from a master that hangs',
    async (_who, options) => {
      const [here, there] = [await keyOn(answering), await keyOn(hanging)];
      hang();
      const node = nodeOf(clientOf(Client, options));
      await connected(node);
      await (await redlockOver([node], PATIENT).acquire([here], once)).release();
      const silent = redlockOver([node], { nodeTimeout: 100 }).acquire([there], once);
      await expect(silent).rejects.toThrow('no answer within 100 ms');
      hanging.resume();
      await (await redlockOver([node], PATIENT).acquire([there], once)).release();
    },
  );

  test('a store that receives a Cluster client while that client connects gets a lock on a master that answers', async () => {
    const here = await keyOn(answering);
    hang();
    const client = clientOf(Client);
    // The client is ready already if this process stood still for longer than the client waits for the master.
    await until(() => ['connect', 'ready'].includes(client.status));
    const node = nodeOf(client);
    await connected(node);
    const lock = await redlockOver([node], PATIENT).acquire([here], once);
    expect(lock.isHeld()).toBe(true);
    await lock.release();
  });
});

test('a closed node leaves no listeners on its Cluster client', async () => {
  const client = clientOf(Cluster, { lazyConnect: true });
  const listeners = (): number[] => client.eventNames().map((name) => client.listenerCount(name));
  const before = listeners();
  await nodeOf(client).close();
  expect(listeners()).toEqual(before);
});
