import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Redis, RedisOptions } from 'ioredis';
import { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { recordKey } from '../../../lib/stores/redis/lock-key.js';
import { LockInspector } from '../../../lib/redlock/inspect/lock-inspector.js';
import type { LockInfo } from '../../../lib/core/lock-info.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { AcquireOptions } from '../../../lib/redlock/redlock.js';
import { newFleet, nodesTo, recordOf, redlockOver } from '../../support/core.js';
import { type RedisServer, startRedis, startRedisNodes } from '../../support/redis-server.js';
import { until } from '../../support/until.js';
import { parseRecord } from '../../../lib/stores/redis/record.js';

const once: AcquireOptions = { ttl: 60_000, retry: NO_RETRY, renew: false, signals: [] };

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

async function over(...clients: readonly Redis[]): Promise<LockInspector> {
  const fleet = newFleet();
  nodes = clients.map((client) => new RedisStore(client, false, fleet));
  return overNodes();
}

async function overNodes(): Promise<LockInspector> {
  await Promise.all(nodes.map((node) => node.connect().catch(() => undefined)));
  return new LockInspector(nodes, { nodeTimeout: 2_000 }, new Set());
}

async function listed(inspection: LockInspector, prefix = ''): Promise<LockInfo[]> {
  const infos: LockInfo[] = [];
  for await (const info of inspection.list({ prefix })) infos.push(info);
  return infos;
}

/** How often the server has run each command since the last `CONFIG RESETSTAT`. */
async function calls(client: Redis, command: string): Promise<number> {
  const stats = await client.info('commandstats');
  return Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
}

test('10,000 locks among as many other keys: by SCAN, without KEYS, in few round trips', async () => {
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
  // A SCAN may name a key twice when the table of keys is resized meanwhile; here nothing writes.
  expect(infos).toHaveLength(10_000);
  for (let index = 0; index < 10_000; index++) expect(found.get(`order:${index}`)).toBe(id(index));
  await expect(calls(looker, 'keys')).resolves.toBe(0);
  expect(await calls(looker, 'scan')).toBeLessThan(60);
  expect(await calls(looker, 'evalsha')).toBeLessThan(60);
});

describe("a client of the user's with a prefix of its own", () => {
  test.each(['app:', 'a*[b]?\\', 'lock:'])('%p', async (keyPrefix) => {
    const client = server.client({ keyPrefix });
    const inspection = await over(client);
    const lock = await redlockOver(nodes).acquire(['mine'], once);
    await looker.set('lock:{without prefix}', recordOf('somebody'));
    await expect(looker.exists(`${keyPrefix}lock:{mine}`)).resolves.toBe(1);
    expect((await listed(inspection)).map(({ key, id }) => [key, id])).toEqual([['mine', lock.id]]);
    await expect(inspection.inspect('mine')).resolves.toMatchObject({ held: true, id: lock.id });
    await expect(inspection.forceRelease('mine')).resolves.toBe(true);
    await expect(inspection.inspect('mine')).resolves.toMatchObject({ held: false });
  });
});

test('clients that answer numbers as strings', async () => {
  const stringNumbers: RedisOptions = { stringNumbers: true };
  const inspection = await over(server.client(stringNumbers));
  const lock = await redlockOver(nodes).acquire(['k'], once);
  const info = await inspection.inspect('k');
  expect(info.fencingToken).toBe(lock.fencingToken);
  expect(info.remaining).toBeGreaterThan(50_000);
  await expect(inspection.forceRelease('k')).resolves.toBe(true);
});

test('what something else wrote is no lock: inspecting it says so, and it is neither listed nor deleted (S19)', async () => {
  const inspection = await over(server.client());
  await looker.set('lock:{k}', 'somebody', 'PX', 60_000);
  await expect(inspection.inspect('k')).rejects.toThrow(
    'the key has a value that is not a lock of this package',
  );
  await expect(inspection.forceRelease('k')).rejects.toThrow('not a lock');
  expect(await listed(inspection)).toEqual([]);
  await expect(looker.get('lock:{k}')).resolves.toBe('somebody');
});

test('a key of another type is an error of its own, and hides no other lock (S19)', async () => {
  const inspection = await over(server.client());
  await looker.rpush('lock:{list}', 'not a lock');
  await redlockOver(nodes).acquire(['k'], once);
  await expect(inspection.inspect('list')).rejects.toThrow(/^Could not inspect "list": .*WRONGTYPE/);
  await expect(inspection.forceRelease('list')).rejects.toThrow('WRONGTYPE');
  await expect(looker.exists('lock:{list}')).resolves.toBe(1);
  expect((await listed(inspection)).map(({ key }) => key)).toEqual(['k']);
});

test('works after SCRIPT FLUSH, at any time', async () => {
  const inspection = await over(server.client());
  await redlockOver(nodes).acquire(['k'], once);
  await looker.script('FLUSH');
  await expect(inspection.inspect('k')).resolves.toMatchObject({ held: true });
  await looker.script('FLUSH');
  expect(await listed(inspection)).toHaveLength(1);
  await looker.script('FLUSH');
  await expect(inspection.forceRelease('k')).resolves.toBe(true);
});

test('forceRelease keeps the last token', async () => {
  const inspection = await over(server.client());
  const { fencingToken } = await redlockOver(nodes).acquire(['k'], once);
  await inspection.forceRelease('k');
  expect(parseRecord((await looker.get('lock:{k}'))!)).toMatchObject({ fencingToken });
});

test('a server that hangs is an answer that is missing, in time, and is then asked nothing more', async () => {
  const hanging = await startRedis();
  nodes = nodesTo([hanging.url]);
  const inspection = await overNodes();
  const ownLooker = hanging.client();
  await ownLooker.config('RESETSTAT');
  hanging.pause();
  await expect(inspection.inspect('k')).rejects.toThrow('no answer within 2000 ms');
  // By now it is known, so there is nothing to wait for.
  await expect(listed(inspection)).rejects.toThrow('has not answered for a while');
  hanging.resume();
  // What was sent while it hung is run now, all of it.
  await until(async () => (await calls(ownLooker, 'evalsha')) > 0);
  await expect(calls(ownLooker, 'scan')).resolves.toBe(0);
  await hanging.stop();
});

test('two of three killed: nothing can be said, and the error names them', async () => {
  const servers = await startRedisNodes(3);
  nodes = nodesTo(servers.map(({ url }) => url));
  const inspection = await overNodes();
  const lock = await redlockOver(nodes).acquire(['k'], once);
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
