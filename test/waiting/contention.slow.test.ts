import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { setTimeout as delay } from 'node:timers/promises';
import { TURN_MS } from '../../lib/core/store-times.js';
import { heldKeys } from '../support/core.js';
import { type RedisServer, startRedisNodes } from '../support/redis-server.js';
import { until } from '../support/until.js';
import type { ContenderOptions, Served } from './contender.js';
import { outcomeOf, startContenders } from './contenders.js';
import { countPerLoop, gapsOf, jainIndex, sawSlowHandOver, servedMeanwhile } from './fairness.js';

/** The delay is so long that a waiter that polls exceeds the limits below. */
const lock = {
  ttl: 20_000,
  retry: { timeout: 60_000, delay: 10_000, jitter: 100 },
} satisfies ContenderOptions['lock'];

/** With a limit of attempts, a waiter in the queue that gets no message sleeps for the whole delay, not for five seconds. */
const limited = { ...lock, retry: { ...lock.retry, attempts: 1_000 } };

/** Milliseconds; the wait of a waiter that gets no message exceeds this limit. */
const FORGOTTEN_MS = 9_000;

const LONG = process.env['FAULTS'] === 'long';
/** Hand-overs in one test. They take so long that the connections for messages are cut several times. */
const HAND_OVERS = LONG ? 10_000 : 1_200;
/** Fewest grants to the 32 waiters: on average, each waiter gets at least 15. */
const SERVED = LONG ? 1_600 : 500;

function optionsFor(servers: readonly RedisServer[], more: Partial<ContenderOptions>): ContenderOptions {
  // The limit is long for one node, because a waiter that gets no answer in time polls after its long delay. It is
  // short for several nodes, because a node that hangs in a test must not delay the callers for long.
  const nodeTimeout = servers.length === 1 ? 4_000 : 1_000;
  const module = { nodes: servers.map(({ url }) => url), restartGuard: false as const, nodeTimeout };
  return { module, key: 'k', loops: 1, lock, hold: 1, ...more };
}

async function setCalls(looker: Redis): Promise<number> {
  const [, calls = '0'] = /cmdstat_set:calls=(\d+)/.exec(await looker.info('commandstats')) ?? [];
  return Number(calls);
}

/** Tokens increase from holder to holder, and no two holders hold the lock at the same time. */
function expectOneAtATime(served: readonly Served[]): void {
  for (const [index, { granted, token }] of served.entries()) {
    const before = served[index - 1];
    if (!before) continue;
    expect(token).toBeGreaterThan(before.token);
    expect(granted).toBeGreaterThanOrEqual(before.released);
  }
}

describe('one node, whose waiters acquire again and again', () => {
  let servers: RedisServer[];
  beforeAll(async () => {
    servers = await startRedisNodes(1);
  });
  afterAll(() => Promise.all(servers.map((server) => server.stop())));

  test.each([
    ['1 process', 32, 1],
    ['8 processes', 4, 8],
  ])(
    'waiters acquire equally often, about in order of arrival (%s, %d waiters per process)',
    async (_where, loops, processes) => {
      const key = `fair-${processes}`;
      const looker = servers[0]!.client();
      await looker.config('RESETSTAT');
      const contenders = await startContenders(processes, optionsFor(servers, { key, loops }));
      for (const contender of contenders) contender.tell('go');
      // Each acquisition and each release sets the record once.
      await until(async () => (await setCalls(looker)) >= 2 * SERVED, 240_000);
      const { served, errors } = await outcomeOf(contenders, 'stop');
      await Promise.all(contenders.map((contender) => contender.quit()));

      expect(errors).toEqual([]);
      expectOneAtATime(served);
      // After the first 64 grants all 32 waiters are in the queue.
      const settled = served.slice(64);
      expect(settled.length).toBeGreaterThan(100);
      expect(jainIndex(settled, 32)).toBeGreaterThanOrEqual(0.95);
      // While a waiter waits, each of the others is granted once. Waiters that poll would sometimes be granted twice. A
      // process that stalls for longer than a turn misses its own, so waits with such a stall do not count.
      const stalled = sawSlowHandOver(settled, TURN_MS);
      const overtaken = servedMeanwhile(settled).filter((_, index) => !stalled[index]);
      overtaken.sort((a, b) => a - b);
      const most = overtaken.length < 100 ? 0 : overtaken[Math.floor(0.95 * overtaken.length)];
      expect(most).toBeLessThanOrEqual(1.3 * 31);
      // Only the record of the free lock remains. It expires after 30 seconds (LINGER_MS).
      await expect(servers[0]!.client().keys(`*${key}*`)).resolves.toEqual([`lock:{${key}}`]);
    },
  );

  test(`six waiters in 3 processes hand the lock over ${HAND_OVERS} times without a long gap, even if the connections for messages are cut every 500 ms`, async () => {
    const contenders = await startContenders(
      3,
      optionsFor(servers, { key: 'cut', loops: 2, hold: 0, lock: limited }),
    );
    const looker = servers[0]!.client();
    await looker.config('RESETSTAT');
    for (const contender of contenders) contender.tell('go');
    let cuts = 0;
    while ((await setCalls(looker)) < 2 * HAND_OVERS) {
      await delay(500);
      cuts += Number(await looker.call('CLIENT', 'KILL', 'TYPE', 'pubsub'));
    }
    const { served, errors } = await outcomeOf(contenders, 'stop');
    await Promise.all(contenders.map((contender) => contender.quit()));
    expect(errors).toEqual([]);
    expect(cuts).toBeGreaterThan(1);
    expect(served.length).toBeGreaterThanOrEqual(HAND_OVERS);
    expectOneAtATime(served);
    expect(Math.max(...gapsOf(served))).toBeLessThan(FORGOTTEN_MS);
  });
});

describe('five nodes, whose waiters acquire again and again', () => {
  let servers: RedisServer[];
  beforeAll(async () => {
    servers = await startRedisNodes(5);
  });
  afterAll(() => Promise.all(servers.map((server) => server.stop())));

  test('waiters do not starve while the node with the queue hangs, dies and restarts (8 processes, 2 waiters per process)', async () => {
    const contenders = await startContenders(8, optionsFor(servers, { loops: 2 }));
    for (const contender of contenders) contender.tell('go');
    await delay(1_500);
    servers[0]!.pause();
    await delay(2_000);
    servers[0]!.resume();
    await delay(1_000);
    await servers[0]!.kill();
    await delay(1_500);
    await servers[0]!.start();
    await delay(1_000);
    const { served, errors } = await outcomeOf(contenders, 'stop');
    await Promise.all(contenders.map((contender) => contender.quit()));
    expect(errors).toEqual([]);
    expectOneAtATime(served);
    expect(countPerLoop(served)).toHaveLength(16);
    // When the queue node hangs, its waiters notice the fault after a second or two, and others acquire before them. On a
    // busy machine, a waiter may get no quorum of answers, and polls once.
    const poll = lock.retry.delay + lock.retry.jitter;
    expect(Math.max(...served.map(({ asked, granted }) => granted - asked))).toBeLessThan(10_000 + poll);
    // After each release, some waiter is granted before the first poll would come.
    expect(Math.max(...gapsOf(served))).toBeLessThan(lock.retry.delay - 1_000);
    // Each node keeps only its marker and its identity (the keys redlock-node and redlock-server), and the record of the
    // free lock, which expires after 30 seconds.
    const lookers = servers.map((server) => server.client());
    const left = await Promise.all(lookers.map((looker) => looker.keys('*')));
    expect(left.flat().filter((key) => key !== 'lock:{k}' && !key.startsWith('lock:redlock-'))).toEqual([]);
    // The first node may have missed a release of a process that has ended. The lock on that node ends with its ttl.
    const held = await Promise.all(lookers.slice(1).map(heldKeys));
    expect(held.flat()).toEqual([]);
  });
});
