import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { Lease } from '../../../lib/core/lease.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import { tokenAt } from '../../../lib/core/fencing-token.js';
import type { LockHandle } from '../../../lib/core/lock-handle.js';
import type { AcquireReply } from '../../../lib/core/ports.js';
import { LINGER_MS } from '../../../lib/core/store-times.js';
import type { Redlock } from '../../../lib/redlock/redlock.js';
import { identityKey, markerKey, recordKey } from '../../../lib/stores/redis/lock-key.js';
import type { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { acquireOn } from '../../support/ask-store.js';
import { newFleet, nodesTo, recordOf, redlockOver } from '../../support/core.js';
import { PATIENT } from '../../support/patience.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { until } from '../../support/until.js';

// During a rolling upgrade, processes of the former version run beside processes of this one. The former version is here
// as its scripts, in test/fixtures: those from before a node had an identity key (S28), without their queues and ticks.

const PREFIX = 'lock:';
const TTL = 60_000;
/** Milliseconds; longer than a busy machine stands still. */
const GUARD = 3_000;

let server: RedisServer;
let client: Redis;
let node: RedisStore;
let redlock: Redlock;

beforeAll(async () => {
  server = await startRedis();
  client = server.client();
  await former('birth', [markerKey(PREFIX)]);
  [node] = nodesTo([server.url], newFleet(true)) as [RedisStore];
  await node.connect();
  redlock = redlockOver([node], { ...PATIENT, guard: GUARD });
  await votes();
});
afterAll(async () => {
  await node.close();
  await server.stop();
});

async function former(name: string, keys: readonly string[], ...args: (string | number)[]): Promise<unknown> {
  return client.eval(
    await readFile(`test/fixtures/former-${name}.lua`, 'utf8'),
    keys.length,
    ...keys,
    ...args,
  );
}

/** Acquires a key as the former version does; returns the token, or `undefined` if another lease holds the key. */
async function acquireAsFormer(key: string): Promise<number | undefined> {
  const lease = `${randomBytes(16).toString('hex')}:${Date.now()}:the former version`;
  const proposal = tokenAt(Date.now()) + 1;
  const reply = (await former(
    'acquire',
    [markerKey(PREFIX), recordKey(PREFIX, key)],
    ...['p-m', TTL + LINGER_MS, Date.now() + TTL, `${PREFIX}wake:`, GUARD, proposal, lease],
  )) as number | readonly unknown[];
  // The number alone is the clock of the server: the lease has the proposed token.
  if (typeof reply === 'number') return proposal;
  return typeof reply[0] === 'number' ? reply[0] : undefined;
}

function acquire(key: string): Promise<LockHandle> {
  return redlock.acquire([key], { ttl: GUARD, retry: NO_RETRY, renew: false, signals: [] });
}

/** Waits until the node votes for this version. */
function votes(): Promise<void> {
  return until(async () => {
    const lock = await acquire('first').catch(() => undefined);
    await lock?.release();
    return lock !== undefined;
  });
}

test('processes of the former version and of this one exclude each other, and their tokens increase', async () => {
  await expect(acquireAsFormer('theirs')).resolves.toEqual(expect.any(Number));
  await expect(acquire('theirs')).rejects.toThrow('the former version');
  const lock = await acquire('ours');
  await expect(acquireAsFormer('ours')).resolves.toBeUndefined();
  await lock.release();
  await expect(acquireAsFormer('ours')).resolves.toBeGreaterThan(lock.fencingToken);
});

test('a lock that heals is held for the former version, too, and does not end its locks (S26)', async () => {
  const heal = (key: string): Promise<AcquireReply> =>
    acquireOn(node, new Lease([key], 'me', TTL), { heals: true, proposal: tokenAt(Date.now()) });
  await acquireAsFormer('held by them');
  await expect(heal('held by them')).resolves.toMatchObject({ granted: false });
  await expect(heal('healed')).resolves.toMatchObject({ granted: true });
  await expect(acquireAsFormer('healed')).resolves.toBeUndefined();
});

test('a process of the former version that votes and replaces the marker does not end the guard (S28)', async () => {
  // The data is that of another run, as after a restart.
  const identity = (await client.get(identityKey(PREFIX)))!;
  await client.set(identityKey(PREFIX), identity.replace(/(?<=id:)\w{40}/g, 'f'.repeat(40)));
  const marker = await client.get(markerKey(PREFIX));
  const ahead = recordOf('a node whose clock is ahead', undefined, tokenAt(Date.now() + TTL)).replace(
    /^H/,
    'F',
  );
  await client.set(recordKey(PREFIX, 'ahead'), ahead, 'PX', LINGER_MS);
  await expect(acquireAsFormer('ahead')).resolves.toEqual(expect.any(Number));
  await expect(client.get(markerKey(PREFIX))).resolves.not.toBe(marker);
  await expect(acquire('k')).rejects.toThrow('another run of a server wrote its data');
  await votes();
});
