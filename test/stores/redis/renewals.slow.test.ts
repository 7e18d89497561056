import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Cluster, type Redis } from 'ioredis';
import { setImmediate as turn, setTimeout as delay } from 'node:timers/promises';
import { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import type { HeldLock } from '../../../lib/redlock/held-lock.js';
import { countLocks, newFleet, nodesTo, redlockOver } from '../../support/core.js';
import { PATIENT } from '../../support/patience.js';
import { type RedisServer, startRedis, startRedisNodes } from '../../support/redis-server.js';
import { until } from '../../support/until.js';
import { renewed } from '../lock-lifetime.js';

// Many locks of one process on real servers.

/** Milliseconds; renewals begin after a third of this ttl, and may be late by the other two thirds. */
const TTL = 9_000;

/** Milliseconds; the ttl of locks that end during a test. */
const SHORT_TTL = 5_000;

/** Acquires `count` locks on keys that begin with `name`. */
async function acquireMany(
  nodes: readonly RedisStore[],
  count: number,
  name: string,
  { renew = true, ttl = TTL } = {},
): Promise<HeldLock[]> {
  const redlock = redlockOver(nodes, PATIENT);
  const retry = { timeout: 10_000, attempts: Infinity, delay: 20, jitter: 20 };
  const locks: HeldLock[] = [];
  for (let first = 0; first < count; first += 100) {
    const some = Array.from({ length: Math.min(100, count - first) }, (_, index) =>
      redlock.acquire([`${name}:${first + index}`], { ttl, retry, renew, signals: [] }),
    );
    locks.push(...(await Promise.all(some)));
  }
  return locks;
}

/** Extends the locks with one request to the node; resolves to the answer or the error for each lock. */
function extendAll(node: RedisStore, locks: readonly HeldLock[]): Promise<(boolean | Error)[]> {
  const answers: (boolean | Error)[] = [];
  return new Promise((resolve) => {
    const leases = locks.map(({ lease }) => lease);
    node.extend(leases, TTL, (index, reply) => {
      answers[index] = reply;
      if (Object.keys(answers).length === locks.length) resolve(answers);
    });
  });
}

function release(locks: readonly HeldLock[]): Promise<unknown> {
  return Promise.all(locks.map((lock) => lock.release()));
}

/** Number of scripts that the server has run since `CONFIG RESETSTAT`. */
async function scriptsRun(looker: Redis): Promise<number> {
  const lines = (await looker.info('commandstats')).matchAll(/^cmdstat_eval(?:sha)?:calls=(\d+)/gm);
  return [...lines].reduce((sum, [, calls]) => sum + Number(calls), 0);
}

describe('many locks on one server', () => {
  let server: RedisServer;
  let looker: Redis;
  let node: RedisStore;

  beforeAll(async () => {
    server = await startRedis();
    looker = server.client();
    [node] = nodesTo([server.url]) as [RedisStore];
    await node.connect();
  });
  afterAll(async () => {
    await node.close();
    await server.stop();
  });
  beforeEach(() => looker.config('RESETSTAT'));

  test('many locks are renewed with less than one command for every ten locks', async () => {
    const locks = await acquireMany([node], 1_000, 'many');
    await looker.config('RESETSTAT');
    await renewed(locks);
    const scripts = await scriptsRun(looker);
    // The count would be 0 if it came from the wrong line of INFO.
    expect(scripts).toBeGreaterThan(0);
    // The quotient would be 1 with one command for each lock.
    expect(scripts / 1_000).toBeLessThan(0.1);
    await release(locks);
    await until(async () => (await countLocks(looker)) === 0);
  });

  test('many locks are extended with at most 100 keys in a command', async () => {
    const locks = await acquireMany([node], 250, 'part', { renew: false });
    await looker.config('RESETSTAT');
    await expect(extendAll(node, locks)).resolves.toEqual(locks.map(() => true));
    await expect(scriptsRun(looker)).resolves.toBe(3);
    await release(locks);
  });

  test('two locks are extended after SCRIPT FLUSH, and one of them if the other is released before the script is sent again (S15)', async () => {
    const [first, second] = (await acquireMany([node], 2, 'flushed', { renew: false })) as [
      HeldLock,
      HeldLock,
    ];
    await looker.script('FLUSH');
    await expect(extendAll(node, [first, second])).resolves.toEqual([true, true]);
    await looker.script('FLUSH');
    const answers = extendAll(node, [first, second]);
    await release([second]);
    await expect(answers).resolves.toEqual([true, expect.any(Error)]);
    await first.release();
  });
});

describe('many locks on three servers', () => {
  let servers: RedisServer[];
  let nodes: RedisStore[];

  beforeAll(async () => {
    servers = await startRedisNodes(3);
    nodes = nodesTo(servers.map(({ url }) => url));
    await Promise.all(nodes.map((node) => node.connect()));
  });
  afterAll(async () => {
    await Promise.all(nodes.map((node) => node.close()));
    await Promise.all(servers.map((server) => server.stop()));
  });

  test('a lock whose records are gone is lost at its next renewal, and the other locks stay held (S9)', async () => {
    const locks = await acquireMany(nodes, 50, 'gone');
    const gone = locks[20]!;
    const others = renewed(locks.filter((lock) => lock !== gone));
    for (const server of servers.slice(1)) await server.client().del('lock:{gone:20}');
    await until(() => !gone.isHeld());
    expect(gone.loss?.message).toContain('fewer than a quorum of nodes still store it');
    await others;
    expect(locks.filter((lock) => !lock.isHeld())).toEqual([gone]);
    await release(locks);
  });

  test('all locks are renewed when one of three servers is stopped (SIGSTOP) (S9)', async () => {
    const locks = await acquireMany(nodes, 100, 'minority');
    servers[2]!.pause();
    try {
      await renewed(locks);
      expect(locks.filter((lock) => !lock.isHeld())).toEqual([]);
    } finally {
      servers[2]!.resume();
    }
    await release(locks);
  });

  test('all locks are reported as lost by the end of their validity when a majority of servers is stopped (SIGSTOP) (S10)', async () => {
    await until(
      async () => (await Promise.all(servers.map((server) => server.client().ping()))).length === 3,
    );
    const locks = await acquireMany(nodes, 100, 'majority', { ttl: SHORT_TTL });
    const late = locks.map(({ signal }) => {
      return new Promise<number>((resolve) => {
        signal.addEventListener('abort', () => resolve(performance.now()));
      });
    });
    for (const server of servers.slice(1)) server.pause();
    try {
      // Read the answers that arrived before the pause: they make locks last longer.
      await delay(50);
      await turn();
      const ends = locks.map((lock) => performance.now() + lock.remaining());
      const told = await Promise.all(late);
      for (const [index, at] of told.entries()) {
        expect(at).toBeGreaterThan(ends[index]! - 5);
        // The 20 seconds allow for the delay of a busy machine.
        expect(at).toBeLessThan(ends[index]! + 20_000);
      }
      expect(locks.map(({ state }) => state)).toEqual(locks.map(() => 'lost'));
    } finally {
      for (const server of servers.slice(1)) server.resume();
    }
    await release(locks);
  });
});

test('on a Cluster, a store renews each lock with a separate command, and the loss of one lock affects no other lock', async () => {
  const server = await startRedis({
    args: ['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1'],
  });
  const looker = server.client();
  await looker.call('CLUSTER', 'ADDSLOTSRANGE', 0, 16_383);
  await until(async () => String(await looker.call('CLUSTER', 'INFO')).includes('cluster_state:ok'));
  const cluster = new Cluster([{ host: server.host, port: server.port }]);
  const node = new RedisStore(cluster, false, newFleet());
  await node.connect();
  try {
    const unrenewed = await acquireMany([node], 20, 'counted', { renew: false });
    // Only the first extension also sends the text of the script, so the count begins after it.
    await extendAll(node, unrenewed);
    await looker.config('RESETSTAT');
    await expect(extendAll(node, unrenewed)).resolves.toEqual(unrenewed.map(() => true));
    await expect(scriptsRun(looker)).resolves.toBe(20);
    await release(unrenewed);
    const locks = await acquireMany([node], 20, 'slots');
    const others = renewed(locks.filter((_, index) => index !== 7));
    await looker.del('lock:{slots:7}');
    await until(() => !locks[7]!.isHeld());
    await others;
    expect(locks.filter((lock) => !lock.isHeld())).toEqual([locks[7]]);
    await release(locks);
  } finally {
    cluster.disconnect();
    await server.stop();
  }
});
