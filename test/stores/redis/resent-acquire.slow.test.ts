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

// A client that is passed in sends a command again when its connection was cut before the answer. An acquire that is sent again
// must leave no lock when its caller has given up meanwhile (S6, S15).

/** Milliseconds until a client sends a command again. A test aborts the acquire sooner. */
const SENT_AGAIN_AFTER_MS = 500;

/** Milliseconds. Far below the ttl of 60 seconds, so a lock that is gone by then was released, and has not expired. */
const RELEASED_WITHIN = 30_000;

/** A server behind a proxy, and clients that connect through the proxy. */
interface Setup {
  readonly looker: Redis;
  readonly proxy: TcpProxy;
  /** A client that is ready, and the event that it emits when the connection is lost. */
  connect(): Promise<{ client: Cluster | Redis; lost: string }>;
  /** A key that was never locked on the server. */
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
  // The masters announce the port of the proxy as the port of the first master.
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

  /**
   * Cuts the connection when the client has written the commands of this turn of the event loop. The proxy holds these
   * commands.
   */
  async function cut(client: Cluster | Redis, lost: string): Promise<void> {
    await turn();
    // `once` of node:events would reject with the error that the client emits first.
    const noticed = new Promise((resolve) => client.once(lost, resolve));
    setup.proxy.cut();
    await setup.proxy.heal();
    await noticed;
  }

  /** True if an acquire has stored a record for the key; the record outlasts the release. */
  const wasStored = async (key: string): Promise<boolean> =>
    (await setup.looker.exists(`lock:{${key}}`)) === 1;

  test('no lock stays stored if the caller aborts before the client sends the acquire again', async () => {
    const { client, lost } = await setup.connect();
    const node = new RedisStore(client, false, newFleet());
    await node.connect();
    const redlock = redlockOver([node], PATIENT);
    const terms = { ttl: 60_000, retry: NO_RETRY, renew: false };
    for (let round = 0; round < 5; round++) {
      // After this lock the node votes at once, and the server has the scripts.
      await (await redlock.acquire([await setup.newKey()], { ...terms, signals: [] })).release();
      const key = await setup.newKey();
      const giveUp = new AbortController();
      setup.proxy.holdRequests();
      const acquiring = failureOf(redlock.acquire([key], { ...terms, signals: [giveUp.signal] }));
      await cut(client, lost);
      giveUp.abort(new Error('given up'));
      expect(await acquiring).toBe('given up');
      await until(() => wasStored(key));
      await until(async () => (await countLocks(setup.looker)) === 0, RELEASED_WITHIN);
    }
    await redlock.close();
    client.disconnect();
  });

  test('no lock stays stored if the application shuts down while an acquire is unanswered', async () => {
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
    // The application sent its release before it ended. So the client sends both again: the acquire, then the release.
    await until(() => wasStored(key));
    await until(async () => (await countLocks(setup.looker)) === 0, RELEASED_WITHIN);
    client.disconnect();
  });
});

/** node-redis looks for the master and sends a command again (`maxCommandRediscovers`) while the server answers READONLY. */
describe('a master that is a replica for a moment, with node-redis and a Sentinel', () => {
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
      // A quick machine would reach the default limit before the server is a master again.
      maxCommandRediscovers: 100_000,
    });
    await until(() => client.isReady);
  });

  const wasStored = async (key: string): Promise<boolean> => (await looker.exists(`lock:{${key}}`)) === 1;
  const refuse = (): Promise<unknown> => looker.replicaof('127.0.0.1', 1);
  const accept = (): Promise<unknown> => looker.call('REPLICAOF', 'NO', 'ONE');

  /** Number of scripts that were refused because the server is a replica. */
  async function refusals(): Promise<number> {
    return Number(/errorstat_READONLY:count=(\d+)/.exec(await looker.info('errorstats'))?.[1] ?? 0);
  }

  test('no lock stays stored if the caller aborts before node-redis sends the acquire again', async () => {
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
    await until(() => wasStored('aborted'));
    await until(async () => (await countLocks(looker)) === 0, RELEASED_WITHIN);
    await redlock.close();
  });

  test('no lock is stored when node-redis sends an acquire again after the time limit of that acquire (S16)', async () => {
    const store = storeOver(client, newFleet());
    await store.connect();
    // The time limit is much longer than the client takes to send the command again.
    const redlock = redlockOver([store], { nodeTimeout: 2_000 });
    await until(() =>
      redlock.acquire(['second'], { ...terms, signals: [] }).then(
        (lock) => lock.release().then(() => true),
        () => false,
      ),
    );
    await refuse();
    const before = await refusals();
    const failed = failureOf(redlock.acquire(['late'], { ...terms, signals: [] }));
    // The attempt fails either by the time limit, or because the script answers that the acquire came too late. After its
    // deadline the script writes nothing, so even a replica can run it.
    expect(await failed).toMatch(/within 2000 ms|too late/);
    expect(await refusals()).toBeGreaterThan(before + 1);
    await accept();
    await until(() => store.available);
    // `close` waits for the release. An acquire that node-redis sends again arrives before the release.
    await redlock.close();
    expect(await wasStored('late')).toBe(false);
  });

  test('no lock stays stored if the application shuts down while an acquire is unanswered', async () => {
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
    await until(() => client.isReady);
    await client.sendCommand(false, ['PING']);
    await until(async () => (await countLocks(looker)) === 0, RELEASED_WITHIN);
  });
});

function failureOf(acquiring: Promise<unknown>): Promise<string> {
  return acquiring.then(
    () => 'none',
    ({ message }: Error) => message,
  );
}
