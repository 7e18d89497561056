import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { Cluster, type Redis } from 'ioredis';
import { Cluster as Cluster6 } from 'ioredis-6';
import { Cluster as ValkeyCluster } from 'iovalkey';
import { SHARED } from '../../../lib/core/lock-mode.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { HeldLock } from '../../../lib/redlock/held-lock.js';
import type { AcquireTerms, Redlock } from '../../../lib/redlock/redlock.js';
import { driverFor, type RedisClient } from '../../../lib/stores/redis/driver-for.js';
import { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { glideCluster, nodeRedisCluster } from '../../support/clients.js';
import { countLocks, newFleet, redlockOver } from '../../support/core.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { PATIENT } from '../../support/patience.js';
import { beginSlotMove, endSlotMove, startMasters } from '../../support/redis-cluster.js';
import type { RedisServer } from '../../support/redis-server.js';
import { undisturbed } from '../../support/undisturbed.js';
import { until } from '../../support/until.js';

// While a hash slot moves, a command on several of its keys needs all of them on one server. Otherwise the server
// answers TRYAGAIN. A command on one key always works.

const once: AcquireTerms = { ttl: 60_000, retry: NO_RETRY, renew: false, signals: [] };
const patient: AcquireTerms = {
  ...once,
  retry: { timeout: 60_000, attempts: Infinity, delay: 50, jitter: 0 },
};

/** Milliseconds. Without a message, a waiter in the queue sleeps five seconds or more. */
const BY_MESSAGE_MS = 4_000;

let from: RedisServer;
let to: RedisServer;
let source: Redis;
let target: Redis;

beforeEach(async () => {
  [from, to] = (await startMasters([], [])) as [RedisServer, RedisServer];
  [source, target] = [from.client(), to.client()];
});
afterEach(() => Promise.all([from.stop(), to.stop()]));

const recordOf = (key: string): string => `lock:{${key}}`;

/** A key of the first server, which has the first half of the slots. Further keys of the slot begin with it. */
async function keyOfSource(): Promise<string> {
  for (let number = 0; ; number++) {
    const key = `{k${number}}`;
    if (Number(await source.call('CLUSTER', 'KEYSLOT', recordOf(key))) < 8_192) return key;
  }
}

/** Keys of one slot of the first server, one for each repetition of a step. */
async function keysOfSource(): Promise<string[]> {
  const key = await keyOfSource();
  return Array.from({ length: 5 }, (_, index) => `${key}:${index}`);
}

const beginMove = (key: string): Promise<void> => beginSlotMove(from, to, recordOf(key));
const endMove = (key: string): Promise<void> => endSlotMove(from, to, recordOf(key));
const moveRecord = (key: string): Promise<unknown> =>
  source.call('MIGRATE', to.host, to.port, recordOf(key), 0, 5_000);

type ClientOf = (server: RedisServer) => RedisClient | Promise<RedisClient>;

/** The client itself would repeat a command after TRYAGAIN, the first time after this delay. */
const NEVER_AGAIN = { retryDelayOnTryAgain: 600_000 } as const;

function closedLater(client: Cluster | Cluster6 | ValkeyCluster): RedisClient {
  client.on('error', () => undefined);
  cleanUpAfterTests(async () => void client.disconnect());
  return client;
}

const CLIENTS: Readonly<Record<string, ClientOf>> = {
  'ioredis 5': (server) => closedLater(new Cluster([server], NEVER_AGAIN)),
  'ioredis 6': (server) => closedLater(new Cluster6([server], NEVER_AGAIN)),
  'ioredis 5 with enableAutoPipelining': (server) =>
    closedLater(new Cluster([server], { ...NEVER_AGAIN, enableAutoPipelining: true })),
  iovalkey: (server) => closedLater(new ValkeyCluster([server], NEVER_AGAIN)),
  'node-redis': ({ url }) => nodeRedisCluster({ rootNodes: [{ url }] }),
  'Valkey GLIDE': (server) => glideCluster([server]),
};

async function locksOver(clientOf: ClientOf = CLIENTS['ioredis 5'] as ClientOf): Promise<Redlock> {
  const node = new RedisStore(driverFor(await clientOf(from)), false, newFleet());
  await node.connect();
  return redlockOver([node], PATIENT);
}

test.each(Object.entries(CLIENTS))(
  'an exclusive lock is renewed, released and acquired again while its slot moves, with a client of %s',
  async (_, clientOf) => {
    const redlock = await locksOver(clientOf);
    const key = await keyOfSource();
    const held = await redlock.acquire([key], once);
    await beginMove(key);
    await held.extend();
    await held.release();

    const again = await redlock.acquire([key], once);
    await expect(redlock.acquire([key], once)).rejects.toMatchObject({ code: 'LOCK_HELD' });
    expect(again.fencingToken).toBeGreaterThan(held.fencingToken);
    await moveRecord(key);
    await again.extend();
    await again.release();

    const fresh = `${key}:fresh`;
    await (await redlock.acquire([fresh], once)).release();
    await (await redlock.acquire([fresh], once)).release();
    await endMove(key);
    await (await redlock.acquire([key], once)).release();
    await expect(countLocks(target)).resolves.toBe(0);
  },
);

test('a waiter gets the lock soon after its release while the slot moves, although it waited in the queue before', async () => {
  const [redlock, other] = [await locksOver(), await locksOver()];
  const keys = await keysOfSource();
  const ended = new AbortController();
  const all: { readonly key: string; readonly held: HeldLock; readonly waiting: Promise<HeldLock> }[] = [];
  for (const key of keys) {
    const held = await redlock.acquire([key], once);
    all.push({ key, held, waiting: other.acquire([key], { ...patient, signals: [ended.signal] }) });
    all.at(-1)!.waiting.catch(() => undefined);
    await until(async () => (await source.exists(`${recordOf(key)}:q`)) === 1);
  }
  await beginMove(keys[0]!);
  const handOver = async (index: number): Promise<number> => {
    const { key, held, waiting } = all[index]!;
    await moveRecord(key);
    const begun = performance.now();
    await held.release();
    await (await waiting).release();
    return performance.now() - begun;
  };
  expect(await undisturbed(BY_MESSAGE_MS, handOver, () => source.ping())).toBeLessThan(BY_MESSAGE_MS);
  ended.abort();
});

test('a waiter that comes while the slot moves gets the lock soon after its release', async () => {
  const [redlock, other] = [await locksOver(), await locksOver()];
  const keys = await keysOfSource();
  const all = await Promise.all(keys.map((key) => redlock.acquire([key], once)));
  await beginMove(keys[0]!);
  const handOver = async (index: number): Promise<number> => {
    const key = keys[index]!;
    const refused = other.acquire([key], { ...once, retry: NO_RETRY });
    await expect(refused).rejects.toMatchObject({ code: 'LOCK_HELD' });
    const waiting = other.acquire([key], patient);
    const begun = performance.now();
    await all[index]!.release();
    await (await waiting).release();
    return performance.now() - begun;
  };
  expect(await undisturbed(BY_MESSAGE_MS, handOver, () => source.ping())).toBeLessThan(BY_MESSAGE_MS);
});

test('a lock of several keys is released and acquired again while their slot moves, as long as no record has moved', async () => {
  const redlock = await locksOver();
  const key = await keyOfSource();
  const keys = [`${key}:1`, `${key}:2`];
  const held = await redlock.acquire(keys, once);
  await beginMove(key);
  await held.release();
  const again = await redlock.acquire(keys, once);
  expect(again.fencingToken).toBeGreaterThan(held.fencingToken);
  await again.release();
});

test('a lock that a moving slot makes impossible is refused at once, and the error says why', async () => {
  const redlock = await locksOver();
  const key = await keyOfSource();
  await beginMove(key);
  for (const [keys, options] of [
    [[`${key}:1`, `${key}:2`], once],
    [[key], { ...once, kind: SHARED }],
    [[key], { ...once, kind: { mode: 'permits', permits: 2 } }],
  ] as const) {
    await expect(redlock.acquire(keys, options)).rejects.toThrow(
      /TRYAGAIN the Cluster moves the hash slot .* wait until the move has ended/,
    );
  }
  await endMove(key);
  await (await redlock.acquire([key], once)).release();
});
