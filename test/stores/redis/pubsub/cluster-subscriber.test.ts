import { beforeAll, describe, expect, test } from '@jest/globals';
import { Cluster, type ClusterOptions } from 'ioredis';
import { setImmediate as turn } from 'node:timers/promises';
import { Cluster as Cluster6 } from 'ioredis-6';
import type { Driver } from '../../../../lib/stores/redis/connection/driver.js';
import { ClusterSubscriber } from '../../../../lib/stores/redis/pubsub/cluster-subscriber.js';
import { RedisStore } from '../../../../lib/stores/redis/redis-store.js';
import { LockInspector } from '../../../../lib/redlock/inspect/lock-inspector.js';
import { NO_RETRY } from '../../../../lib/core/lock-options.js';
import { newFleet, redlockOver } from '../../../support/core.js';
import { freePort } from '../../../support/free-port.js';
import { cleanUpAfterTests } from '../../../support/leftovers.js';
import { PATIENT } from '../../../support/patience.js';
import { startMasters } from '../../../support/redis-cluster.js';
import type { RedisServer } from '../../../support/redis-server.js';
import { until } from '../../../support/until.js';

// A client may put a prefix before keys, and may connect to other addresses than the servers announce. Channels need the same
// prefix, and the connection for messages needs the same addresses.

const six = Cluster6 as unknown as typeof Cluster;

let masters: RedisServer[];
beforeAll(async () => {
  masters = await startMasters([], []);
});

async function nodeWith(options: ClusterOptions, Client = Cluster, fleet = newFleet()): Promise<RedisStore> {
  const nodes = masters.map(({ host, port }) => ({ host, port }));
  const redisOptions = { ...options.redisOptions, disconnectTimeout: 100 };
  const client = new Client(nodes, { ...options, redisOptions, lazyConnect: true });
  cleanUpAfterTests(async () => client.disconnect());
  await client.connect();
  const node = new RedisStore(client, false, fleet);
  await node.connect();
  return node;
}

/** Milliseconds. Only a message can end a wait this soon: without messages, the waiter sleeps for its whole delay. */
const BY_MESSAGE_MS = 20_000;

/** Longest time between a release and the next grant, in milliseconds, over keys on both masters. */
async function slowestHandOver(node: RedisStore): Promise<number> {
  let slowest = 0;
  // Each `Redlock` acts as a process. A call that waits at the `Redlock` of the holder would need no message.
  const [holder, waiter] = [redlockOver([node], PATIENT), redlockOver([node], PATIENT)];
  const lookers = masters.map((master) => master.client());
  const inLine = async (): Promise<boolean> => {
    const queues = await Promise.all(lookers.map((looker) => looker.keys('*:q')));
    return queues.flat().length > 0;
  };
  for (const key of ['a', 'b', 'c', 'd']) {
    // Without a limit of attempts, a waiter in the queue would sleep for five seconds only.
    const retry = { timeout: 60_000, attempts: 1_000, delay: 30_000, jitter: 0 };
    const terms = { ttl: 60_000, renew: false, signals: [], retry };
    const lock = await holder.acquire([key], terms);
    const next = waiter.acquire([key], terms);
    await until(inLine);
    const released = performance.now();
    await lock.release();
    await (await next).release();
    slowest = Math.max(slowest, performance.now() - released);
    await Promise.all(lookers.map((looker) => looker.flushall()));
  }
  await node.close();
  return slowest;
}

describe.each<[string, ClusterOptions, typeof Cluster]>([
  ['in its own options, with ioredis 5', { keyPrefix: 'app:' }, Cluster],
  ['in its own options, with ioredis 6', { keyPrefix: 'app:' }, six],
  ['in redisOptions, with ioredis 5', { redisOptions: { keyPrefix: 'app:' } }, Cluster],
  ['in redisOptions, with ioredis 6', { redisOptions: { keyPrefix: 'app:' } }, six],
  ['in its own options, with a hash tag', { keyPrefix: '{app}:' }, Cluster],
  ['in redisOptions, with a hash tag', { redisOptions: { keyPrefix: '{app}:' } }, Cluster],
  [
    'in its own options and in redisOptions',
    { keyPrefix: 'app:', redisOptions: { keyPrefix: 'other:' } },
    Cluster,
  ],
])('a Cluster client with a keyPrefix %s', (_where, options, Client) => {
  test('a message wakes waiters over a Cluster client with a keyPrefix', async () => {
    expect(await slowestHandOver(await nodeWith(options, Client))).toBeLessThan(BY_MESSAGE_MS);
  });

  test('locks of a Cluster client with a keyPrefix are listed by their keys, without the prefix', async () => {
    const node = await nodeWith(options, Client);
    const redlock = redlockOver([node], PATIENT);
    const keys = ['a', 'b', 'c', 'd'];
    const terms = { ttl: 60_000, retry: NO_RETRY, renew: false, signals: [] };
    const locks = await Promise.all(keys.map((key) => redlock.acquire([key], terms)));
    const listed: string[] = [];
    for await (const { key } of new LockInspector([node], PATIENT, redlock.held).list()) {
      listed.push(key);
    }
    expect(listed.toSorted()).toEqual(keys);
    await Promise.all(locks.map((lock) => lock.release()));
    await node.close();
  });
});

test('the warning about missing channel rights names the channels with their keyPrefix', async () => {
  for (const master of masters) {
    await master.client().call('ACL', 'SETUSER', 'app', 'on', '>secret', '~*', 'resetchannels', '+@all');
  }
  const fleet = newFleet();
  const redisOptions = { username: 'app', password: 'secret' };
  const node = await nodeWith({ keyPrefix: 'app:', redisOptions }, Cluster, fleet);
  const place = {
    keys: ['a'],
    mode: 'exclusive' as const,
    process: '0123456789abcdef',
    number: 1,
    owner: 'me',
  };
  const listening = node.listen(place, () => undefined);
  await until(() => fleet.warnings.some((warning) => warning.includes('allow the channels')));
  expect(fleet.warnings).toContainEqual(expect.stringContaining(' &app:lock:* +ssubscribe'));
  listening.stop();
  await node.close();
});

describe('a Cluster whose servers announce unreachable addresses', () => {
  const map: NatMap = {};
  beforeAll(async () => {
    const lookers = masters.map((master) => master.client());
    for (const [index, { host, port }] of masters.entries()) {
      const named = await freePort();
      map[`${host}:${named}`] = { host, port };
      await lookers[index]!.config('SET', 'cluster-announce-bus-port', port + 10_000);
      await lookers[index]!.config('SET', 'cluster-announce-port', named);
    }
    const ports = Object.keys(map).map((address) => address.split(':')[1]!);
    for (const looker of lookers) {
      await until(async () => {
        const slots = JSON.stringify(await looker.call('CLUSTER', 'SLOTS'));
        return ports.every((port) => slots.includes(port));
      });
    }
  });

  test.each([
    ['an object', map],
    ['a function', (address: string) => map[address] ?? null],
  ])('a message wakes waiters if the Cluster client has a natMap that is %s', async (_what, natMap) => {
    expect(await slowestHandOver(await nodeWith({ natMap }))).toBeLessThan(BY_MESSAGE_MS);
  });
});

test('a natMap that throws leaves a waiter without messages, and causes no unhandled rejection', async () => {
  let asked = 0;
  const server = {
    options: {},
    exists: async () => {
      throw new Error('MOVED 1 10.0.0.1:6379');
    },
  };
  const natMap = (): never => {
    asked++;
    throw new Error('no such address');
  };
  const client = { isCluster: true, options: { natMap }, nodes: () => [server] } as unknown as Driver;
  const listening = new ClusterSubscriber(client, () => undefined).listen('channel', {
    message: () => undefined,
    ready: () => undefined,
  });
  await until(() => asked === 1);
  // An unhandled rejection would make the test fail: Jest listens for it.
  await turn();
  expect(listening.ready).toBe(false);
});

type NatMap = Record<string, { host: string; port: number }>;
