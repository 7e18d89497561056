import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { Redis } from 'ioredis';
import { EXCLUSIVE, type LockKind } from '../../../lib/core/lock-mode.js';
import { leaseOf } from '../../../lib/stores/contract/store-asker.js';
import { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { Redlock } from '../../../lib/redlock/redlock.js';
import { identityKey } from '../../../lib/stores/redis/lock-key.js';
import { parseIdentity } from '../../../lib/stores/redis/scripts/identity.js';
import { acquireOn } from '../../support/ask-store.js';
import { storeOver } from '../../support/clients.js';
import { newFleet, nodesTo, redlockOver } from '../../support/core.js';
import { PATIENT } from '../../support/patience.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { startTcpProxy, type TcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';

/** Milliseconds; longer than a busy machine stands still. */
const GUARD = 3_000;

const ANOTHER_RUN = 'another run of a server wrote its data';

let servers: RedisServer[];
let opened: RedisStore[];
let proxy: TcpProxy | undefined;

beforeEach(() => {
  servers = [];
  opened = [];
});
afterEach(async () => {
  await Promise.all(opened.map((node) => node.close()));
  await proxy?.close();
  proxy = undefined;
  await Promise.all(servers.map((server) => server.stop()));
});

async function newServer(...args: string[]): Promise<RedisServer> {
  const server = await startRedis({ args });
  servers.push(server);
  return server;
}

/** A process with a node of its own. */
async function processAt(url: string): Promise<{ node: RedisStore; redlock: Redlock }> {
  const [node] = nodesTo([url], newFleet(true)) as [RedisStore];
  opened.push(node);
  await node.connect();
  return { node, redlock: redlockOver([node], { ...PATIENT, guard: GUARD }) };
}

async function attempt(redlock: Redlock, key = 'k'): Promise<string> {
  try {
    const lock = await redlock.acquire([key], { ttl: GUARD, retry: NO_RETRY, renew: false, signals: [] });
    await lock.release();
    return 'acquired';
  } catch (error) {
    return (error as Error).message;
  }
}

/** Errors of a node that did not answer, because of a busy machine or a cut connection. */
const busy = /not connected|no answer within|not answered for a while|too late|connection was/;

/** Attempts until the node answers. */
async function answerOf(redlock: Redlock): Promise<string> {
  let answer = '';
  await until(async () => !busy.test((answer = await attempt(redlock))));
  return answer;
}

async function votes({ redlock }: { redlock: Redlock }): Promise<void> {
  await until(async () => (await attempt(redlock)) === 'acquired');
}

/** Waits until the uptime of the server is no reason for the guard. */
async function isUpForLong(server: RedisServer): Promise<void> {
  const client = server.client();
  const least = GUARD / 1_000 + 2;
  await until(async () => Number(/uptime_in_seconds:(\d+)/.exec(await client.info('server'))?.[1]) >= least);
}

async function follow(server: RedisServer, master: RedisServer): Promise<void> {
  const client = server.client();
  await client.replicaof(master.host, master.port);
  await until(async () => (await client.info('replication')).includes('master_link_status:up'));
}

test('a node with the data of an earlier run is refused for one guard from the first sight, even if its uptime is long (S28)', async () => {
  const server = await newServer();
  const before = await processAt(server.url);
  await votes(before);
  await server.client().save();
  await before.node.close();
  await server.restart();
  await isUpForLong(server);
  const after = await processAt(server.url);
  await expect(answerOf(after.redlock)).resolves.toContain(ANOTHER_RUN);
  const check = await after.node.check(GUARD);
  expect(check).toMatchObject({ state: 'guarded', reason: expect.stringContaining(ANOTHER_RUN) });
  expect(check.votesIn).toBeLessThanOrEqual(GUARD);
  await votes(after);
  await expect(after.node.check(GUARD)).resolves.toMatchObject({ state: 'voting' });
});

test('a promoted replica is refused for one guard, also if it lacks the first lock of its master (S28)', async () => {
  const [master, early, late] = [await newServer(), await newServer(), await newServer()];
  const before = await processAt(master.url);
  const promote = (replica: RedisServer): Promise<unknown> => replica.client().replicaof('NO', 'ONE');
  // This replica gets the marker and the identity, and no lock.
  await follow(early, master);
  await promote(early);
  await votes(before);
  await follow(late, master);
  await promote(late);
  for (const replica of [early, late]) {
    await isUpForLong(replica);
    const after = await processAt(replica.url);
    await expect(answerOf(after.redlock)).resolves.toContain(ANOTHER_RUN);
    await votes(after);
  }
});

test('a node that was a replica between two acquisitions is refused, on the same connection (S28)', async () => {
  const [node, other] = [await newServer(), await newServer()];
  const process = await processAt(node.url);
  await votes(process);
  // The other server gets the data and the identity of the node, but not its later locks.
  await follow(other, node);
  await other.client().replicaof('NO', 'ONE');
  await isUpForLong(node);
  await votes(process);
  const ids = (await node.client().client('LIST')) as string;
  await follow(node, other);
  await node.client().replicaof('NO', 'ONE');
  await expect(answerOf(process.redlock)).resolves.toContain('it was a replica');
  await expect(process.node.check(GUARD)).resolves.toMatchObject({
    state: 'guarded',
    reason: expect.stringContaining('it was a replica'),
  });
  // The connection of the process stayed.
  const [id] = /^id=\d+/.exec(ids) ?? [];
  await expect(node.client().client('LIST')).resolves.toContain(`${id} `);
  await votes(process);
});

test('another server at the same address is refused, even if the package used that server before (S28)', async () => {
  const [one, two] = [await newServer(), await newServer()];
  await votes(await processAt(two.url));
  proxy = await startTcpProxy(one);
  const process = await processAt(proxy.url);
  await votes(process);
  await isUpForLong(two);
  proxy.redirect(two);
  proxy.cut();
  await expect(answerOf(process.redlock)).resolves.toContain(ANOTHER_RUN);
  // Processes that begin now learn of it from the server.
  const late = await processAt(proxy.url);
  await expect(late.node.check(GUARD)).resolves.toMatchObject({ state: 'guarded' });
  await votes(process);
});

test('a process that was idle while its server was replaced does not begin the guard again that the others have passed (S28)', async () => {
  const [one, two] = [await newServer(), await newServer()];
  await votes(await processAt(two.url));
  proxy = await startTcpProxy(one);
  const busyProcess = await processAt(proxy.url);
  // The loss of this connection becomes known only later, as with a network that drops it without a word.
  const late = await startTcpProxy(one);
  const client = new Redis(late.url);
  client.on('error', () => undefined);
  const node = storeOver(client, newFleet(true));
  opened.push(node);
  await node.connect();
  const idle = { node, redlock: redlockOver([node], { ...PATIENT, guard: GUARD }) };
  await Promise.all([votes(busyProcess), votes(idle)]);
  await isUpForLong(two);
  proxy.redirect(two);
  proxy.cut();
  await expect(answerOf(busyProcess.redlock)).resolves.toContain(ANOTHER_RUN);
  const firstSight = async (): Promise<number | undefined> =>
    parseIdentity(await two.client().get(identityKey('lock:')))?.since;
  const before = await firstSight();
  expect(before).toEqual(expect.any(Number));
  late.redirect(two);
  late.cut();
  await votes(idle);
  expect(await firstSight()).toBe(before);
  await votes(busyProcess);
  client.disconnect();
  await late.close();
});

test('a master votes while its first replica attaches, and after its backlog expired (S28)', async () => {
  const master = await newServer('--repl-backlog-ttl', '1', '--repl-diskless-sync-delay', '0');
  const replica = await newServer();
  const process = await processAt(master.url);
  await votes(process);
  const client = master.client();
  const history = async (): Promise<string | undefined> =>
    /master_replid:(\w+)/.exec(await client.info('replication'))?.[1];
  const first = await history();
  await follow(replica, master);
  const second = await history();
  expect(second).not.toBe(first);
  await expect(answerOf(process.redlock)).resolves.toBe('acquired');
  await replica.client().replicaof('NO', 'ONE');
  await until(async () => (await history()) !== second);
  await expect(answerOf(process.redlock)).resolves.toBe('acquired');
});

test('a node with an old marker and no identity votes, and gets an identity (S28)', async () => {
  const server = await newServer();
  const process = await processAt(server.url);
  await votes(process);
  const client = server.client();
  await client.del(identityKey('lock:'));
  await expect(answerOf(process.redlock)).resolves.toBe('acquired');
  await expect(client.get(identityKey('lock:'))).resolves.toMatch(/ run_id:\w{40}$/);
});

test('a replica that becomes a master gives no vote for a lock that it has copied from its master, but that master repeats its vote (S28)', async () => {
  const [master, node] = [await newServer(), await newServer()];
  const granting = await processAt(master.url);
  await votes(granting);
  await votes(await processAt(node.url));
  const kinds: readonly LockKind[] = [EXCLUSIVE, { mode: 'shared' }, { mode: 'permits', permits: 2 }];
  const leases = kinds.map((kind) => leaseOf(kind, `a ${kind.mode} lock`));
  const terms = { guard: GUARD, proposal: 1 };
  for (const lease of leases) await acquireOn(granting.node, lease, terms);
  await follow(node, master);
  await node.client().replicaof('NO', 'ONE');
  const { node: promoted } = await processAt(node.url);
  for (const lease of leases) {
    await expect(acquireOn(granting.node, lease, terms)).resolves.toMatchObject({ granted: true });
    // This guard outlasts the test.
    await expect(acquireOn(promoted, lease, { ...terms, guard: 3_600_000 })).rejects.toThrow(ANOTHER_RUN);
  }
});
