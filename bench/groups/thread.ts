import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { setTimeout as sleep } from 'node:timers/promises';
import { type LockHandle, type LockService, THREAD_CHANNEL, type ThreadEvent } from '../../lib/index.js';
import { LINGER_MS } from '../../lib/core/store-times.js';
import { openService } from '../contenders/ours-app.js';
import { type Figure, type Figures, interleaved, once, type Sample } from '../measure/rounds.js';
import { Servers } from '../measure/servers.js';
import { median, quantile } from '../measure/statistics.js';
import type { ResultTable } from '../report/tables.js';
import { type Group, type Plan, times } from './group.js';
import { heldTtl } from './held.js';

const TTL = 10_000;
/** Milliseconds after which the thread has started and has connected. */
const STARTED_MS = 3_000;
const IN_FLIGHT = 100;

/** Locks that are renewed in one way. */
interface Way {
  readonly name: string;
  readonly locks: LockService;
  readonly renew: true | 'thread';
}

/** Measures the cost of `renew: 'thread'`, in one process, with one node. */
export const thread: Group = {
  name: 'thread',
  about: "what `renew: 'thread'` adds to acquire and release, to a hand-over, and to held locks",
  async run(plan) {
    const servers = await Servers.start(1);
    const failures: Error[] = [];
    const failed = (event: unknown): void => void failures.push((event as ThreadEvent).error);
    subscribe(THREAD_CHANNEL, failed);
    try {
      const plain = await openService([...servers.urls]);
      const before = process.memoryUsage().rss;
      const threaded = await openService([...servers.urls]);
      const first = await threaded.locks.acquire('first', { ttl: TTL, renew: 'thread' });
      await sleep(STARTED_MS);
      await first.release();
      const memory = (process.memoryUsage().rss - before) / 2 ** 20;
      const ways: readonly Way[] = [
        { name: 'true', locks: plain.locks, renew: true },
        { name: 'true, beside a thread', locks: threaded.locks, renew: true },
        { name: "'thread'", locks: threaded.locks, renew: 'thread' },
      ];
      const tables = [await short(ways, plan), await held(ways, servers, plan, memory)];
      await Promise.all([plain.close(), threaded.close()]);
      // The main thread then renews the locks, which would be measured as if the thread cost nothing.
      if (failures.length > 0) throw new AggregateError(failures, 'the thread for renewals has failed');
      return { tables };
    } finally {
      unsubscribe(THREAD_CHANNEL, failed);
      await servers.stop();
    }
  },
};

async function short(ways: readonly Way[], plan: Plan): Promise<ResultTable> {
  const count = times(300, plan, 20);
  const runners = ways.map((way) => ({
    name: way.name,
    run: async (): Promise<Sample> => ({
      ...(await cycles(way, count)),
      handOver: await handOvers(way, count),
    }),
  }));
  for (const { run } of runners) await run();
  return {
    title: '`renew`: acquire and release, and a hand-over, p50, us',
    rows: await interleaved(runners, times(21, plan, 3)),
    columns: [
      { figure: 'took', title: 'acquire and release', digits: 0, ratio: true },
      // Other work on the machine disturbs it least.
      { figure: 'fastest', title: 'the same, p10', digits: 0, ratio: true },
      { figure: 'cpu', title: 'CPU of the process for both', digits: 0, ratio: true },
      { figure: 'handOver', title: 'hand-over', digits: 0, ratio: true },
    ],
    notes: ['The CPU of the process has that of the thread in it. The ratios are to the first row.'],
  };
}

async function cycles({ locks, renew }: Way, count: number): Promise<Sample> {
  const took: number[] = [];
  const before = process.cpuUsage();
  for (let index = 0; index < count; index++) {
    const begun = performance.now();
    const lock = await locks.acquire(`cycle:${index}`, { ttl: TTL, renew, retry: false });
    await lock.release();
    took.push(1_000 * (performance.now() - begun));
  }
  const { user, system } = process.cpuUsage(before);
  return { took: median(took), fastest: quantile(took, 0.1), cpu: (user + system) / count };
}

/** From a release to the next holder, which waits in the same process. */
async function handOvers({ locks, renew }: Way, count: number): Promise<number> {
  const took: number[] = [];
  for (let turn = 0; turn < count / 10; turn++) {
    const lock = await locks.acquire('hand-over', { ttl: TTL, renew });
    const waiting = locks
      .acquire('hand-over', { ttl: TTL, renew })
      .then((next) => ({ next, at: performance.now() }));
    await sleep(5);
    const released = performance.now();
    await lock.release();
    const { next, at } = await waiting;
    took.push(1_000 * (at - released));
    await next.release();
  }
  return median(took);
}

async function held(
  ways: readonly Way[],
  servers: Servers,
  plan: Plan,
  memory: number,
): Promise<ResultTable> {
  const count = times(10_000, plan, 100);
  const ttl = heldTtl(plan);
  const rows = new Map<string, Readonly<Record<string, Figure>>>();
  for (const way of ways) rows.set(way.name, once(await hold(way, servers, count, ttl)));
  return {
    title: `\`renew\`: ${count} locks held, ttl ${ttl / 1_000} s`,
    rows: rows satisfies Figures,
    columns: [
      { figure: 'cpu', title: 'CPU of the process, % of a core', digits: 1 },
      { figure: 'kept', title: 'kept, %', digits: 1 },
    ],
    notes: [
      `The thread and its connections take ${memory.toFixed(0)} MiB of memory (resident set), before it has locks.`,
    ],
  };
}

async function hold({ locks, renew }: Way, servers: Servers, count: number, ttl: number): Promise<Sample> {
  const all: LockHandle[] = [];
  const keys = Array.from({ length: count }, (_, index) => `held:${index}`);
  for (let at = 0; at < count; at += IN_FLIGHT) {
    const some = keys.slice(at, at + IN_FLIGHT).map((key) => locks.acquire(key, { ttl, renew }));
    all.push(...(await Promise.all(some)));
  }
  const before = process.cpuUsage();
  await sleep(ttl);
  const { user, system } = process.cpuUsage(before);
  const kept = (100 * (await servers.locksOf('held:', LINGER_MS))) / count;
  for (let at = 0; at < count; at += IN_FLIGHT)
    await Promise.all(all.slice(at, at + IN_FLIGHT).map((lock) => lock.release()));
  return { cpu: (user + system) / 10 / ttl, kept };
}
