import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Cluster, type Redis } from 'ioredis';
import { Cluster as Cluster6 } from 'ioredis-6';
import { setTimeout as delay } from 'node:timers/promises';
import type { LockInfo } from '../../lib/core/lock-info.js';
import { EXCLUSIVE, type LockKind, SHARED } from '../../lib/core/lock-mode.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import type { HeldLock } from '../../lib/redlock/held-lock.js';
import { LockInspector } from '../../lib/redlock/inspect/lock-inspector.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import { STATE } from '../../lib/stores/redis/record.js';
import type { RedisStore } from '../../lib/stores/redis/redis-store.js';
import { nodeRedisCluster, storeOver } from '../support/clients.js';
import { newFleet, redlockOver } from '../support/core.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { PATIENT } from '../support/patience.js';
import { addReplica, startMasters } from '../support/redis-cluster.js';
import type { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

// These tests use locks that several clients can hold, on a real Cluster. All keys and channels of a lock are in one slot.

const TTL = 60_000;

const once: AcquireTerms = { ttl: TTL, retry: NO_RETRY, renew: false, signals: [] };

/** Interval of polling, in milliseconds: a waiter that gets the lock much sooner has got a message. */
const POLL_MS = 20_000;

let masters: RedisServer[];
let replica: RedisServer;
/** Clients of the three masters and of the replica. */
let lookers: Redis[];
/** One key in a slot of each master. */
let keys: string[];
let all: Process[];
let nodeRedis: ReturnType<typeof nodeRedisCluster>;
let over = new AbortController();

/** Locks over a client of their own, which the servers see as another process. */
interface Process {
  readonly redlock: Redlock;
  readonly store: RedisStore;
  /** For each message that gave a waiter its turn, the key of that waiter. */
  readonly turns: string[];
}

function permits(count: number): LockKind {
  return { mode: 'permits', permits: count };
}

/** Makes a client of ioredis 5, a client of ioredis 6 and a client of node-redis. */
function clients() {
  const nodes = masters.map(({ host, port }) => ({ host, port }));
  const five = new Cluster(nodes);
  const six = new Cluster6(nodes) as unknown as Cluster;
  for (const client of [five, six]) cleanUpAfterTests(async () => client.disconnect());
  nodeRedis = nodeRedisCluster({ rootNodes: masters.map(({ url }) => ({ url })) });
  return [five, six, nodeRedis];
}

beforeAll(async () => {
  masters = await startMasters([], [], []);
  replica = await addReplica(masters, masters[0]!);
  lookers = [...masters, replica].map((server) => server.client());
  await lookers[3]!.readonly();
  keys = [];
  for (let count = 0; keys.filter((key) => key).length < 3; count++) {
    const slot = (await lookers[0]!.call('CLUSTER', 'KEYSLOT', `lock:{${count}}`)) as number;
    keys[Math.floor(slot / Math.ceil(16_384 / 3))] ??= String(count);
  }
  const stores = clients().map((client) => storeOver(client, newFleet()));
  await Promise.all(stores.map((store) => store.connect()));
  all = stores.map((store, index) => {
    const turns: string[] = [];
    const listen = store.listen.bind(store);
    store.listen = (waiter, onMessage) =>
      listen(waiter, (after, turn, released) => {
        if (turn && released !== undefined) turns.push(waiter.keys[0]!);
        onMessage(after, turn, released);
      });
    return { redlock: redlockOver([store], { ...PATIENT, owner: `process ${index}` }), store, turns };
  });
});
afterAll(async () => {
  await Promise.all(all.map(({ redlock }) => redlock.close()));
});
beforeEach(() => {
  over = new AbortController();
});
// Ends the waits of a failed test.
afterEach(() => over.abort(new Error('the test is over')));

function acquire({ redlock }: Process, key: string | readonly string[], kind: LockKind): Promise<HeldLock> {
  return redlock.acquire(typeof key === 'string' ? [key] : key, { ...once, kind });
}

async function expectRefused(process: Process, key: string, kind: LockKind): Promise<void> {
  await expect(acquire(process, key, kind)).rejects.toMatchObject({ code: 'LOCK_HELD' });
}

function wait({ redlock }: Process, key: string, kind: LockKind, poll = POLL_MS): Promise<HeldLock> {
  const retry = { timeout: TTL, attempts: Infinity, delay: poll, jitter: 0 };
  const lock = redlock.acquire([key], { ...once, retry, kind, signals: [over.signal] });
  lock.catch(() => undefined);
  return lock;
}

function inspect(key: string): Promise<LockInfo> {
  return new LockInspector([all[0]!.store], PATIENT, new Set()).inspect(key);
}

/** Counts the waiters of a key. */
async function inLine(key: string): Promise<number> {
  return (lookers[keys.indexOf(key)] as Redis).zcount(`lock:{${key}}:q`, 0, 1e13);
}

/** Resolves when the servers have only free records, which expire. */
async function nothingLeft(...servers: readonly Redis[]): Promise<void> {
  for (const looker of servers) {
    const left = async (): Promise<string[]> => {
      const names = await looker.keys('*');
      const records = await Promise.all(names.map((name) => (name.endsWith('}') ? looker.get(name) : name)));
      return records.filter((record) => record !== null && !record.startsWith(STATE.free)) as string[];
    };
    await until(async () => (await left()).length === 0);
  }
}

test('every master of a Cluster lets readers share a lock and excludes writers', async () => {
  for (const key of keys) {
    const readers = await Promise.all(all.map((process) => acquire(process, key, SHARED)));
    expect(await inspect(key)).toMatchObject({ mode: 'shared', holders: { length: 3 } });
    for (const process of all)
      for (const kind of [EXCLUSIVE, permits(3)]) await expectRefused(process, key, kind);
    await Promise.all(readers.map((reader) => reader.extend()));
    expect(readers.map((reader) => reader.isHeld())).toEqual([true, true, true]);
    await Promise.all(readers.slice(1).map((reader) => reader.release()));
    await expectRefused(all[0]!, key, EXCLUSIVE);
    await readers[0]!.release();
    const writer = await acquire(all[1]!, key, EXCLUSIVE);
    expect(writer.fencingToken).toBeGreaterThan(Math.max(...readers.map(({ fencingToken }) => fencingToken)));
    for (const process of all) await expectRefused(process, key, SHARED);
    await writer.release();
  }
  await nothingLeft(...lookers);
});

test('every master of a Cluster grants three permits of a key in three different slots, and refuses a fourth', async () => {
  for (const key of keys) {
    const held = await Promise.all(all.map((process) => acquire(process, key, permits(3))));
    expect(held.map(({ slot }) => slot).toSorted()).toEqual([0, 1, 2]);
    expect(await inspect(key)).toMatchObject({ mode: 'permits', permits: 3, holders: { length: 3 } });
    for (const process of all) {
      await expect(acquire(process, key, permits(3))).rejects.toMatchObject({ holders: { length: 3 } });
      for (const kind of [EXCLUSIVE, SHARED]) await expectRefused(process, key, kind);
    }
    await Promise.all(held.map((lock) => lock.extend()));
    const [first] = held as [HeldLock];
    await first.release();
    const next = await acquire(all[2]!, key, permits(3));
    expect(next.slot).toBe(first.slot);
    expect(next.fencingToken).toBeGreaterThan(first.fencingToken);
    await Promise.all([next, ...held.slice(1)].map((lock) => lock.release()));
  }
  await nothingLeft(...lookers);
});

test('a Cluster grants permits or a shared lock on several keys only if the keys have a common hash tag', async () => {
  const two = await acquire(all[0]!, ['{tenant}:1', '{tenant}:2'], permits(1));
  await expectRefused(all[1]!, '{tenant}:2', permits(1));
  await expectRefused(all[2]!, '{tenant}:1', SHARED);
  await two.release();
  for (const kind of [SHARED, permits(2)])
    expect(() => acquire(all[2]!, keys, kind)).toThrow('give them a common hash tag');
  await nothingLeft(...lookers);
});

describe('every master of a Cluster', () => {
  test.each<[string, LockKind, LockKind, number]>([
    ['readers that wait for a writer', EXCLUSIVE, SHARED, 1],
    ['a writer that waits for readers', SHARED, EXCLUSIVE, 2],
    ['a caller that waits for a permit', permits(2), permits(2), 2],
    ['a reader that waits for permits', permits(2), SHARED, 2],
  ])('every master of a Cluster wakes %s by a message', async (_what, holding, waiting, holders) => {
    for (const key of keys) {
      const held = await Promise.all(all.slice(0, holders).map((process) => acquire(process, key, holding)));
      const behind = all.slice(holders);
      for (const { turns } of all) turns.length = 0;
      const locks = behind.map((process) => wait(process, key, waiting));
      await until(async () => (await inLine(key)) === behind.length);
      await Promise.all(held.map((lock) => lock.release()));
      await Promise.all(locks);
      // Without messages the waiters would also get the lock, later, by polling.
      for (const { turns } of behind) expect(turns).toContain(key);
      await Promise.all(locks.map(async (lock) => (await lock).release()));
    }
    await nothingLeft(...lookers);
  });
});

test('a Cluster keeps renewed readers and permits beyond their ttl, and drops readers and permits without renewal', async () => {
  // With this ttl a stall of three seconds delays a renewal, but does not end the lock.
  const ttl = 5_000;
  const short = { ...once, ttl };
  const [reading, limited] = keys as [string, string];
  const kept = await Promise.all(
    [SHARED, permits(2)].map((kind, index) =>
      all[index]!.redlock.acquire([keys[index]!], { ...short, renew: true, kind }),
    ),
  );
  await Promise.all([
    all[2]!.redlock.acquire([reading], { ...short, kind: SHARED }),
    all[2]!.redlock.acquire([limited], { ...short, kind: permits(2) }),
  ]);
  await delay(ttl + 200);
  const infos = await Promise.all([reading, limited].map(inspect));
  expect(infos.map(({ holders }) => holders.map(({ id }) => id))).toEqual(kept.map(({ id }) => [id]));
  await (await acquire(all[2]!, limited, permits(2))).release();
  await Promise.all(kept.map((lock) => lock.release()));
  await nothingLeft(...lookers);
});

test('a Cluster keeps readers and permits when a master dies, and the replica of that master serves the waiters', async () => {
  const [read, limited] = [keys[0]!, `{${keys[0]!}}:permits`];
  const readers = await Promise.all(all.map((process) => acquire(process, read, SHARED)));
  const held = await Promise.all([0, 1].map((index) => acquire(all[index]!, limited, permits(2))));
  const writer = wait(all[1]!, read, EXCLUSIVE, 200);
  const third = wait(all[2]!, limited, permits(2), 200);
  await until(async () => (await inLine(read)) === 1);
  await expect(lookers[0]!.wait(1, 10_000)).resolves.toBe(1);
  await masters[0]!.kill();
  // TAKEOVER makes the replica a master at once, without an election by the other masters.
  await lookers[3]!.call('CLUSTER', 'FAILOVER', 'TAKEOVER');
  const [, two, three] = all as [Process, Process, Process];
  for (const { redlock } of all) {
    const other = { ...once, kind: permits(1) };
    const succeeds = (): Promise<boolean> =>
      redlock.acquire([`{${read}}:other`], other).then(
        (lock) => lock.release().then(() => true),
        () => false,
      );
    await until(succeeds, TTL);
  }
  for (const lock of [...readers, ...held]) await lock.extend();
  expect([...readers, ...held].every((lock) => lock.isHeld())).toBe(true);
  await expectRefused(three, read, EXCLUSIVE);
  await expectRefused(two, limited, permits(2));
  expect((await inspect(read)).holders).toHaveLength(3);
  await held[0]!.release();
  const granted = await third;
  expect(granted.slot).toBe(held[0]!.slot);
  expect(granted.fencingToken).toBeGreaterThan(held[0]!.fencingToken);
  await Promise.all(readers.map((reader) => reader.release()));
  const last = await writer;
  expect(last.fencingToken).toBeGreaterThan(Math.max(...readers.map(({ fencingToken }) => fencingToken)));
  await Promise.all([last, granted, held[1]!].map((lock) => lock.release()));
  await nothingLeft(...lookers.slice(1));
  // Waiters have asked for connections to the dead master. The client must not still try to open them.
  let attempts = 0;
  nodeRedis.on('node-error', () => attempts++);
  nodeRedis.destroy();
  await delay(500);
  expect(attempts).toBe(0);
});
