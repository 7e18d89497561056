import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Redis, RedisOptions } from 'ioredis';
import { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { recordKey } from '../../../lib/stores/redis/lock-key.js';
import { LockInspector } from '../../../lib/redlock/inspect/lock-inspector.js';
import type { LockInfo } from '../../../lib/core/lock-info.js';
import { Lease } from '../../../lib/core/lease.js';
import { EXCLUSIVE, SHARED } from '../../../lib/core/lock-mode.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { AcquireTerms } from '../../../lib/redlock/redlock.js';
import { newFleet, nodesTo, recordOf, redlockOver } from '../../support/core.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { PATIENT } from '../../support/patience.js';
import { type RedisServer, startRedis, startRedisNodes } from '../../support/redis-server.js';
import { until } from '../../support/until.js';
import { READ } from '../../../lib/stores/redis/scripts/read.js';
import { parseRecord } from '../../../lib/stores/redis/record.js';

const once: AcquireTerms = { ttl: 60_000, retry: NO_RETRY, renew: false, signals: [] };

let server: RedisServer;
let looker: Redis;

beforeAll(async () => {
  server = await startRedis();
  looker = server.client();
});
afterAll(() => server.stop());
beforeEach(() => looker.flushall());

let nodes: RedisStore[] = [];
afterEach(async () => {
  await Promise.all(nodes.map((node) => node.close()));
  nodes = [];
});

/** An inspector over stores of these clients. */
async function over(...clients: readonly Redis[]): Promise<LockInspector> {
  const fleet = newFleet();
  nodes = clients.map((client) => new RedisStore(client, false, fleet));
  return overNodes();
}

async function overNodes(nodeTimeout: number = PATIENT.nodeTimeout): Promise<LockInspector> {
  await Promise.all(nodes.map((node) => node.connect().catch(() => undefined)));
  return new LockInspector(nodes, { nodeTimeout }, new Set());
}

async function listed(inspection: LockInspector, prefix = ''): Promise<LockInfo[]> {
  const infos: LockInfo[] = [];
  for await (const info of inspection.list({ prefix })) infos.push(info);
  return infos;
}

/** Number of times that the server has run a command since the last `CONFIG RESETSTAT`. */
async function calls(client: Redis, command: string): Promise<number> {
  const stats = await client.info('commandstats');
  return Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
}

test('`list` finds 10,000 locks among as many other keys with few SCAN commands', async () => {
  const id = (index: number): string => index.toString(16).padStart(32, '0');
  const fill = looker.pipeline();
  for (let index = 0; index < 10_000; index++) {
    fill.set(recordKey('lock:', `order:${index}`), recordOf('host:1', id(index)), 'PX', 600_000);
    fill.set(`other:${index}`, 'x');
  }
  await fill.exec();
  const inspection = await over(server.client());
  await looker.config('RESETSTAT');
  const infos = await listed(inspection);
  const found = new Map(infos.map((info) => [info.key, info.id]));
  // A SCAN may return a key twice when a write resizes the table of keys. Nothing writes here.
  expect(infos).toHaveLength(10_000);
  for (let index = 0; index < 10_000; index++) expect(found.get(`order:${index}`)).toBe(id(index));
  await expect(calls(looker, 'keys')).resolves.toBe(0);
  expect(await calls(looker, 'scan')).toBeLessThan(60);
  expect(await calls(looker, 'evalsha')).toBeLessThan(60);
});

describe('a lock with many readers', () => {
  const TTL = 600_000;

  function reader(ttl = TTL): Lease {
    return new Lease(['k'], 'me', ttl, undefined, SHARED);
  }

  async function acquireAll(store: RedisStore, leases: readonly Lease[]): Promise<void> {
    const terms = { since: Date.now(), limit: 10_000, guard: 0, proposal: 0, position: undefined };
    const requests = leases.map((lease) => ({ ...terms, lease }));
    await new Promise<void>((resolve, reject) => {
      let missing = leases.length;
      store.acquire(requests, false, (_, reply) => {
        if (reply instanceof Error || !reply.granted) reject(new Error('not granted', { cause: reply }));
        else if (--missing === 0) resolve();
      });
    });
  }

  /**
   * Opens two stores on one server: the test reads locks through `node`. After each page of holders that `node` has
   * read, `afterPage` can acquire and release locks through `other`.
   */
  async function nodeAndOther(
    afterPage: (other: RedisStore, page: number, ids: readonly string[]) => Promise<void>,
  ) {
    const client = server.client();
    const evalsha = client.evalsha.bind(client) as (sha: string, ...rest: unknown[]) => Promise<unknown>;
    let page = 0;
    const inspection = await over(client);
    const [node] = nodes as [RedisStore];
    const other = new RedisStore(server.client(), false, newFleet());
    await other.connect();
    nodes = [node, other];
    client.evalsha = (async (sha: string, ...rest: unknown[]) => {
      const reply = await evalsha(sha, ...rest);
      if (sha !== READ.sha) return reply;
      const [told] = reply as string[][];
      await afterPage(
        other,
        page++,
        told!.slice(3).filter((_, index) => index % 3 === 0),
      );
      return reply;
    }) as typeof client.evalsha;
    return { node, other, inspection };
  }

  async function idsAt(node: RedisStore): Promise<string[]> {
    const [state] = await node.read(['k']);
    if (!state || state instanceof Error) throw new Error('not held', { cause: state });
    return state.holders.map(({ id }) => id);
  }

  test('each of 10,000 readers of a key is shown once, and one command returns about 1,000 readers', async () => {
    const { node, inspection } = await nodeAndOther(() => Promise.resolve());
    const leases = Array.from({ length: 10_000 }, () => reader());
    for (let at = 0; at < leases.length; at += 500) await acquireAll(node, leases.slice(at, at + 500));
    for (const look of [() => inspection.inspect('k'), async () => (await listed(inspection))[0]!]) {
      await looker.config('RESETSTAT');
      const { holders } = await look();
      expect(holders.map(({ id }) => id).toSorted()).toEqual(leases.map(({ id }) => id).toSorted());
      expect(await calls(looker, 'evalsha')).toBeGreaterThanOrEqual(10);
      expect(await calls(looker, 'evalsha')).toBeLessThan(15);
    }
  });

  test('each reader that stays is shown exactly once while other readers acquire, release and renew', async () => {
    const staying = Array.from({ length: 3_000 }, () => reader());
    const leaving = Array.from({ length: 1_000 }, () => reader());
    const coming: Lease[] = [];
    const byId = new Map(staying.map((lease) => [lease.id, lease]));
    /** Ids of the readers on each page, recorded while no reader starts or ends. */
    const order: (readonly string[])[] = [];
    let [isCalm, pages] = [true, 0];
    const { node, other } = await nodeAndOther(async (others, _page, told) => {
      if (isCalm) {
        order.push(told);
        return;
      }
      const page = pages++;
      for (const lease of leaving.splice(0, 50)) await releaseOn(others, lease);
      // The lock of each of these readers expires later than the locks of all readers before it.
      for (let each = 0; each < 20; each++) {
        const more = TTL + 10_000 * (page + 1) + 100 * each;
        await extendOn(others, staying[(page * 20 + each) * 7]!, more);
        coming.push(reader(more + 50));
        await acquireOn(others, coming.at(-1)!);
      }
      // The record has the reader whose lease ends last, and a sorted set has the other readers. This extension moves a
      // reader of the next page from the set into the record before that page is read. Extensions of other readers move
      // that reader back into the set.
      const next = order[page + 1]?.find((id) => byId.has(id));
      if (next !== undefined) await extendOn(others, byId.get(next)!, TTL + 10_000 * (page + 2));
    });
    const all = [...staying, ...leaving];
    for (let at = 0; at < all.length; at += 500) await acquireAll(other, all.slice(at, at + 500));
    const mayBe = new Set(leaving.map(({ id }) => id));
    await idsAt(node);
    isCalm = false;
    const found = await idsAt(node);
    expect(pages).toBeGreaterThan(3);
    const ids = new Set(found);
    expect(found).toHaveLength(ids.size);
    expect(staying.filter(({ id }) => !ids.has(id))).toEqual([]);
    for (const { id } of [...staying, ...coming]) mayBe.add(id);
    expect(found.filter((id) => !mayBe.has(id))).toEqual([]);
  });

  test('only the writer is shown when, during the read of many holders, all readers release and a writer acquires', async () => {
    const leases = Array.from({ length: 1_500 }, () => reader());
    const writer = new Lease(['k'], 'me', TTL);
    const { node, other } = await nodeAndOther(async (others, page) => {
      if (page > 0) return;
      await Promise.all(leases.map((lease) => releaseOn(others, lease)));
      await acquireOn(others, writer);
    });
    await acquireAll(other, leases);
    await expect(idsAt(node)).resolves.toEqual([writer.id]);
  });

  test('each lock is shown with its own readers when one command reads several locks', async () => {
    const { node } = await nodeAndOther(() => Promise.resolve());
    const keys = ['free', 'k1', 'k2', 'written', 'k3', 'k4'];
    const leases = keys.map((key) => {
      const count = key.startsWith('k') ? 700 : key === 'written' ? 1 : 0;
      const kind = key === 'written' ? EXCLUSIVE : SHARED;
      return Array.from({ length: count }, () => new Lease([key], 'me', TTL, undefined, kind));
    });
    for (const some of leases) if (some.length > 0) await acquireAll(node, some);
    const states = await node.read(keys);
    const ids = states.map((state) =>
      state && 'holders' in state ? state.holders.map(({ id }) => id).toSorted() : [],
    );
    expect(ids).toEqual(leases.map((some) => some.map(({ id }) => id).toSorted()));
  });
});

describe('a client with a keyPrefix', () => {
  test.each(['app:', 'a*[b]?\\', 'lock:'])(
    'a client with the keyPrefix %p can inspect, list and force the release of locks under that prefix',
    async (keyPrefix) => {
      const client = server.client({ keyPrefix });
      const inspection = await over(client);
      const lock = await redlockOver(nodes, PATIENT).acquire(['mine'], once);
      await looker.set('lock:{without prefix}', recordOf('somebody'));
      await expect(looker.exists(`${keyPrefix}lock:{mine}`)).resolves.toBe(1);
      expect((await listed(inspection)).map(({ key, id }) => [key, id])).toEqual([['mine', lock.id]]);
      await expect(inspection.inspect('mine')).resolves.toMatchObject({ held: true, id: lock.id });
      await expect(inspection.forceRelease('mine')).resolves.toBe(true);
      await expect(inspection.inspect('mine')).resolves.toMatchObject({ held: false });
    },
  );
});

test('`inspect` and `forceRelease` work with a client that returns numbers as strings', async () => {
  const stringNumbers: RedisOptions = { stringNumbers: true };
  const inspection = await over(server.client(stringNumbers));
  const lock = await redlockOver(nodes, PATIENT).acquire(['k'], once);
  const info = await inspection.inspect('k');
  expect(info.fencingToken).toBe(lock.fencingToken);
  expect(info.remaining).toBeGreaterThan(50_000);
  await expect(inspection.forceRelease('k')).resolves.toBe(true);
});

test('`inspect` and `forceRelease` fail on a value that is not a lock, and keep that value (S19)', async () => {
  const inspection = await over(server.client());
  await looker.set('lock:{k}', 'somebody', 'PX', 60_000);
  await expect(inspection.inspect('k')).rejects.toThrow(
    'the key has a value that is not a lock of this package',
  );
  await expect(inspection.forceRelease('k')).rejects.toThrow('not a lock');
  expect(await listed(inspection)).toEqual([]);
  await expect(looker.get('lock:{k}')).resolves.toBe('somebody');
});

test('`inspect` and `forceRelease` fail on a key of another type, and `list` leaves out that key (S19)', async () => {
  const inspection = await over(server.client());
  await looker.rpush('lock:{list}', 'not a lock');
  await redlockOver(nodes, PATIENT).acquire(['k'], once);
  await expect(inspection.inspect('list')).rejects.toThrow(/^Could not inspect "list": .*WRONGTYPE/);
  await expect(inspection.forceRelease('list')).rejects.toThrow('WRONGTYPE');
  await expect(looker.exists('lock:{list}')).resolves.toBe(1);
  expect((await listed(inspection)).map(({ key }) => key)).toEqual(['k']);
});

test('`inspect`, `list` and `forceRelease` work after SCRIPT FLUSH', async () => {
  const inspection = await over(server.client());
  await redlockOver(nodes, PATIENT).acquire(['k'], once);
  await looker.script('FLUSH');
  await expect(inspection.inspect('k')).resolves.toMatchObject({ held: true });
  await looker.script('FLUSH');
  expect(await listed(inspection)).toHaveLength(1);
  await looker.script('FLUSH');
  await expect(inspection.forceRelease('k')).resolves.toBe(true);
});

test('a forced release keeps the last fencing token of the key', async () => {
  const inspection = await over(server.client());
  const { fencingToken } = await redlockOver(nodes, PATIENT).acquire(['k'], once);
  await inspection.forceRelease('k');
  expect(parseRecord((await looker.get('lock:{k}'))!)).toMatchObject({ fencingToken });
});

test('a server that hangs gives no answer to an inspection, and gets no more requests', async () => {
  const hanging = await startRedis();
  nodes = nodesTo([hanging.url]);
  const inspection = await overNodes(2_000);
  const ownLooker = hanging.client();
  await ownLooker.config('RESETSTAT');
  hanging.pause();
  await expect(inspection.inspect('k')).rejects.toThrow('no answer within 2000 ms');
  // The store knows by now that the server hangs, and asks nothing more. After five seconds the store ends the connection.
  await expect(listed(inspection)).rejects.toThrow(/has not answered for a while|not connected/);
  hanging.resume();
  // The server now runs all commands that it received while it hung.
  await until(async () => (await calls(ownLooker, 'evalsha')) > 0);
  await expect(calls(ownLooker, 'scan')).resolves.toBe(0);
  await hanging.stop();
});

test('`inspect`, `forceRelease` and `list` reject when two of three nodes are killed, and the error names both nodes', async () => {
  const servers = await startRedisNodes(3);
  nodes = nodesTo(servers.map(({ url }) => url));
  const inspection = await overNodes();
  const lock = await redlockOver(nodes, PATIENT).acquire(['k'], once);
  await servers[0]!.kill();
  await expect(inspection.inspect('k')).resolves.toMatchObject({ held: true, id: lock.id });
  expect(await listed(inspection)).toMatchObject([{ key: 'k', held: true }]);
  await servers[1]!.kill();
  const dead = new RegExp(
    `2 of 3 nodes must answer, and 2 did not; 127.0.0.1:${servers[0]!.port}: .*; 127.0.0.1:${servers[1]!.port}: `,
  );
  for (const attempt of [inspection.inspect('k'), inspection.forceRelease('k'), listed(inspection)]) {
    await expect(attempt).rejects.toThrow(dead);
  }
  await Promise.all(servers.map((each) => each.stop()));
});
