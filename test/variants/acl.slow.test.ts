import { beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Redis } from 'ioredis';
import { Redis as Redis6 } from 'ioredis-6';
import { type LockOptions, LockService, type RedlockModuleOptions } from '../../lib/index.js';
import { tokenAt } from '../../lib/core/fencing-token.js';
import { Lease } from '../../lib/core/lease.js';
import { SHARED } from '../../lib/core/lock-mode.js';
import type { RedisStore } from '../../lib/stores/redis/redis-store.js';
import { acquireOn, extendOn, releaseOn } from '../support/ask-store.js';
import { nodesTo } from '../support/core.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { LogLines } from '../support/log-lines.js';
import { startApp } from '../support/nest-app.js';
import { DURABLE, redisVersion, type RedisServer, startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { NEWER_RIGHTS, RIGHTS } from './acl-rights.js';

/** Milliseconds. A single attempt gives up after a fifth of the ttl, and a busy machine never stalls for that long. */
const TTL = 60_000;
const WAIT = 60_000;

let server: RedisServer;
let admin: Redis;

beforeAll(async () => {
  // On a durable server the library also asks for the settings of persistence.
  server = await startRedis(DURABLE);
  admin = server.client();
});
beforeEach(() => admin.flushall());

/** Gives the user `locks` these rights and no others, and clears the log of denied commands. */
async function allow(rights: readonly string[]): Promise<void> {
  await admin.call('ACL', 'SETUSER', 'locks', 'reset', 'on', '>secret', ...rights);
  await admin.call('ACL', 'LOG', 'RESET');
}

/** Returns the commands and channels that the server has denied since `allow`, such as `config|get`. */
async function denied(): Promise<string[]> {
  const log = (await admin.call('ACL', 'LOG')) as string[][];
  return [...new Set(log.map((entry) => String(entry[entry.indexOf('object') + 1])))];
}

/** Uses every function of the library that sends commands. Resolves to the logged warnings. */
async function useAll(
  options: RedlockModuleOptions,
  { retry = false, ttl = TTL, wait }: { retry?: LockOptions['retry']; ttl?: number; wait?: number } = {},
): Promise<string[]> {
  const log = new LogLines();
  // After SCRIPT FLUSH, the library must send the whole scripts, by EVAL.
  await admin.script('FLUSH');
  const app = await startApp({}, { defaults: { ttl }, ...options }, { logger: log });
  try {
    const locks = app.get(LockService);
    const lock = await locks.acquire(['a', 'b'], { retry });
    if (await locks.tryAcquire('a')) throw new Error('two holders');
    await lock.extend();
    await locks.inspect('a');
    if (!(await locks.checkNodes()).available) throw new Error('not available');
    for await (const info of locks.list()) if (!info.held) throw new Error('not listed as held');
    await lock.release();
    await locks.acquire('c', { retry });
    if (!(await locks.forceRelease('c'))) throw new Error('not released');
    await (await locks.acquire('d', { retry, minHold: 10 })).release();
    // `holdTogether` must run even if the user lacks a right that waiters need.
    await handOver(locks, retry, wait).finally(holdTogether);
  } finally {
    await app.close();
  }
  // `forceRelease` makes the holder log a warning.
  return log.of('warn').filter((line) => !line.includes('released by force'));
}

/** Lets a waiter give up, and lets another waiter get its turn by a message. */
async function handOver(locks: LockService, retry: LockOptions['retry'], timeout = WAIT): Promise<void> {
  const lock = await locks.acquire('e', { retry });
  const inLine = (): Promise<void> => until(async () => (await admin.zcard('lock:{e}:q')) === 1, timeout);
  const enough = new AbortController();
  const impatient = locks.acquire('e', { retry: { timeout }, signal: enough.signal }).catch(() => undefined);
  await inLine().catch(() => undefined);
  enough.abort();
  await impatient;
  const next = locks.acquire('e', { retry: { timeout } });
  try {
    await inLine();
  } finally {
    await lock.release();
    await (await next).release();
  }
}

/** Makes the library send every command for locks with several holders, even after the server has denied one. */
async function holdTogether(): Promise<void> {
  const [store] = nodesTo([url()]) as [RedisStore];
  try {
    await store.connect();
    const readers = [60_000, 10, 90_000, 120_000].map(
      (ttl) => new Lease(['f'], 'me', ttl, undefined, SHARED),
    );
    const [first, , second, last] = readers as [Lease, Lease, Lease, Lease];
    for (const lease of readers) await acquireOn(store, lease).catch(() => undefined);
    await extendOn(store, first, 70_000).catch(() => undefined);
    await store.raise(second, tokenAt(Date.now() + 1_000)).catch(() => undefined);
    await store.read(['f']);
    for (const lease of [second, last, first]) await releaseOn(store, lease).catch(() => undefined);
    const permits = [60_000, 90_000, 10].map(
      (ttl) => new Lease(['g'], 'me', ttl, undefined, { mode: 'permits', permits: 3 }),
    );
    for (const lease of permits) await acquireOn(store, lease).catch(() => undefined);
    for (const lease of permits) await extendOn(store, lease, 100_000).catch(() => undefined);
    await store.read(['g']);
    for (const lease of permits) await releaseOn(store, lease).catch(() => undefined);
  } finally {
    await store.close();
  }
}

const url = (): string => `redis://locks:secret@${server.host}:${server.port}`;

describe('the rights in docs/choosing-nodes.md', () => {
  test('the documented ACL rights are enough: Redis denies no command, and the library logs no warning', async () => {
    await allow(RIGHTS);
    await expect(useAll({ nodes: url() })).resolves.toEqual([]);
    await expect(denied()).resolves.toEqual([]);
  });

  test('the documented ACL rights are enough with a restart guard', async () => {
    await allow(RIGHTS);
    const options = { nodes: url(), restartGuard: 6_000 };
    const warnings = await useAll(options, { retry: { timeout: WAIT, delay: 20 }, ttl: 6_000 });
    expect(warnings).toEqual([expect.stringContaining('it votes again in')]);
    await expect(denied()).resolves.toEqual([]);
  });

  test('the documented ACL rights are enough for passed-in clients of ioredis 5 and 6', async () => {
    await allow(RIGHTS);
    const clients = [new Redis(url()), new Redis6(url()) as unknown as Redis];
    for (const client of clients) cleanUpAfterTests(async () => client.disconnect());
    for (const client of clients) await expect(useAll({ nodes: client })).resolves.toEqual([]);
    await expect(denied()).resolves.toEqual([]);
  });

  test('docs/choosing-nodes.md lists `+client|setinfo` on a separate line, because Redis before 7.2 refuses a whole line with this right', async () => {
    await allow([]);
    await allow(['+get', '+client|setinfo']).catch(() => undefined);
    const users = (await admin.call('ACL', 'LIST')) as string[];
    const hasGet = users.some((line) => line.startsWith('user locks ') && line.includes('+get'));
    expect({ hasGet, onPage: NEWER_RIGHTS }).toEqual({
      hasGet: redisVersion() >= 7.2,
      onPage: ['+client|setinfo'],
    });
  });

  const needed = RIGHTS.filter((right) => right.startsWith('+'));

  test.each(needed)(
    'the documented ACL rights are not enough without %s: Redis denies that command',
    async (right) => {
      await allow(RIGHTS.filter((each) => each !== right));
      await useAll({ nodes: url() }, { wait: 2_000 }).catch(() => undefined);
      await expect(denied()).resolves.toContain(right.slice(1));
    },
  );

  test('the library logs one warning if the Redis user lacks only the ACL rights for shared locks and permits', async () => {
    const missing = ['zadd', 'hset', 'zscore', 'hmget', 'pexpireat', 'hdel'];
    await allow(RIGHTS.filter((right) => !missing.includes(right.slice(1))));
    const log = new LogLines();
    const app = await startApp({}, { nodes: url() }, { logger: log });
    const locks = app.get(LockService);
    const advice = expect.stringContaining(
      'its user may not run ZADD, ZSCORE, HSET, HDEL, HMGET, PEXPIREAT, so locks with `mode:',
    );
    expect(log.of('warn')).toEqual([advice]);
    const { nodes } = await locks.checkNodes();
    expect(nodes).toMatchObject([{ state: 'voting', warnings: [advice] }]);
    // Exclusive locks work.
    await (await locks.acquire('key', { retry: false, ttl: TTL })).release();
    await app.close();
  });

  test('the documented ACL rights are not enough without the channels: Redis denies `lock:wake:`', async () => {
    await allow(RIGHTS.filter((each) => !each.startsWith('&')));
    await useAll({ nodes: url() }, { wait: 2_000 }).catch(() => undefined);
    await expect(denied()).resolves.toContainEqual(expect.stringMatching(/^lock:wake:/));
  });

  test.each([
    '+setrange',
    '+zadd',
    '+publish',
    '+subscribe',
    '+info',
    '+config|get',
    '+scan',
    '+client|setname',
    '&lock:*',
  ])('the documented ACL rights allow locks and waiters even without %s', async (right) => {
    await allow(RIGHTS.filter((each) => each !== right));
    const app = await startApp({}, { nodes: url() });
    const locks = app.get(LockService);
    const lock = await locks.acquire('key', { retry: false, ttl: TTL });
    const next = locks.acquire('key', { retry: { timeout: WAIT } });
    await lock.release();
    const waited = await next;
    expect(waited.isHeld()).toBe(true);
    await waited.release();
    await app.close();
  });
});
