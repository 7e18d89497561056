import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { openClient } from '../../lib/stores/redis/connection/connection.js';
import { RedisStore } from '../../lib/stores/redis/redis-store.js';
import type { LockHandle } from '../../lib/core/lock-handle.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import { countLocks, newFleet, redlockOver } from '../support/core.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { ScriptedNode, scriptedNodes } from '../support/scripted-node.js';
import { startTcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

// The requests of one turn of the event loop are sent in one command. Each lock still has its own outcome.

const once: AcquireTerms = { ttl: 60_000, retry: NO_RETRY, renew: false, signals: [] };

let server: RedisServer;
let looker: Redis;
const ends: (() => unknown)[] = [];

beforeAll(async () => {
  server = await startRedis();
  looker = server.client();
});
afterAll(() => server.stop());
beforeEach(() => looker.flushall());
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});

/** A `Redlock` over a client of the user. The server already knows the scripts. */
async function redlockOn(client: Redis, opened = false): Promise<Redlock> {
  ends.push(() => client.disconnect());
  const node = new RedisStore(client, opened, newFleet());
  await node.connect();
  const redlock = redlockOver([node], { nodeTimeout: 10_000 });
  await (await redlock.acquire(['a first one'], once)).release();
  await looker.config('RESETSTAT');
  return redlock;
}

function openRedlock(url = server.url): Promise<Redlock> {
  return redlockOn(server.client({ port: Number(new URL(url).port) }));
}

function acquireAll(redlock: Redlock, keys: readonly string[]): Promise<LockHandle[]> {
  return Promise.all(keys.map((key) => redlock.acquire([key], once)));
}

async function callsOf(command: string): Promise<number> {
  const [, calls = '0'] =
    new RegExp(`^cmdstat_${command}:calls=(\\d+)`, 'm').exec(await looker.info('commandstats')) ?? [];
  return Number(calls);
}

test('a Redlock sends concurrent acquisitions in one command, and concurrent releases in one command', async () => {
  const redlock = await openRedlock();

  const locks = await acquireAll(redlock, ['a', 'b', 'c']);
  expect(await callsOf('evalsha')).toBe(1);
  expect(await countLocks(looker)).toBe(3);

  await Promise.all(locks.map((lock) => lock.release()));
  expect(await callsOf('evalsha')).toBe(2);
  expect(await countLocks(looker)).toBe(0);
});

test('a Redlock splits very many acquisitions into several short commands', async () => {
  const redlock = await openRedlock();
  const keys = Array.from({ length: 1_000 }, (_, index) => `k${index}`);

  const locks = await acquireAll(redlock, keys);

  // A command has at most a hundred locks.
  expect(await callsOf('evalsha')).toBe(10);
  expect(await countLocks(looker)).toBe(1_000);
  await Promise.all(locks.map((lock) => lock.release()));
  expect(await countLocks(looker)).toBe(0);
});

test('a Redlock grants the other keys when one key is held and one key has the wrong type (S19)', async () => {
  const redlock = await openRedlock();
  const held = await redlock.acquire(['b'], once);
  await looker.lpush('lock:{c}', 'of another type');

  const outcomes = await Promise.allSettled(['a', 'b', 'c', 'd'].map((key) => redlock.acquire([key], once)));

  expect(outcomes).toMatchObject([
    { status: 'fulfilled' },
    { reason: { code: 'LOCK_HELD', owner: 'me' } },
    { reason: { code: 'LOCK_UNAVAILABLE', message: expect.stringContaining('WRONGTYPE') as unknown } },
    { status: 'fulfilled' },
  ]);
  for (const outcome of outcomes) if (outcome.status === 'fulfilled') await outcome.value.release();
  await held.release();
  await looker.del('lock:{c}');
  expect(await countLocks(looker)).toBe(0);
});

test('a Redlock grants a key only to the first of several concurrent requests', async () => {
  const redlock = await openRedlock();
  const outcomes = await Promise.allSettled(['k', 'k', 'k'].map((key) => redlock.acquire([key], once)));
  expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected']);
});

test('a Redlock grants a key that is released and requested again in the same turn of the event loop', async () => {
  const redlock = await openRedlock();
  const [lock] = await acquireAll(redlock, ['k']);

  // One acquisition is requested before the release. The command for releases is sent first all the same.
  const outcomes = await Promise.allSettled([
    redlock.acquire(['other'], once),
    lock?.release(),
    redlock.acquire(['k'], once),
  ]);

  expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled', 'fulfilled']);
});

test('a Redlock leaves no key of an acquisition that is cancelled before it is sent (S6, S15)', async () => {
  const redlock = await openRedlock();
  const [held] = await acquireAll(redlock, ['held']);
  const giveUp = new AbortController();

  // At the end of the turn, one command sends this release and the release of the cancelled acquisition. The command for
  // acquisitions follows, so the cancelled acquisition must not be in it: no later release would free the key.
  const releasing = held?.release();
  const given = redlock.acquire(['k'], { ...once, signals: [giveUp.signal] });
  const kept = redlock.acquire(['other'], once);
  giveUp.abort(new Error('given up'));

  await expect(given).rejects.toThrow('given up');
  await releasing;
  await (await kept).release();
  expect(await countLocks(looker)).toBe(0);
  expect(await looker.exists('lock:{k}')).toBe(0);
});

test('a Redlock does not send a cancelled acquisition again when the server has lost the script (S15)', async () => {
  const proxy = await startTcpProxy(server);
  ends.push(() => proxy.close());
  const redlock = await openRedlock(proxy.url);
  await looker.script('FLUSH');
  proxy.holdReplies();
  const giveUp = new AbortController();
  const given = redlock.acquire(['given-up'], { ...once, signals: [giveUp.signal] });
  const kept = acquireAll(redlock, ['a', 'b']);
  await until(async () => (await callsOf('evalsha')) === 1);

  giveUp.abort(new Error('given up'));
  await expect(given).rejects.toThrow('given up');
  proxy.heal();

  const locks = await kept;
  expect(locks).toHaveLength(2);
  expect(await looker.exists('lock:{given-up}')).toBe(0);
  await Promise.all(locks.map((lock) => lock.release()));
  expect(await countLocks(looker)).toBe(0);
});

test('a Redlock grants and releases the other keys when the Redis user has no rights to one key', async () => {
  await looker.call('ACL', 'SETUSER', 'few', 'on', '>secret', '~lock:{a*', '&*', '+@all');
  ends.push(() => looker.call('ACL', 'DELUSER', 'few'));
  const redlock = await redlockOn(server.client({ username: 'few', password: 'secret' }));

  const outcomes = await Promise.allSettled(['a1', 'x', 'a2'].map((key) => redlock.acquire([key], once)));

  expect(outcomes).toMatchObject([
    { status: 'fulfilled' },
    { reason: { message: expect.stringContaining('NOPERM') as unknown } },
    { status: 'fulfilled' },
  ]);
  // The failed acquisition may have left a record, so the library releases its key, in the same turn as the other keys.
  const another = redlock.acquire(['x'], once).catch(() => undefined);
  for (const outcome of outcomes) if (outcome.status === 'fulfilled') void outcome.value.release();
  await another;
  await until(async () => (await countLocks(looker)) === 0);
});

test('a Redlock reports READONLY to the client when its server became a replica, so that the client can reconnect', async () => {
  const told: string[] = [];
  const client = server.client({ reconnectOnError: ({ message }) => told.push(message) < 0 });
  const redlock = await redlockOn(client);
  const master = await startRedis();
  ends.push(async () => {
    await looker.replicaof('NO', 'ONE');
    await master.stop();
  });
  await looker.replicaof(master.host, master.port);

  const outcomes = await Promise.allSettled(['a', 'b'].map((key) => redlock.acquire([key], once)));

  for (const outcome of outcomes) {
    expect(outcome).toMatchObject({ reason: { message: expect.stringContaining('READONLY') as unknown } });
  }
  expect(told).toContainEqual(expect.stringMatching(/^READONLY/));
});

test.each(['quit', 'disconnect', 'close'] as const)(
  'a Redlock releases the lock of a cancelled acquisition even if the caller then ends the client with `%s` (S6)',
  async (how) => {
    const client = how === 'close' ? openClient(server.url) : server.client();
    const redlock = await redlockOn(client, how === 'close');
    const giveUp = new AbortController();
    const given = redlock.acquire(['k'], { ...once, signals: [giveUp.signal] }).catch(() => undefined);
    // The request is sent at the end of the turn of the event loop.
    await new Promise((resolve) => process.nextTick(() => process.nextTick(resolve)));
    giveUp.abort(new Error('given up'));
    await given;

    if (how === 'quit') await client.quit();
    else if (how === 'disconnect') client.disconnect();
    else await redlock.close();

    await until(async () => (await callsOf('evalsha')) === 2);
    expect(await countLocks(looker)).toBe(0);
  },
);

test('when a Redlock is closed, it first sends a release that nobody has awaited', async () => {
  const redlock = await redlockOn(openClient(server.url), true);
  const [lock] = await acquireAll(redlock, ['k']);

  void lock?.release();
  await redlock.close();

  await until(async () => (await countLocks(looker)) === 0);
  expect(await countLocks(looker)).toBe(0);
});

test('a Redlock rejects a request when the client throws, and serves later requests', async () => {
  const client = server.client();
  const redlock = await redlockOn(client);
  const [held] = await acquireAll(redlock, ['held']);
  const throwing = jest.spyOn(client, 'evalsha').mockImplementation(() => {
    throw new Error('broken by somebody');
  });

  const releasing = held?.release();
  await expect(redlock.acquire(['k'], once)).rejects.toThrow('broken by somebody');
  await releasing;

  throwing.mockRestore();
  await (await redlock.acquire(['k'], once)).release();
  // The failed release is repeated.
  await until(async () => (await countLocks(looker)) === 0);
});

test('a Redlock rejects every request of a failed command with the error of the command', async () => {
  const redlock = await openRedlock();
  await looker.call('ACL', 'SETUSER', 'default', '-evalsha');
  ends.push(() => looker.call('ACL', 'SETUSER', 'default', '+@all'));

  const outcomes = await Promise.allSettled(['a', 'b'].map((key) => redlock.acquire([key], once)));

  for (const outcome of outcomes) {
    expect(outcome).toMatchObject({ reason: { message: expect.stringContaining('NOPERM') as unknown } });
  }
});

describe('a store that throws instead of calling its callback `tell`', () => {
  const wrong = new TypeError('a mistake of the store');
  const fail = (): never => {
    throw wrong;
  };

  function throwing(): ScriptedNode {
    return Object.assign(new ScriptedNode('broken'), { acquire: fail, extend: fail, release: fail });
  }

  test('concurrent requests reject with LockUnavailableError when a store that throws leaves no quorum', async () => {
    const redlock = redlockOver([throwing()]);
    const outcomes = await Promise.allSettled(['a', 'b'].map((key) => redlock.acquire([key], once)));
    const refused = {
      status: 'rejected',
      reason: { code: 'LOCK_UNAVAILABLE', message: expect.stringContaining(wrong.message) as unknown },
    };
    expect(outcomes).toMatchObject([refused, refused]);
  });

  test('a lock is granted, extended and released by a quorum although the store of one node throws', async () => {
    const [one, two] = scriptedNodes(2);
    const redlock = redlockOver([one!, throwing(), two!]);
    const lock = await redlock.acquire(['k'], once);
    await lock.extend(2 * once.ttl);
    await lock.release();
    expect(await one!.read(['k'])).toEqual([undefined]);
  });
});
