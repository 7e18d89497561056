import { isDeepStrictEqual } from 'node:util';
import { beforeAll, describe, expect, test } from '@jest/globals';
import { Cluster, Redis } from 'ioredis';
import { Cluster as Cluster6 } from 'ioredis-6';
import { Cluster as ValkeyCluster } from 'iovalkey';
import { Lease } from '../../../lib/core/lease.js';
import { EXCLUSIVE, type LockKind, SHARED } from '../../../lib/core/lock-mode.js';
import { LINGER_MS } from '../../../lib/core/store-times.js';
import { openClient } from '../../../lib/stores/redis/connection/connection.js';
import type { RedisClient } from '../../../lib/stores/redis/driver-for.js';
import { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { acquireOn, type AcquireTerms, releaseOn } from '../../support/ask-store.js';
import {
  CLIENTS,
  glideCluster,
  nodeRedisCluster,
  nodeRedisSentinel,
  storeOver,
} from '../../support/clients.js';
import { heldKeys, newFleet } from '../../support/core.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { startMasters } from '../../support/redis-cluster.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { startSentinel } from '../../support/sentinel.js';
import { startTcpProxy, type TcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';

// A connection is cut on the side of the client, and the network delivers its bytes later. An acquire among them reaches
// the server after the release of the same lease, which went over the next connection (S27).

const TTL = 600_000;

/** Time limit of an acquisition in milliseconds, and so its deadline. Bytes that arrive later have no effect (S16). */
const LIMIT = 5_000;

/** Milliseconds. Far below the ttl, so a lock that is gone by then was released, and has not expired. */
const RELEASED_WITHIN = 30_000;

/** Milliseconds that a request may be on its way on a busy machine. Far below the limit that the second release waits for. */
const TRANSIT = 3_000;

const PERMITS: LockKind = { mode: 'permits', permits: 3 };

/** A way to a server, and a store that uses it. */
interface Way {
  readonly proxy: TcpProxy;
  readonly looker: Redis;
  readonly store: RedisStore;
}

/** Makes a store whose client connects through the proxy. */
type Opened = (proxy: TcpProxy) => Promise<RedisStore>;

const own: Opened = async (proxy) => new RedisStore(openClient(proxy.url), true, newFleet());

function over(make: (proxy: TcpProxy) => RedisClient | Promise<RedisClient>): Opened {
  return async (proxy) => {
    const client = await make(proxy);
    if ('isReady' in client) await until(() => client.isReady);
    return storeOver(client, newFleet());
  };
}

function quiet<Client extends Redis | Cluster>(client: Client): Client {
  client.on('error', () => undefined);
  cleanUpAfterTests(async () => client.disconnect());
  return client;
}

const isHeld = async ({ looker }: Way, key: string): Promise<boolean> =>
  (await heldKeys(looker)).includes(`lock:{${key}}`);

/** Sends the release until the server has confirmed it. */
async function release({ store }: Way, lease: Lease): Promise<void> {
  lease.ended = true;
  await until(() =>
    releaseOn(store, lease).then(
      () => true,
      () => false,
    ),
  );
}

function leaseOn(key: string, kind: LockKind): Lease {
  return new Lease([key], 'me', TTL, undefined, kind);
}

/** Acquires and releases another lock: afterwards the server has the scripts, and the store knows the server's clock. */
async function warmUp(way: Way, kind: LockKind, key: string): Promise<void> {
  await way.store.connect();
  const lease = leaseOn(`warm-up-${key}`, kind);
  await acquireOn(way.store, lease, { limit: LIMIT });
  await release(way, lease);
}

/**
 * Cuts the connection under an acquire, releases the lease over the next connection, and then delivers the acquire.
 * Tells whether the server has then stored the lease, and whether the lock ended before its ttl.
 */
async function deliverAfterRelease(
  way: Way,
  kind: LockKind,
  key: string,
  terms: AcquireTerms = {},
): Promise<Outcome> {
  const { proxy, store } = way;
  // The store estimates the server's clock by the warm-up, and is wrong by its time at most.
  const begun = performance.now();
  await warmUp(way, kind, key);
  const lease = leaseOn(key, kind);
  proxy.holdRequests();
  const acquiring = acquireOn(store, lease, { limit: LIMIT, ...terms }).catch(() => undefined);
  await until(() => proxy.holdsRequestWith(lease.id));
  proxy.cutWithLateRequests();
  await acquiring;
  return await outcome(way, lease, begun);
}

/** The state of the lock; `undefined` if the machine stalled, so that the bytes may have arrived after the limit. */
type Outcome = object | undefined;

async function outcome(way: Way, lease: Lease, begun: number): Promise<Outcome> {
  const [key = ''] = lease.keys;
  await release(way, lease);
  // Another lease gets the lock. Otherwise the record would refuse a late acquire that a client has resent, by its id.
  const next = leaseOn(key, lease.kind);
  await acquireOn(way.store, next, { limit: LIMIT });
  await release(way, next);
  const before = await isHeld(way, key);
  await way.proxy.deliverLate();
  const stored = await isHeld(way, key);
  if (!stored && performance.now() - begun > LIMIT) return void (await way.store.close());
  await until(async () => !(await isHeld(way, key)), RELEASED_WITHIN).catch(() => undefined);
  const after = await isHeld(way, key);
  await way.store.close();
  return { before, stored, after };
}

let keys = 0;

/** Free after the release, held when the late bytes have arrived, and free soon after. */
const UNDONE = { before: false, stored: true, after: false };

/**
 * Plays all cases at the same time, because each of them waits for its deadline. Returns the outcomes that are not
 * {@link UNDONE}.
 */
async function failuresOf(
  cases: Readonly<Record<string, (key: string) => Promise<Outcome>>>,
): Promise<Record<string, object>> {
  const played = Object.entries(cases).map(async ([name, play]) => {
    let told: Outcome;
    while (!told) told = await play(`key${++keys}`);
    return [name, told] as const;
  });
  const failures = (await Promise.all(played)).filter(([, told]) => !isDeepStrictEqual(told, UNDONE));
  return Object.fromEntries(failures);
}

describe('a lock does not stay stored by an acquire that arrives after its confirmed release', () => {
  let server: RedisServer;
  let looker: Redis;
  beforeAll(async () => {
    server = await startRedis();
    looker = server.client();
  });

  async function wayTo(opened: Opened): Promise<Way> {
    const proxy = await startTcpProxy(server);
    return { proxy, looker, store: await opened(proxy) };
  }

  const late = (opened: Opened, kind: LockKind) => async (key: string) =>
    deliverAfterRelease(await wayTo(opened), kind, key);

  test('for each kind of lock, and each client of one Redis', async () => {
    const failures = await failuresOf({
      exclusive: late(own, EXCLUSIVE),
      shared: late(own, SHARED),
      permits: late(own, PERMITS),
      'a lock that heals (S26)': async (key) =>
        deliverAfterRelease(await wayTo(own), EXCLUSIVE, key, { heals: true, proposal: 1_000 }),
      'node-redis 5': late(
        over(({ url }) => CLIENTS['node-redis 5'](url)),
        EXCLUSIVE,
      ),
      'node-redis 6': late(
        over(({ url }) => CLIENTS['node-redis 6'](url)),
        EXCLUSIVE,
      ),
      'Valkey GLIDE': late(
        over(({ url }) => CLIENTS['Valkey GLIDE'](url)),
        EXCLUSIVE,
      ),
      'ioredis that resends nothing': late(
        over(({ url }) =>
          quiet(new Redis(url, { autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0 })),
        ),
        EXCLUSIVE,
      ),
      // These clients resend the acquire.
      'ioredis 5': late(
        over(({ url }) => quiet(new Redis(url))),
        EXCLUSIVE,
      ),
      'ioredis 6': late(
        over(({ url }) => CLIENTS['ioredis 6'](url)),
        EXCLUSIVE,
      ),
      iovalkey: late(
        over(({ url }) => CLIENTS.iovalkey(url)),
        EXCLUSIVE,
      ),
    });
    expect(failures).toEqual({});
  });

  test('and the second release neither ends `minHold` nor makes the server remember a tick for longer', async () => {
    const way = await wayTo(own);
    const { proxy, store } = way;
    await warmUp(way, EXCLUSIVE, 'kept');
    const [life, minHold] = [60_000, 40_000];
    const ticking = new Lease(['ticking'], 'me', TTL, { schedule: 's', at: 0, life, from: 'release' });
    const kept = leaseOn('kept', EXCLUSIVE);
    proxy.holdRequests();
    const sent = performance.now();
    const acquiring = [ticking, kept].map((lease) =>
      acquireOn(store, lease, { limit: LIMIT }).catch(() => undefined),
    );
    await until(() => [ticking, kept].every(({ id }) => proxy.holdsRequestWith(id)));
    proxy.cutWithLateRequests();
    await Promise.all(acquiring);
    // Other nodes have granted both locks.
    ticking.acquired(sent, 0);
    kept.acquired(sent, minHold);
    await Promise.all([ticking, kept].map((lease) => release(way, lease)));
    const released = performance.now();
    await proxy.deliverLate();
    const record = async (): Promise<string> => (await looker.get('lock:{kept}')) ?? '';
    expect(await record()).toMatch(/^H/);
    await until(async () => (await record()).startsWith('K'), RELEASED_WITHIN);
    const [now, left, remembered] = [
      performance.now(),
      await looker.pttl('lock:{kept}'),
      await looker.pttl('lock:{ticking}:t:s'),
    ];
    // Both count from the first release, at the time at which the second one is sent.
    expect(left).toBeGreaterThan(LINGER_MS);
    expect(left).toBeLessThanOrEqual(LINGER_MS + minHold - (now - sent) + TRANSIT);
    expect(remembered).toBeGreaterThan(0);
    expect(remembered).toBeLessThanOrEqual(life - (now - released) + TRANSIT);
    await store.close();
  });

  test('for the text of a script that the server had forgotten', async () => {
    const failures = await failuresOf({
      'NOSCRIPT, then the text': async (key) => {
        const way = await wayTo(own);
        const { proxy, store } = way;
        const begun = performance.now();
        await warmUp(way, EXCLUSIVE, key);
        const refusals = async (): Promise<string | undefined> =>
          /errorstat_NOSCRIPT:count=(\d+)/.exec(await looker.info('errorstats'))?.[1];
        const before = await refusals();
        await looker.script('FLUSH');
        const lease = leaseOn(key, EXCLUSIVE);
        // The proxy keeps the answer until it holds requests, so that it holds the text and not the hash.
        proxy.delayReplies(60_000);
        const acquiring = acquireOn(store, lease, { limit: LIMIT }).catch(() => undefined);
        await until(async () => (await refusals()) !== before);
        proxy.holdRequests();
        proxy.delayReplies(0);
        await until(() => proxy.holdsRequestWith(lease.id));
        proxy.cutWithLateRequests();
        await acquiring;
        return outcome(way, lease, begun);
      },
    });
    expect(failures).toEqual({});
  });

  test('for a master that Sentinels watch', async () => {
    const throughSentinel = async (
      proxy: TcpProxy,
      open: (sentinel: { host: string; port: number }) => RedisStore | Promise<RedisStore>,
    ): Promise<RedisStore> => {
      const port = await startSentinel(proxy, 'locks');
      return open({ host: proxy.host, port });
    };
    const failures = await failuresOf({
      'own connection': late(
        (proxy) =>
          throughSentinel(
            proxy,
            (sentinel) =>
              new RedisStore(openClient({ sentinels: [sentinel], name: 'locks' }), true, newFleet()),
          ),
        EXCLUSIVE,
      ),
      'node-redis': late(
        (proxy) =>
          throughSentinel(proxy, (sentinel) =>
            over(() => nodeRedisSentinel({ name: 'locks', sentinelRootNodes: [sentinel] }))(proxy),
          ),
        EXCLUSIVE,
      ),
    });
    expect(failures).toEqual({});
  });
});

describe('a lock of a Cluster does not stay stored by an acquire that arrives after its confirmed release', () => {
  /** Starts a Cluster whose first master is reached through a proxy, and finds a key of that master. */
  async function cluster(
    connect: (addresses: { host: string; port: number }[]) => RedisClient | Promise<RedisClient>,
  ): Promise<Outcome> {
    const servers = await startMasters([], [], []);
    const [server, ...others] = servers as [RedisServer, ...RedisServer[]];
    const looker = server.client();
    const proxy = await startTcpProxy(server);
    await looker.config('SET', 'cluster-announce-bus-port', server.port + 10_000);
    await looker.config('SET', 'cluster-announce-port', proxy.port);
    for (const other of servers.map((each) => each.client()))
      await until(async () => JSON.stringify(await other.call('CLUSTER', 'SLOTS')).includes(`${proxy.port}`));
    let key = 'k';
    while (((await looker.call('CLUSTER', 'KEYSLOT', key)) as number) >= 5_000) key += 'k';
    const opened = over(() => connect(others.map(({ host, port }) => ({ host, port }))));
    return deliverAfterRelease({ proxy, looker, store: await opened(proxy) }, EXCLUSIVE, key);
  }

  test('for each client', async () => {
    const failures = await failuresOf({
      'ioredis 5': () => cluster((nodes) => quiet(new Cluster(nodes))),
      'ioredis 6': () => cluster((nodes) => quiet(new Cluster6(nodes) as unknown as Cluster)),
      iovalkey: () => cluster((nodes) => quiet(new ValkeyCluster(nodes) as unknown as Cluster)),
      'node-redis': () =>
        cluster((nodes) => nodeRedisCluster({ rootNodes: nodes.map((socket) => ({ socket })) })),
      'Valkey GLIDE': () => cluster(glideCluster),
    });
    expect(failures).toEqual({});
  });
});
