import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Bench } from './bench.js';

// Runs the groups that bench.test.ts leaves out. These tests do not judge the figures, which depend on the load of the
// machine.

let bench: Bench;

beforeAll(async () => {
  bench = await Bench.compile();
});
afterAll(() => bench.remove());

test('the benchmark measures allocations, keys left in Redis, server time, and cycles over a longer network path', async () => {
  const groups = ['network', 'objects', 'server-time', 'leftovers'];
  const output = await bench.run(...groups, '--only', 'raw,ours', '--nodes', '1', '--effort', '0.02');
  for (const group of groups) expect(output).toContain(`== ${group}:`);

  // A cycle is two round trips, so the proxy holds four messages back. Read from the output for how long. The time
  // depends on the machine: the proxy adds half a millisecond to a round trip, and its own work is a part of that time.
  const [, heldBack] = /holds each message back for\s+(\d+\.\d+) ms/.exec(output) ?? [];
  const network = await bench.medians('network');
  for (const name of ['raw', 'ours'])
    expect(network(name, 'cycle')).toBeGreaterThan(4_000 * Number(heldBack));

  const objects = await bench.medians('objects');
  for (const name of ['raw', 'ours']) {
    for (const figure of ['acquire.1', 'acquire.64', 'withLock.1', 'withLock.64']) {
      expect(objects(name, figure)).toBeGreaterThan(1);
      expect(objects(name, figure)).toBeLessThan(500);
    }
  }

  const serverTime = await bench.medians('server-time');
  for (const name of ['raw', 'ours']) {
    for (const figure of ['one.acquire', 'one.release', 'many.acquire', 'many.release'])
      expect(serverTime(name, figure)).toBeGreaterThan(0);
  }

  // This package keeps a record of each key in Redis for a while after the release.
  const leftovers = await bench.medians('leftovers');
  expect(leftovers('raw', 'keysAtOnce')).toBe(0);
  expect(leftovers('ours', 'keysAtOnce')).toBe(2_000);
  expect(leftovers('ours', 'bytesAtOnce')).toBeGreaterThan(200);
});

test('the benchmark measures throughput, hand-over, held locks, overhead, growth and simulation on one node', async () => {
  const groups = ['throughput', 'hand-over', 'held', 'overhead', 'growth', 'simulation'];
  const output = await bench.run(...groups, '--only', 'raw,ours', '--nodes', '1', '--effort', '0.02');
  for (const group of groups) expect(output).toContain(`== ${group}:`);
  // Each lock is renewed three times in a ttl, 100 locks in one command.
  const commands = (await bench.medians('held'))('ours', 'commands');
  expect(commands).toBeGreaterThan(0);
  expect(commands).toBeLessThan(0.2);
  await expect(bench.file('growth-held.svg')).resolves.toContain('<svg');
});

test('the benchmark compares kinds of lock, timeouts, many holders, and readers beside writers', async () => {
  const groups = ['kinds', 'timeouts', 'holders', 'readers'];
  const output = await bench.run(...groups, '--only', 'ours', '--nodes', '1', '--effort', '0.02');
  for (const group of groups) expect(output).toContain(`== ${group}:`);

  // For each kind of lock, one command acquires, and one releases.
  const kinds = await bench.medians('kinds');
  expect(kinds('exclusive', 'commands')).toBe(2);
  expect(kinds('shared', 'commands')).toBe(2);
  expect(kinds('permits: 5', 'commands')).toBe(2);
  const timeouts = await bench.medians(
    'timeouts',
    'Permits of ten seconds beside permits of a second, one node',
  );
  expect(timeouts('ours', 'ofOne')).toBe(1);
  expect(timeouts('ours', 'ofTwo')).toBe(2);

  const holders = await bench.medians('holders');
  expect(holders('500 of 1,000 permits', 'bytes')).toBeGreaterThan(20);

  const readers = await bench.medians('readers');
  expect(readers('0 writers', 'read.together')).toBeGreaterThan(1);
  expect(readers('1 writer', 'write.perSecond')).toBeGreaterThan(0);
});

test("the benchmark measures what `renew: 'thread'` adds", async () => {
  const output = await bench.run('thread', '--nodes', '1', '--effort', '0.02');
  expect(output).toContain('== thread:');
  const thread = await bench.medians('thread');
  for (const name of ['true', 'true, beside a thread', "'thread'"]) {
    for (const figure of ['took', 'cpu', 'handOver'])
      expect([name, figure, thread(name, figure) > 0]).toEqual([name, figure, true]);
  }
});

test('the benchmark counts the round trips in which permits are granted on three nodes', async () => {
  await bench.run('permits', '--only', 'ours', '--nodes', '3', '--effort', '0.02');
  const permits = await bench.medians('permits');
  expect(permits('3 permits, load 0.3', 'asked')).toBeGreaterThan(0);
  // The figure is a percentage: most requests are granted in one round trip.
  expect(permits('50 permits, load 0.3', 'first')).toBeGreaterThan(50);
});

test('the benchmark compares the costs of a lock, a hand-over and held locks in three stores', async () => {
  const output = await bench.run('stores', '--only', 'ours', '--nodes', '1', '--effort', '0.02');
  expect(output).toContain('== stores:');
  const stores = await bench.medians('stores');
  for (const name of ['ours in memory', 'ours in Redis', 'ours in PostgreSQL']) {
    for (const figure of ['acquire', 'release', 'perSecond', 'handOver', 'take', 'cpu'])
      expect([name, figure, stores(name, figure) > 0]).toEqual([name, figure, true]);
    expect(stores(name, 'kept')).toBe(100);
  }
});
