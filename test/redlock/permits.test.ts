import { afterAll, afterEach, beforeAll, beforeEach, expect, jest, test } from '@jest/globals';
import type { AcquireRequest } from '../../lib/core/ports.js';
import type { HeldLock } from '../../lib/redlock/held-lock.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import { PERMITS } from '../../lib/stores/redis/scripts/permits.js';
import { nodesTo, redlockOver } from '../support/core.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { type ScriptedNode, scriptedNodes } from '../support/scripted-node.js';
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

/** The character in a record that encodes the taken slots, when only slot 0 is taken. */
const ONLY_SLOT_0 = '@';

const twoOnce: AcquireTerms = {
  ttl: TTL,
  kind: { mode: 'permits', permits: 2 },
  retry: { timeout: 60_000, attempts: 1, delay: 0, jitter: 0 },
  renew: false,
  signals: [],
};

test('`acquire` with permits frees a slot that a slow node grants after the lock is won with a different slot', async () => {
  const [, , slow] = servers as [RedisServer, RedisServer, RedisServer];
  const [all, alone] = [await over(...servers), await over(slow)];
  // Another holder has a record on the slow node, in the slot that the other nodes grant.
  const left = await alone.acquire(['k'], twoOnce);
  expect(left.slot).toBe(0);
  jest.spyOn(Math, 'random').mockReturnValue(0);
  const client = slow.client();
  await client.call('CLIENT', 'PAUSE', 60_000, 'WRITE');
  const lock = await all.acquire(['k'], twoOnce);
  expect(lock.slot).toBe(0);
  await client.call('CLIENT', 'UNPAUSE');
  // The record changes to the form for several holders (`+`) when the slow node grants the other slot, and keeps this
  // form when that slot is freed.
  await until(async () => {
    const record = (await client.get('lock:{k}')) ?? '';
    return record.slice(PERMITS.kind - 1, PERMITS.kind) === '+' && record[PERMITS.bits - 1] === ONLY_SLOT_0;
  });
  const other = await alone.acquire(['k'], twoOnce);
  expect(other.slot).toBe(1);
  await Promise.all([left, lock, other].map((each) => each.release()));
});

function once(permits: number): AcquireTerms {
  return { ...twoOnce, kind: { mode: 'permits', permits } };
}

/** One `Redlock` over three nodes in memory, and one over each of these nodes. */
function inMemory(): { nodes: ScriptedNode[]; all: Redlock; alone: Redlock[] } {
  const nodes = scriptedNodes(3);
  const all = redlockOver(nodes, { nodeTimeout: TTL / 5 });
  return { nodes, all, alone: nodes.map((node) => redlockOver([node], { nodeTimeout: TTL / 5 })) };
}

/** The taken slots at each node. */
async function slotsAt(nodes: readonly ScriptedNode[]): Promise<(number | undefined)[][]> {
  const states = await Promise.all(nodes.map((node) => node.memory.read(['k'])));
  const slots = states.map(([state]) =>
    (state && 'holders' in state ? state.holders : []).map(({ slot }) => slot),
  );
  return slots.map((each) => each.toSorted());
}

test('`acquire` with permits tries a second slot when a majority of nodes has other holders in the first slot', async () => {
  const { all, alone } = inMemory();
  // Each node has a different lowest free slot.
  await alone[1]!.acquire(['k'], once(3));
  await alone[2]!.acquire(['k'], once(3));
  await alone[2]!.acquire(['k'], once(3));
  jest.spyOn(Math, 'random').mockReturnValueOnce(0).mockReturnValue(0.5);
  const lock = await all.acquire(['k'], once(3));
  expect(lock.slot).toBe(1);
});

test('`acquire` with permits gives up after a few rounds in which it wins no slot on a quorum, and leaves no record', async () => {
  const { nodes, all, alone } = inMemory();
  for (const redlock of alone) await redlock.acquire(['k'], once(3));
  for (const redlock of alone.slice(1)) await redlock.acquire(['k'], once(3));
  await alone[2]!.acquire(['k'], once(3));
  const before = await slotsAt(nodes);
  jest.spyOn(Math, 'random').mockReturnValue(0.4);
  await expect(all.acquire(['k'], once(3))).rejects.toThrow('is held by');
  expect(await slotsAt(nodes)).toEqual(before);
  expect(new Set(nodes[0]!.leases.slice(1)).size).toBeLessThanOrEqual(5);
});

test('a lock with permits is stored on a node that had no free slot, as soon as the slot of the lock is free there', async () => {
  const { nodes, all, alone } = inMemory();
  const late = [await alone[2]!.acquire(['k'], once(2)), await alone[2]!.acquire(['k'], once(2))];
  const lock = await all.acquire(['k'], once(2));
  await Promise.all(late.map((each) => each.release()));
  await until(async () => (await slotsAt(nodes))[2]?.includes(lock.slot) === true);
  await lock.release();
  expect(await slotsAt(nodes)).toEqual([[], [], []]);
});

test.each([
  ['released', (lock: HeldLock) => lock.release()],
  ['lost', (lock: HeldLock) => lock.lose('a test')],
])('a %s lock with permits is not requested again from a node that had no free slot', async (_, end) => {
  const { nodes, all, alone } = inMemory();
  const late = [await alone[2]!.acquire(['k'], once(2)), await alone[2]!.acquire(['k'], once(2))];
  const lock = await all.acquire(['k'], once(2));
  await end(lock);
  const asked = nodes[2]!.count('acquire');
  await Promise.all(late.map((each) => each.release()));
  // This is longer than every pause between two requests.
  await new Promise((resolve) => setTimeout(resolve, 150));
  expect(nodes[2]!.count('acquire')).toBe(asked);
  expect((await slotsAt(nodes))[2]).toEqual([]);
  await lock.release();
});

test('`acquire` with permits asks the other nodes for the slot that the first node granted', async () => {
  const { nodes, all } = inMemory();
  const wishes: (readonly number[] | undefined)[] = [];
  for (const { memory } of nodes) {
    const { acquire } = memory;
    memory.acquire = (requests, ordered, tell) => {
      for (const { wish } of requests as readonly AcquireRequest[]) wishes.push(wish?.slots);
      acquire.call(memory, requests, ordered, tell);
    };
  }
  // The first node reports recent waiters: an attempt then asks this node alone, before it asks the others.
  nodes[0]!.contended = () => true;
  await (await redlockOver([nodes[0]!]).acquire(['k'], once(50))).release();
  const [taken] = [await redlockOver([nodes[0]!]).acquire(['k'], once(50))];
  wishes.length = 0;
  jest.spyOn(Math, 'random').mockReturnValue(taken.slot! / 50);
  const lock = await all.acquire(['k'], { ...once(50), retry: { ...twoOnce.retry, attempts: 2 } });
  expect(wishes).toEqual([[taken.slot], [lock.slot], [lock.slot]]);
  expect(lock.slot).not.toBe(taken.slot);
});
