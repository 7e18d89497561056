import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import { LINGER_MS } from '../../../lib/core/store-times.js';
import { readPass } from '../../../lib/core/pass.js';
import type { AttachTerms } from '../../../lib/redlock/attach.js';
import type { HeldLock } from '../../../lib/redlock/held-lock.js';
import type { Redlock } from '../../../lib/redlock/redlock.js';
import type { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { newFleet, nodesTo, redlockOver } from '../../support/core.js';
import { DURABLE, type RedisServer, startRedisNodes } from '../../support/redis-server.js';
import { startTcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';

// A busy machine can take seconds for a request, so the ttl is long, and each node may take long to answer.
const TTL = 60_000;
const NODE_TIMEOUT = 10_000;
const RETRY = { timeout: 60_000, attempts: Infinity, delay: 20, jitter: 50 };

let servers: RedisServer[];
let keys = 0;
const opened: RedisStore[] = [];

beforeAll(async () => {
  servers = await startRedisNodes(3, DURABLE);
});
afterEach(async () => {
  await Promise.all(opened.splice(0).map((store) => store.close()));
});
afterAll(async () => {
  await Promise.all(servers.map((server) => server.stop()));
});

/** A process with its own connections. */
async function processOn(urls = servers.map(({ url }) => url), guard = 0): Promise<Redlock> {
  const stores = nodesTo(urls, newFleet(guard > 0, true));
  opened.push(...stores);
  await Promise.all(stores.map((store) => store.connect().catch(() => undefined)));
  return redlockOver(stores, { nodeTimeout: NODE_TIMEOUT, guard });
}

async function acquire(redlock: Redlock, ttl = TTL, key = `detached:${keys++}`): Promise<HeldLock> {
  return redlock.acquire([key], { ttl, retry: NO_RETRY, renew: true, signals: [] });
}

function attach(redlock: Redlock, text: string, terms: Partial<AttachTerms> = {}): Promise<HeldLock> {
  return redlock.attach(readPass(text), { renew: true, retry: RETRY, signals: [], ...terms });
}

test('a lock survives the SIGKILL of one of three nodes between detach and attach, and that node heals', async () => {
  const [api, worker] = [await processOn(), await processOn()];
  const lock = await acquire(api);
  const text = await lock.detach();
  await servers[1]!.kill();
  const attached = await attach(worker, text);
  expect([attached.fencingToken, attached.isHeld()]).toEqual([lock.fencingToken, true]);
  await expect(acquire(api, TTL, lock.keys[0])).rejects.toMatchObject({ code: 'LOCK_HELD' });
  await servers[1]!.start();
  const client = servers[1]!.client();
  await until(async () => {
    await attached.extend().catch(() => undefined);
    return (await client.get(`lock:{${lock.keys[0]}}`))?.includes(attached.id) === true;
  });
  await attached.release();
  await (await acquire(api, TTL, lock.keys[0])).release();
});

test('of twelve attachers in three processes one gets the lock', async () => {
  const api = await processOn();
  const workers = await Promise.all([processOn(), processOn(), processOn()]);
  for (let turn = 0; turn < 3; turn++) {
    const lock = await acquire(api);
    const text = await lock.detach();
    const results = await Promise.allSettled(
      [...workers, ...workers, ...workers, ...workers].map((each) => attach(each, text)),
    );
    const held = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
    expect(held.map(({ fencingToken }) => fencingToken)).toEqual([lock.fencingToken]);
    const refusals = results.flatMap((result) => (result.status === 'rejected' ? [result.reason.code] : []));
    expect(refusals).toEqual(Array.from({ length: 11 }, () => 'LOCK_NOT_ATTACHED'));
    await held[0]!.release();
  }
});

test('the attacher whose replies are lost gets the lock with its next attempt', async () => {
  const proxies = await Promise.all(servers.map(({ port }) => startTcpProxy({ port })));
  const stores = nodesTo(
    proxies.map(({ url }) => url),
    newFleet(false, true),
  );
  opened.push(...stores);
  await Promise.all(stores.map((store) => store.connect()));
  const worker = redlockOver(stores, { nodeTimeout: 500 });
  const lock = await acquire(await processOn());
  const text = await lock.detach();
  for (const proxy of proxies.slice(0, 2)) proxy.dropReplies();
  const attached = attach(worker, text);
  const client = servers[0]!.client();
  const { id } = readPass(text);
  await until(async () => (await client.get(`lock:{${lock.keys[0]}}`))?.includes(id) === false);
  await Promise.all(proxies.map((proxy) => proxy.heal()));
  expect((await attached).fencingToken).toBe(lock.fencingToken);
  await (await attached).release();
  await Promise.all(proxies.map((proxy) => proxy.close()));
});

test('an attacher that comes after the ttl is refused, and does not disturb the next holder', async () => {
  const [api, worker] = [await processOn(), await processOn()];
  const lock = await acquire(api);
  const text = await lock.detach();
  // A record counts as free when it expires in LINGER_MS or less, as at the end of the ttl.
  const clients = servers.map((server) => server.client());
  await Promise.all(clients.map((client) => client.pexpire(`lock:{${lock.keys[0]}}`, LINGER_MS)));
  const next = await acquire(api, TTL, lock.keys[0]);
  expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
  await expect(attach(worker, text)).rejects.toMatchObject({ code: 'LOCK_NOT_ATTACHED' });
  await next.extend();
  await next.release();
});

test('a node that restarted with the data of before the attachment does not give the lock to a second attacher (S12)', async () => {
  const guard = TTL;
  const [api, worker] = [await processOn(undefined, 0), await processOn(undefined, 0)];
  const lock = await acquire(api);
  const text = await lock.detach();
  // The second server is away, so the lock of the first attacher is on two nodes.
  await servers[1]!.kill();
  await attach(worker, text, { renew: false });
  await servers[1]!.start();
  // The first server forgets the attachment: it has the record of the detached lock again.
  const [first, second] = [servers[0]!.client(), servers[1]!.client()];
  const name = `lock:{${lock.keys[0]}}`;
  await first.set(name, (await second.get(name))!, 'PX', TTL + 30_000);
  await servers[0]!.restart();
  const late = await processOn(undefined, guard);
  await expect(attach(late, text, { retry: NO_RETRY })).rejects.toThrow('it votes again in');
});

test('a detachment whose reply is lost with its connection leaves the lock held: no waiter gets it (S27)', async () => {
  const [server] = servers as [RedisServer];
  const proxy = await startTcpProxy(server);
  const [api, other] = [await processOn([proxy.url]), await processOn([server.url])];
  // From now on the server knows the script.
  await (await acquire(api)).detach();
  const lock = await acquire(api);
  const client = server.client();
  const key = `lock:{${lock.keys[0]}}`;
  proxy.dropReplies();
  const detaching = lock.detach();
  await until(async () => (await client.get(key))?.includes(lock.id) === false);
  // This ends the connection, whose reply is lost.
  await proxy.heal();
  await expect(detaching).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  const end = performance.now() + 4_000;
  while (performance.now() < end && lock.isHeld())
    await expect(acquire(other, TTL, lock.keys[0])).rejects.toMatchObject({ code: 'LOCK_HELD' });
  expect(lock.isHeld()).toBe(true);
  await until(async () => (await client.get(key))?.includes(lock.id) === true);
  await lock.release();
  await proxy.close();
});
