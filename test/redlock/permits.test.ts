import { afterAll, afterEach, beforeAll, beforeEach, expect, jest, test } from '@jest/globals';
import type { AcquireOptions, Redlock } from '../../lib/redlock/redlock.js';
import { PERMITS } from '../../lib/stores/redis/scripts/permits.js';
import { nodesTo, redlockOver } from '../support/core.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';

const TTL = 30_000;

let servers: RedisServer[];
const opened: Redlock[] = [];

beforeAll(async () => {
  servers = await Promise.all([startRedis(), startRedis(), startRedis()]);
});
afterAll(() => Promise.all(servers.map((server) => server.stop())));
beforeEach(() => Promise.all(servers.map((server) => server.client().flushall())));
afterEach(async () => {
  jest.restoreAllMocks();
  await Promise.all(opened.splice(0).map((redlock) => redlock.close()));
});

async function over(...asked: readonly RedisServer[]): Promise<Redlock> {
  const nodes = nodesTo(asked.map(({ url }) => url));
  await Promise.all(nodes.map((node) => node.connect()));
  const redlock = redlockOver(nodes, { nodeTimeout: TTL / 5 });
  opened.push(redlock);
  return redlock;
}

/** A map of slots of which the first alone is taken. */
const ONLY_SLOT_0 = '@';

const twoOnce: AcquireOptions = {
  ttl: TTL,
  kind: { mode: 'permits', permits: 2 },
  retry: { timeout: 60_000, attempts: 1, delay: 0, jitter: 0 },
  renew: false,
  signals: [],
};

test('a node that gives another slot when the lock is won already gives it back', async () => {
  const [, , slow] = servers as [RedisServer, RedisServer, RedisServer];
  const [all, alone] = [await over(...servers), await over(slow)];
  // What is left there of another attempt has the slot that the others give.
  const left = await alone.acquire(['k'], twoOnce);
  expect(left.slot).toBe(0);
  jest.spyOn(Math, 'random').mockReturnValue(0);
  const client = slow.client();
  await client.call('CLIENT', 'PAUSE', 60_000, 'WRITE');
  const lock = await all.acquire(['k'], twoOnce);
  expect(lock.slot).toBe(0);
  await client.call('CLIENT', 'UNPAUSE');
  // That there were several is said from the moment that the slow node gave the other slot.
  await until(async () => {
    const record = (await client.get('lock:{k}')) ?? '';
    return record.slice(PERMITS.kind - 1, PERMITS.kind) === '+' && record[PERMITS.bits - 1] === ONLY_SLOT_0;
  });
  const other = await alone.acquire(['k'], twoOnce);
  expect(other.slot).toBe(1);
  await Promise.all([left, lock, other].map((each) => each.release()));
});
