import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Redis } from 'ioredis';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { RedisStore } from '../../../../lib/stores/redis/redis-store.js';
import { NO_RETRY } from '../../../../lib/core/lock-options.js';
import type { AcquireTerms, Redlock } from '../../../../lib/redlock/redlock.js';
import { type CoreOptions, countLocks, newFleet, nodesTo, redlockOver } from '../../../support/core.js';
import { PATIENT } from '../../../support/patience.js';
import {
  DURABLE,
  type RedisServer,
  startRedis,
  type StartRedisOptions,
} from '../../../support/redis-server.js';
import { until } from '../../../support/until.js';
import { likeValkey, rewriteInfo } from '../../../support/valkey-info.js';

/** Milliseconds; longer than a busy machine stands still. */
const GUARD = 3_000;

const once: AcquireTerms = { ttl: GUARD, retry: NO_RETRY, renew: false, signals: [] };

let servers: RedisServer[];
let opened: RedisStore[];

beforeEach(() => {
  servers = [];
  opened = [];
});
afterEach(async () => {
  await Promise.all(opened.map((node) => node.close()));
  await Promise.all(servers.map((server) => server.stop()));
});

async function newServer(options?: StartRedisOptions): Promise<RedisServer> {
  const server = await startRedis(options);
  servers.push(server);
  return server;
}

/** Connects nodes to these addresses; resolves to the nodes, the failures to connect and the warnings. */
async function connect(
  urls: readonly string[],
  guarded = false,
): Promise<{ nodes: RedisStore[]; failures: string[]; warnings: readonly string[] }> {
  const fleet = newFleet(guarded);
  const nodes = nodesTo(urls, fleet);
  opened.push(...nodes);
  const results = await Promise.allSettled(nodes.map((node) => node.connect()));
  const failures = results.flatMap((result) => (result.status === 'rejected' ? [String(result.reason)] : []));
  return { nodes, failures, warnings: fleet.warnings };
}

async function readyClientOf(server: RedisServer): Promise<Redis> {
  const client = server.client();
  await client.ping();
  return client;
}

/** A node over a client that is passed in; `ready` settles when the node has connected or has failed. */
function connectOver(client: Redis): { ready: Promise<void>; warnings: readonly string[] } {
  const fleet = newFleet();
  const node = new RedisStore(client, false, fleet);
  opened.push(node);
  return { ready: node.connect(), warnings: fleet.warnings };
}

function locksOver(nodes: readonly RedisStore[], options: CoreOptions = {}): Redlock {
  return redlockOver(nodes, { ...PATIENT, ...options });
}

async function attempt(redlock: Redlock): Promise<'acquired' | string> {
  try {
    const lock = await redlock.acquire(['k'], once);
    await lock.release();
    return 'acquired';
  } catch (error) {
    return (error as Error).message;
  }
}

/**
 * Asks until the nodes answer; returns the answer and the time of that request. On a busy machine, nodes may miss their
 * time limit a few times. A client that connected while a restarted server was LOADING looks again a second later.
 */
async function answered(redlock: Redlock): Promise<{ asked: number; answer: string }> {
  for (;;) {
    const asked = performance.now();
    const answer = await attempt(redlock);
    if (!/not connected|no answer within|not answered for a while|too late|: LOADING /.test(answer))
      return { asked, answer };
    await delay(5);
  }
}

async function answerOf(redlock: Redlock): Promise<string> {
  return (await answered(redlock)).answer;
}

describe('an unfit server (S17)', () => {
  test('a server that is listed twice, even under two names, is refused, and the error says why', async () => {
    const server = await newServer(DURABLE);
    const { nodes, failures } = await connect([server.url, `redis://localhost:${server.port}`]);
    expect(failures).toHaveLength(1);
    expect(failures[0]).toMatch(/UnfitStoreError.*the same server as .*list each server once/);
    await expect(attempt(locksOver(nodes))).resolves.toContain('cannot be used for locks');
  });

  test('a server that is a replica is refused, and the error says why', async () => {
    const master = await newServer(DURABLE);
    const replica = await newServer({ args: ['--replicaof', '127.0.0.1', String(master.port)] });
    const { failures } = await connect([replica.url]);
    expect(failures).toEqual([expect.stringContaining('it is a replica, which loses locks')]);
  });

  test('a server that has become a replica is refused, with the reason, until it is a master again', async () => {
    const [master, other] = [await newServer(DURABLE), await newServer(DURABLE)];
    const { nodes, warnings } = await connect([other.url]);
    const redlock = locksOver(nodes);
    await expect(answerOf(redlock)).resolves.toBe('acquired');
    const client = other.client();
    await client.replicaof('127.0.0.1', master.port);
    // The answer READONLY makes the store replace the connection, and check the server on the new connection.
    await until(async () => (await attempt(redlock)).includes('it is a replica'));
    expect(warnings).toContainEqual(expect.stringContaining('cannot be used for locks: it is a replica'));
    await client.replicaof('NO', 'ONE');
    await client.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    await until(async () => (await attempt(redlock)) === 'acquired');
  });

  test('a server is refused while it is a replica, and votes after its promotion, on the same connection', async () => {
    const [master, other] = [await newServer(DURABLE), await newServer(DURABLE)];
    await other.client().replicaof('127.0.0.1', master.port);
    const { nodes } = await connect([other.url]);
    await expect(answerOf(locksOver(nodes))).resolves.toContain('it is a replica');
    await other.client().replicaof('NO', 'ONE');
    await until(async () => (await attempt(locksOver(nodes))) === 'acquired');
  });

  test('a server without a database of the number in the URL is refused, and the error says why', async () => {
    const server = await newServer({ args: [...DURABLE.args!, '--databases', '2'] });
    const { nodes, failures } = await connect([`${server.url}/2`]);
    expect(failures).toEqual([expect.stringContaining('it has no database of that number')]);
    await expect(answerOf(locksOver(nodes))).resolves.toContain('it has no database of that number');
    await expect(connect([`${server.url}/1`])).resolves.toMatchObject({ failures: [] });
  });

  test('a server that is a Sentinel is refused, and the error says why', async () => {
    const server = await newServer({ args: ['--sentinel'], config: '\n' });
    const { failures } = await connect([server.url]);
    expect(failures).toEqual([expect.stringContaining('it is a Sentinel, which keeps no keys')]);
  });

  test('a server that is a node of a Redis Cluster is refused, and the error asks for an ioredis `Cluster`', async () => {
    const server = await newServer({ args: ['--cluster-enabled', 'yes'] });
    const { failures } = await connect([server.url]);
    expect(failures).toEqual([expect.stringContaining('give an ioredis `Cluster` instead')]);
  });

  test('a server that is a node of a Valkey Cluster is refused, and the error asks for an ioredis `Cluster`', async () => {
    const server = await newServer({ args: ['--cluster-enabled', 'yes'] });
    const connected = connectOver(likeValkey(await readyClientOf(server)));
    await expect(connected.ready).rejects.toThrow('give an ioredis `Cluster` instead');
  });
});

test.each([
  ['its mode', /^(redis_mode|server_mode|cluster_enabled):.*/gm, 'a node of a Redis Cluster'],
  ['its role', /^role:.*/gm, 'a replica'],
])('a server that does not report %s is used, with one warning (S17)', async (_what, fields, unnoticed) => {
  const client = await readyClientOf(await newServer(DURABLE));
  const { ready, warnings } = connectOver(rewriteInfo(client, (info) => info.replace(fields, '')));
  await ready;
  expect(warnings).toEqual([expect.stringContaining(`cannot tell whether the server is ${unnoticed}`)]);
});

/** Ways to make the write of the first check fail, and to end the fault. */
const REFUSALS: Readonly<
  Record<
    string,
    { begin: (server: RedisServer) => Promise<unknown>; end: (client: Redis) => Promise<unknown> }
  >
> = {
  OOM: {
    begin: (server) => server.client().config('SET', 'maxmemory', '1'),
    end: (client) => client.config('SET', 'maxmemory', '0'),
  },
  MISCONF: {
    begin: async (server) => {
      // A directory has the name of the dump, so Redis cannot rename its dump to it, not even as root.
      await mkdir(join(server.workingDirectory, 'dump.rdb'));
      const client = server.client();
      await client.config('SET', 'save', '3600 1');
      await client.bgsave();
      await until(async () => (await client.info('persistence')).includes('rdb_last_bgsave_status:err'));
    },
    end: (client) => client.config('SET', 'save', ''),
  },
  READONLY: {
    begin: async (server) => {
      // Without the right to INFO, the check does not see that the server is a replica.
      await server.client().call('ACL', 'SETUSER', 'default', '-info');
      await server.client().replicaof('127.0.0.1', 1);
    },
    end: (client) => client.replicaof('NO', 'ONE'),
  },
};

test.each(Object.entries(REFUSALS))(
  'a node whose first check failed (%s) votes when a later check succeeds',
  async (error, { begin, end }) => {
    const server = await newServer(DURABLE);
    await begin(server);
    const { nodes, failures } = await connect([server.url], true);
    expect(failures).toEqual([expect.stringContaining(error)]);
    await expect(answerOf(locksOver(nodes))).resolves.toContain(error);
    await end(server.client());
    await until(async () => (await attempt(locksOver(nodes))) === 'acquired');
  },
);

describe('the check for settings of a server that weaken locks', () => {
  test('the check of a server warns once when the server keeps no append-only file and has no restart guard (S13)', async () => {
    const { failures, warnings } = await connect([(await newServer()).url]);
    expect(failures).toEqual([]);
    expect(warnings).toEqual([expect.stringContaining('set appendonly to yes and appendfsync to always')]);
  });

  test('the check of a server gives no warning if the server persists every lock, or if the node has a restart guard (S12, S13)', async () => {
    await expect(connect([(await newServer(DURABLE)).url])).resolves.toMatchObject({ warnings: [] });
    await expect(connect([(await newServer()).url], true)).resolves.toMatchObject({ warnings: [] });
  });

  test('the check of a server warns once when the server evicts keys (S14)', async () => {
    const server = await newServer({ args: [...DURABLE.args!, '--maxmemory-policy', 'volatile-lru'] });
    const { warnings } = await connect([server.url]);
    expect(warnings).toEqual([expect.stringContaining('maxmemory-policy is volatile-lru')]);
  });

  test('the check of a server warns once when the user may not run INFO; the restart guard still works', async () => {
    const server = await newServer(DURABLE);
    await server
      .client()
      .call('ACL', 'SETUSER', 'app', 'on', '>secret', '~*', '+@all', '-info', '-config', '-publish');
    const { nodes, failures, warnings } = await connect(
      [`redis://app:secret@127.0.0.1:${server.port}`],
      true,
    );
    expect(failures).toEqual([]);
    expect(warnings).toEqual([expect.stringContaining('its user may not run INFO')]);
    const redlock = locksOver(nodes, { guard: GUARD });
    await until(async () => (await attempt(redlock)) === 'acquired');
    await server.client().flushall();
    await expect(answerOf(redlock)).resolves.toContain('lost its data');
  });
});

describe('a server that refuses some commands', () => {
  test('a server is used when it has no CONFIG command, like many hosted servers', async () => {
    const server = await newServer({ args: [...DURABLE.args!, '--rename-command', 'CONFIG', ''] });
    const { nodes, failures, warnings } = await connect([server.url]);
    expect({ failures, warnings }).toEqual({ failures: [], warnings: [] });
    await expect(answerOf(locksOver(nodes))).resolves.toBe('acquired');
  });

  test('a server is used when it has no INFO command', async () => {
    const server = await newServer({ args: [...DURABLE.args!, '--rename-command', 'INFO', ''] });
    const client = new Redis(server.url, { enableReadyCheck: false });
    const fleet = newFleet();
    const node = new RedisStore(client, false, fleet);
    await node.connect();
    await expect(answerOf(locksOver([node]))).resolves.toBe('acquired');
    expect(fleet.warnings).toEqual([expect.stringContaining('may not run INFO')]);
    client.disconnect();
  });
});

describe('the restart guard (S12)', () => {
  async function guardedNode(
    options?: StartRedisOptions,
  ): Promise<{ server: RedisServer; looker: Redis; redlock: Redlock; warnings: readonly string[] }> {
    const server = await newServer(options);
    const { nodes, warnings } = await connect([server.url], true);
    return { server, looker: server.client(), redlock: locksOver(nodes, { guard: GUARD }), warnings };
  }

  /**
   * Attempts until the lock is acquired, or until the error contains `outcome`. On a busy machine a node may miss its
   * time limit, which changes the error. The attempt is then repeated. An attempt that acquires is never repeated.
   */
  async function attemptUntil(redlock: Redlock, outcome: string): Promise<string> {
    let said = '';
    await until(async () => (said = await attempt(redlock)) === 'acquired' || said.includes(outcome));
    return said;
  }

  /** Expects the node to vote after the time that the error announces, and not before. */
  async function expectVoteAsAnnounced(redlock: Redlock, answer: string, asked: number): Promise<void> {
    const [, wait] = /it votes again in (\d+) ms \(restartGuard\)/.exec(answer) ?? [];
    await until(async () => (await attempt(redlock)) === 'acquired');
    expect(Number(wait)).toBeGreaterThan(0);
    // The announced time is rounded to whole milliseconds, and may be measured by the server's clock.
    expect(performance.now() - asked).toBeGreaterThan(Number(wait) - 5);
  }

  test('the restart guard keeps a new server from voting, and the error says for how long', async () => {
    const { redlock, warnings } = await guardedNode();
    const { answer, asked } = await answered(redlock);
    await expectVoteAsAnnounced(redlock, answer, asked);
    expect(warnings).toEqual([expect.stringMatching(/may have forgotten locks; it votes again in \d+ ms/)]);
  });

  test('the restart guard begins at the first connection to the node, so that a later lock need not wait', async () => {
    const { redlock } = await guardedNode();
    await delay(GUARD + 1_100);
    await expect(answerOf(redlock)).resolves.toBe('acquired');
  });

  test.each([
    ['lost its data', (server: RedisServer) => server.client().flushall()],
    ['restarted without its data', (server: RedisServer) => server.restart()],
  ])('the restart guard keeps a node from voting after it %s', async (_what, fault) => {
    const { server, redlock } = await guardedNode();
    await until(async () => (await attempt(redlock)) === 'acquired');
    await fault(server);
    const { answer, asked } = await answered(redlock);
    expect(answer).toContain('may have forgotten locks');
    await expectVoteAsAnnounced(redlock, answer, asked);
  });

  test('the restart guard keeps a node from voting after it restarted with its data and its old marker', async () => {
    const { server, looker, redlock } = await guardedNode(DURABLE);
    await until(async () => (await attempt(redlock)) === 'acquired');
    const marker = await looker.get('lock:redlock-node');
    await server.restart();
    expect((await answered(redlock)).answer).toContain('may have forgotten locks');
    await expect(server.client().get('lock:redlock-node')).resolves.toBe(marker);
    await until(async () => (await attempt(redlock)) === 'acquired');
  });

  test('the restart guard does not end sooner when the wall clock of this machine jumps forward', async () => {
    const { server, redlock } = await guardedNode(DURABLE);
    await until(async () => (await attempt(redlock)) === 'acquired');
    // The server restarts with its old data and the node's old marker, so that only the time since its start counts.
    await server.restart();
    const { answer, asked } = await answered(redlock);
    expect(answer).toContain('may have forgotten locks');
    const wall = Date.now.bind(Date);
    const clock = jest.spyOn(Date, 'now').mockImplementation(() => wall() + 30_000);
    try {
      await expectVoteAsAnnounced(redlock, answer, asked);
    } finally {
      clock.mockRestore();
    }
  });

  test.each([
    ['two callers can hold the lock at the same time when the restart guard is off', 0, 'acquired'],
    ['no second caller gets a held lock when the restart guard is on', 2 * GUARD, 'is held by alice'],
  ])('%s (guard %d ms)', async (_what, guard, outcome) => {
    const three = await Promise.all([newServer(), newServer(), newServer()]);
    const urls = three.map(({ url }) => url);
    const { nodes: alices } = await connect(urls, guard > 0);
    const { nodes: bobs } = await connect(urls, guard > 0);
    // Alice has a short time limit, so that her request to a paused server is soon too late.
    const alice = locksOver(alices, { owner: 'alice', guard, nodeTimeout: 100 });
    const bob = locksOver(bobs, { owner: 'bob', guard });
    await until(async () => (await attempt(bob)) === 'acquired');

    // Bob's release is complete when a quorum has confirmed it; the last node may still hold his lock.
    const lookers = three.map((server) => server.client());
    await until(async () => (await Promise.all(lookers.map(countLocks))).every((count) => count === 0));

    // Two of three nodes grant Alice the lock, and one of the two loses it.
    three[2]!.pause();
    // Several attempts, because a node may miss its time limit on a busy machine.
    const patiently = { timeout: 10 * GUARD, attempts: Infinity, delay: 20, jitter: 0 };
    const lock = await alice.acquire(['k'], { ...once, ttl: 2 * GUARD, retry: patiently });
    // When the third server wakes up, Alice's request is too late to store anything (S16).
    await delay(150);
    three[2]!.resume();
    await three[1]!.client().flushall();
    await expect(attemptUntil(bob, outcome)).resolves.toContain(outcome);
    expect(lock.isHeld()).toBe(true);
    await lock.release();
  });

  test.each([
    ['a task with minHold can run a second time when the restart guard is off', 0, 'acquired'],
    [
      'a task with minHold does not run a second time when the restart guard is on',
      2 * GUARD,
      'may have forgotten locks',
    ],
  ])('%s, after the only node is flushed', async (_what, guard, outcome) => {
    const server = await newServer();
    const { nodes: alices } = await connect([server.url], guard > 0);
    const { nodes: bobs } = await connect([server.url], guard > 0);
    const bob = locksOver(bobs, { owner: 'bob', guard });
    await until(async () => (await attempt(bob)) === 'acquired');
    const retry = { timeout: 10 * GUARD, attempts: Infinity, delay: 20, jitter: 0 };
    const lasting = { ...once, ttl: 2 * GUARD, minHold: 3_600_000, retry };
    const lock = await locksOver(alices, { owner: 'alice', guard }).acquire(['k'], lasting);
    await server.client().flushall();
    await expect(attemptUntil(bob, outcome)).resolves.toContain(outcome);
    expect(lock.isHeld()).toBe(true);
    await lock.release();
  });

  test.each([
    ['a key stays locked for minHold when one of three nodes loses its data', 1, 'is held by alice'],
    ['a key is free before minHold ends when two of three nodes lose their data', 2, 'acquired'],
  ])('%s', async (_what, wiped, outcome) => {
    const three = await Promise.all([newServer(), newServer(), newServer()]);
    const { nodes } = await connect(
      three.map(({ url }) => url),
      true,
    );
    const bob = locksOver(nodes, { owner: 'bob', guard: GUARD });
    await until(async () => (await attempt(bob)) === 'acquired');
    const lookers = three.map((server) => server.client());
    await until(async () => (await Promise.all(lookers.map(countLocks))).every((count) => count === 0));

    // All nodes must store the lock, so the ttl below is long: a node that does not answer within a fifth of the ttl
    // does not store it.
    const alice = locksOver(nodes, { owner: 'alice' });
    const patiently = { timeout: 20_000, attempts: Infinity, delay: 20, jitter: 0 };
    const long = { ...once, ttl: 60_000, retry: patiently, minHold: 3_600_000 };
    await (await alice.acquire(['k'], long)).release();
    await until(async () => (await Promise.all(lookers.map(countLocks))).every((count) => count === 1));
    for (const looker of lookers.slice(0, wiped)) await looker.flushall();
    await expect(attempt(bob)).resolves.not.toBe('acquired');
    // When all nodes vote again, their data alone decides whether they grant the lock.
    await until(async () =>
      (await Promise.all(nodes.map((node) => node.check(GUARD)))).every(({ state }) => state === 'voting'),
    );
    await expect(attemptUntil(bob, outcome)).resolves.toContain(outcome);
  });
});
