import { beforeAll, describe, expect, test } from '@jest/globals';
import { Cluster, Redis } from 'ioredis';
import { Cluster as Cluster6 } from 'ioredis-6';
import { setImmediate as turn } from 'node:timers/promises';
import { LockService } from '../../../lib/index.js';
import { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import { nodeRedisSentinel, storeOver } from '../../support/clients.js';
import { countLocks, newFleet, redlockOver } from '../../support/core.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { startApp } from '../../support/nest-app.js';
import { PATIENT } from '../../support/patience.js';
import { startMasters } from '../../support/redis-cluster.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { startSentinel } from '../../support/sentinel.js';
import { startTcpProxy, type TcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';

// A client of the user's sends a command again by itself when its connection was cut before the answer came. An acquire
// that is sent again must not stay when its caller has given up meanwhile (S6, S15).

/** Long enough for a call to be given up first, also on a busy machine. */
const SENT_AGAIN_AFTER_MS = 500;

/** One server behind a proxy, and a client that leads to it. */
interface Setup {
  readonly looker: Redis;
  readonly proxy: TcpProxy;
  /** A client that is ready, and the event by which it tells that it has lost the connection. */
  connect(): Promise<{ client: Cluster | Redis; lost: string }>;
  /** A key of which the server has never heard. */
  newKey(): Promise<string>;
}

let keys = 0;

async function oneServer(): Promise<Setup> {
  const server = await startRedis();
  const proxy = await startTcpProxy(server);
  return {
    looker: server.client(),
    proxy,
    connect: async () => {
      const client = new Redis(proxy.url, {
        lazyConnect: true,
        disconnectTimeout: 100,
        retryStrategy: () => SENT_AGAIN_AFTER_MS,
      });
      client.on('error', () => undefined);
      cleanUpAfterTests(async () => client.disconnect());
      await client.connect();
      return { client, lost: 'close' };
    },
    newKey: async () => `k${++keys}`,
  };
}

async function threeMasters(Client: typeof Cluster): Promise<Setup> {
  const servers = await startMasters([], [], []);
  const [server] = servers as [RedisServer];
  const looker = server.client();
  const proxy = await startTcpProxy(server);
  // The masters name the proxy to the clients.
  await looker.config('SET', 'cluster-announce-bus-port', server.port + 10_000);
  await looker.config('SET', 'cluster-announce-port', proxy.port);
  for (const other of servers.map((each) => each.client())) {
    await until(async () => JSON.stringify(await other.call('CLUSTER', 'SLOTS')).includes(`${proxy.port}`));
  }
  return {
    looker,
    proxy,
    connect: async () => {
      const client = new Client(
        servers.slice(1).map(({ host, port }) => ({ host, port })),
        {
          lazyConnect: true,
          redisOptions: { disconnectTimeout: 100 },
          retryDelayOnFailover: SENT_AGAIN_AFTER_MS,
        },
      );
      cleanUpAfterTests(async () => client.disconnect());
      await client.connect();
      return { client, lost: '-node' };
    },
    newKey: async () => {
      for (;;) {
        const key = `k${++keys}`;
        const slot = (await looker.call('CLUSTER', 'KEYSLOT', `lock:{${key}}`)) as number;
        if (slot < 5_000) return key;
      }
    },
  };
}

describe.each<[string, () => Promise<Setup>]>([
  ['one Redis', oneServer],
  ['a Cluster with ioredis 5', () => threeMasters(Cluster)],
  ['a Cluster with ioredis 6', () => threeMasters(Cluster6 as unknown as typeof Cluster)],
])('%s, whose connection is cut while an acquire is unanswered', (_name, setUp) => {
  let setup: Setup;
  beforeAll(async () => {
    setup = await setUp();
  });

  /** Cuts the connection, whose requests are held, after what was asked in this turn has been written. */
  async function cut(client: Cluster | Redis, lost: string): Promise<void> {
    await turn();
    // `once` of node:events would end with the error that comes before.
    const noticed = new Promise((resolve) => client.once(lost, resolve));
    setup.proxy.cut();
    await setup.proxy.heal();
    await noticed;
  }

  /** Whether an acquire for the key has stored it, which leaves the fencing counter. */
  const wasStored = async (key: string): Promise<boolean> =>
    (await setup.looker.exists(`lock:{${key}}`)) === 1;

  test('leaves no lock when the caller aborts before the client sends the acquire again', async () => {
    const { client, lost } = await setup.connect();
    const node = new RedisStore(client, false, newFleet());
    await node.connect();
    const redlock = redlockOver([node], PATIENT);
    const terms = { ttl: 60_000, retry: NO_RETRY, renew: false };
    for (let round = 0; round < 5; round++) {
      // From now on the node votes at once, and knows the scripts.
      await (await redlock.acquire([await setup.newKey()], { ...terms, signals: [] })).release();
      const key = await setup.newKey();
      const giveUp = new AbortController();
      setup.proxy.holdRequests();
      const acquiring = failureOf(redlock.acquire([key], { ...terms, signals: [giveUp.signal] }));
      await cut(client, lost);
      giveUp.abort(new Error('given up'));
      expect(await acquiring).toBe('given up');
      await until(() => wasStored(key));
      await until(async () => (await countLocks(setup.looker)) === 0, 5_000);
    }
    await redlock.close();
    client.disconnect();
  });

  test('leaves no lock when the application has shut down', async () => {
    const { client, lost } = await setup.connect();
    const app = await startApp({}, { nodes: client });
    const locks = app.get(LockService);
    await (await locks.acquire(await setup.newKey())).release();
    const key = await setup.newKey();
    setup.proxy.holdRequests();
    const acquiring = failureOf(locks.acquire(key, { ttl: 60_000 }));
    await cut(client, lost);
    await app.close();
    expect(await acquiring).toContain('the application is shutting down');
    // From here on nobody is left who would release it.
    await until(() => wasStored(key));
    await expect(countLocks(setup.looker)).resolves.toBe(0);
    client.disconnect();
  });
});

/** node-redis looks for the master, and asks again (`maxCommandRediscovers`), as long as the server says that it is none. */
describe('a master behind a Sentinel with node-redis, which is a replica for a moment', () => {
  const terms = { ttl: 60_000, retry: NO_RETRY, renew: false };
  let looker: Redis;
  let client: ReturnType<typeof nodeRedisSentinel>;
  beforeAll(async () => {
    const master = await startRedis();
    const port = await startSentinel(master, 'locks');
    looker = master.client();
    client = nodeRedisSentinel({
      name: 'locks',
      sentinelRootNodes: [{ host: master.host, port }],
      // Otherwise a quick machine has asked as often as it may before the master is one again.
      maxCommandRediscovers: 100_000,
    });
    await until(() => client.isReady, 20_000);
  });

  const wasStored = async (key: string): Promise<boolean> => (await looker.exists(`lock:{${key}}`)) === 1;
  const refuse = (): Promise<unknown> => looker.replicaof('127.0.0.1', 1);
  const accept = (): Promise<unknown> => looker.call('REPLICAOF', 'NO', 'ONE');

  /** How often a script was refused as the server is a replica. */
  async function refusals(): Promise<number> {
    return Number(/errorstat_READONLY:count=(\d+)/.exec(await looker.info('errorstats'))?.[1] ?? 0);
  }

  test('leaves no lock when the caller aborts before the resend', async () => {
    const store = storeOver(client, newFleet());
    await store.connect();
    const redlock = redlockOver([store], PATIENT);
    await (await redlock.acquire(['first'], { ...terms, signals: [] })).release();
    const giveUp = new AbortController();
    await refuse();
    const acquiring = failureOf(redlock.acquire(['aborted'], { ...terms, signals: [giveUp.signal] }));
    await until(async () => (await refusals()) > 0);
    giveUp.abort(new Error('given up'));
    expect(await acquiring).toBe('given up');
    await accept();
    await until(() => wasStored('aborted'), 5_000);
    await until(async () => (await countLocks(looker)) === 0, 5_000);
    await redlock.close();
  });

  test('stores nothing when it is sent again after its time limit (S16)', async () => {
    const store = storeOver(client, newFleet());
    await store.connect();
    const redlock = redlockOver([store], { nodeTimeout: 100 });
    await until(() =>
      redlock.acquire(['second'], { ...terms, signals: [] }).then(
        (lock) => lock.release().then(() => true),
        () => false,
      ),
    );
    await refuse();
    const before = await refusals();
    const failed = failureOf(redlock.acquire(['late'], { ...terms, signals: [] }));
    // The one who asks, or the script itself, which writes nothing then and so is not refused by a replica.
    expect(await failed).toMatch(/within 100 ms|too late/);
    expect(await refusals()).toBeGreaterThan(before + 1);
    await accept();
    await until(() => store.available);
    // What is asked again comes before its release is confirmed, if it comes at all.
    await redlock.close();
    expect(await wasStored('late')).toBe(false);
  });

  test('leaves no lock when the application has shut down', async () => {
    const app = await startApp({}, { nodes: client });
    const locks = app.get(LockService);
    await (await locks.acquire('third')).release();
    const before = await refusals();
    await refuse();
    const acquiring = failureOf(locks.acquire('ended', { ttl: 60_000 }));
    await until(async () => (await refusals()) > before);
    await app.close();
    expect(await acquiring).toContain('the application is shutting down');
    await accept();
    await until(() => client.isReady, 20_000);
    await client.sendCommand(false, ['PING']);
    await expect(countLocks(looker)).resolves.toBe(0);
  });
});

function failureOf(acquiring: Promise<unknown>): Promise<string> {
  return acquiring.then(
    () => 'none',
    ({ message }: Error) => message,
  );
}
