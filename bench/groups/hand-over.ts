import { setTimeout as sleep } from 'node:timers/promises';
import type { Contender, Session } from '../contenders/contender.js';
import { alone, type Figure, interleaved, once, prefixed, type Sample } from '../measure/rounds.js';
import { Servers } from '../measure/servers.js';
import { jain, mean, quantile } from '../measure/statistics.js';
import { withWorkers } from '../measure/workers.js';
import type { ResultTable } from '../report/tables.js';
import { distinct, fit, type Group, nodesTitle, type Plan, times } from './group.js';
import { type Opened, withSessions } from './sessions.js';

const WAITERS = 32;
const HOLD = 1;
const TTL = 10_000;
/** Milliseconds within which a waiting call gets into the queue, even on a busy machine. */
const QUEUED = 300;
/** Time limit of a waiter, in milliseconds. */
const PATIENCE = 5_000;

/** Measures the cost of waiting, and the order of acquisitions. */
export const handOver: Group = {
  name: 'hand-over',
  about: `from release to the next holder; ${WAITERS} waiters that hold for ${HOLD} ms, in one process and in eight`,
  async run(plan) {
    const tables: ResultTable[] = [];
    for (const nodes of plan.nodes) {
      const contenders = distinct(fit(plan.contenders, nodes));
      tables.push(await single(contenders, nodes, plan), await many(contenders, nodes, plan));
      // Only a single node promises an order.
      if (nodes === 1) tables.push(await behindTheDead(contenders, plan));
    }
    return { tables };
  },
};

/** Measures hand-overs: one session holds the lock, and another session waits. */
async function single(contenders: readonly Contender[], nodes: number, plan: Plan): Promise<ResultTable> {
  const rows = await withSessions(nodes, contenders, async (holders, servers) => {
    const waiting = await Promise.all(contenders.map((contender) => contender.open(servers.urls)));
    const exchanges = holders.map(
      ({ contender, session }, index) =>
        async (after: number): Promise<number> => {
          const key = `hand-over:${contender.name}`;
          const release = await session.acquire(key, TTL);
          const waiter = waiting[index]!.wait(key, TTL).then((next) => ({ next, at: performance.now() }));
          await sleep(after);
          const released = performance.now();
          await release();
          const { next, at } = await waiter;
          await next();
          return at - released;
        },
    );
    for (const exchange of exchanges) {
      const begun = performance.now();
      while (performance.now() - begun < times(1_000, plan)) await exchange(2);
    }
    const figures = await interleaved(
      exchanges.map((exchange, index) => ({
        name: contenders[index]!.name,
        // The lock is held for a random time, so that its releases do not coincide with the polls of a library.
        run: async () => ({ took: await exchange(50 + Math.random() * 400) }),
      })),
      times(5, plan, 2),
    );
    await Promise.all(waiting.map((session) => session.close()));
    return figures;
  });
  return {
    title: `Hand-over to a single waiter, ${nodesTitle(nodes)}, ms from release to acquired`,
    rows,
    columns: [{ figure: 'took', title: 'p50', digits: 2 }],
  };
}

const FAULTS = ['killed', 'stopped'] as const;

/** Measures the delay of the next waiter when the first waiter dies. */
async function behindTheDead(contenders: readonly Contender[], plan: Plan): Promise<ResultTable> {
  const rows = await withSessions(1, contenders, async (holders, servers) => {
    const next = await Promise.all(contenders.map((contender) => contender.open(servers.urls)));
    const figures = new Map<string, Record<string, Figure>>();
    for (const fault of FAULTS) {
      const delays: number[][] = contenders.map(() => []);
      for (let round = 0; round < times(5, plan); round++) {
        const ofRound = await delaysBehind(holders, next, servers, `dead:${fault}:${round}`, fault);
        for (const [index, delay] of ofRound.entries()) delays[index]?.push(delay);
      }
      for (const [index, { name }] of contenders.entries()) {
        const ofContender = delays[index] ?? [];
        figures.set(name, {
          ...figures.get(name),
          [fault]: alone(ofContender),
          [`${fault}.longest`]: alone([Math.max(...ofContender)]),
        });
      }
    }
    await Promise.all(next.map((session) => session.close()));
    return figures;
  });
  return {
    title: 'The first of two waiters dies, one node, ms from release to the next',
    rows,
    columns: [
      { figure: 'killed', title: 'SIGKILL: p50', digits: 1 },
      { figure: 'killed.longest', title: 'longest', digits: 1 },
      { figure: 'stopped', title: 'SIGSTOP: p50', digits: 1 },
      { figure: 'stopped.longest', title: 'longest', digits: 1 },
    ],
    notes: [`never: not within ${PATIENCE / 1_000} s.`],
  };
}

/**
 * Returns for each library the milliseconds from the release until the second waiter has the lock, or Infinity if it
 * does not get the lock in time.
 */
function delaysBehind(
  holders: readonly Opened[],
  next: readonly Session[],
  servers: Servers,
  key: string,
  fault: (typeof FAULTS)[number],
): Promise<number[]> {
  return withWorkers(holders.length, async (firsts) => {
    const queues = await Promise.all(
      holders.map(async ({ contender: { name }, session }, index) => {
        const first = firsts[index];
        const own = `${key}:${name}`;
        await first?.ask('open', { name, urls: servers.urls });
        const release = await session.acquire(own, TTL);
        void first?.ask('queue', { key: own, waiters: 1, each: 1, hold: HOLD, within: PATIENCE });
        await sleep(QUEUED);
        const served = waited(next[index]!, own).catch(() => Infinity);
        await sleep(QUEUED);
        return { first, release, served };
      }),
    );
    const delays: number[] = [];
    // The measurements run one after the other, because concurrent measurements disturb each other.
    for (const { first, release, served } of queues) {
      if (fault === 'killed') await first?.end();
      else first?.pause();
      const released = performance.now();
      await release();
      delays.push((await Promise.race([served, sleep(PATIENCE, Infinity, { ref: false })])) - released);
    }
    return delays;
  });
}

/** Waits for the lock, releases it immediately, and resolves to the time of the acquisition. */
async function waited(session: Session, key: string): Promise<number> {
  const release = await session.wait(key, TTL);
  const at = performance.now();
  await release();
  return at;
}

async function many(contenders: readonly Contender[], nodes: number, plan: Plan): Promise<ResultTable> {
  const servers = await Servers.start(nodes);
  try {
    await servers.oldEnough();
    const rows = new Map<string, Readonly<Record<string, Figure>>>();
    const again: Turns = { each: Infinity, within: times(1_000, plan, 100) };
    // Only a single node promises an order.
    const ordered = nodes === 1;
    for (const contender of contenders) {
      const sample = {
        ...(await queue(contender, servers, WAITERS, 1, {
          fresh: ONCE,
          one: ONCE,
          ...(ordered ? { again1: again } : {}),
        })),
        ...(await queue(contender, servers, WAITERS, 8, { fresh8: ONCE, eight: ONCE, again })),
      };
      rows.set(contender.name, once(sample));
    }
    return {
      title: `${WAITERS} waiters, each holds for ${HOLD} ms, ${nodesTitle(nodes)}`,
      rows,
      columns: [
        { figure: 'fresh.took', title: 'one process: all served, ms', digits: 0 },
        { figure: 'one.took', title: 'a second time, ms', digits: 0 },
        { figure: 'one.commands', title: 'commands per acquire and node', digits: 1 },
        ...(ordered
          ? [{ figure: 'again1.longest', title: 'again and again: longest wait to mean', digits: 1 }]
          : []),
        { figure: 'fresh8.took', title: 'eight processes: all served, ms', digits: 0 },
        { figure: 'eight.took', title: 'a second time, ms', digits: 0 },
        { figure: 'eight.commands', title: 'commands', digits: 1 },
        { figure: 'again.perSecond', title: 'eight, again and again: locks/s', digits: 0 },
        { figure: 'again.p99', title: 'wait p99, ms', digits: 0 },
        { figure: 'again.longest', title: 'longest wait to mean', digits: 1 },
        { figure: 'again.fairness', title: 'fairness (Jain)', digits: 2 },
        { figure: 'again.commands', title: 'commands', digits: 1 },
      ],
      notes: [`never: not all were served within ${PATIENCE / 1_000} s.`],
    };
  } finally {
    await servers.stop();
  }
}

export interface Turns {
  /** Number of locks that each waiter acquires. */
  readonly each: number;
  /** Milliseconds for all turns together. */
  readonly within: number;
}

/** Each waiter acquires the lock once. The measurement does not wait for waiters that are late. */
const ONCE: Turns = { each: 1, within: PATIENCE };

/**
 * Measures waiters for one key, in several processes. The name of each entry of `runs` is the prefix of its figures, as
 * in `again.p99`.
 */
export function queue(
  contender: Contender,
  servers: Servers,
  waiters: number,
  processes: number,
  runs: Readonly<Record<string, Turns>>,
): Promise<Sample> {
  return withWorkers(processes, async (workers) => {
    const { name } = contender;
    await Promise.all(workers.map((worker) => worker.ask('open', { name, urls: servers.urls })));
    const samples: Sample[] = [];
    for (const [run, turns] of Object.entries(runs)) {
      const before = await servers.sent(contender.sends);
      const job = { key: `queue:${name}:${run}`, waiters: waiters / processes, hold: HOLD, ...turns };
      const begun = performance.now();
      const results = await Promise.all(
        workers.map((worker) => worker.ask('queue', job, turns.within + 2_000)),
      );
      const seconds = (performance.now() - begun) / 1_000;
      const sent = (await servers.sent(contender.sends)) - before;
      const counts = results.flatMap((result) => result?.counts ?? []);
      const waits = results.flatMap((result) => result?.waits ?? []);
      const served = counts.reduce((sum, count) => sum + count, 0);
      const took = Math.max(...results.map((result) => result?.took ?? Infinity));
      samples.push(
        prefixed(run, {
          took,
          commands: sent / served,
          perSecond: served / seconds,
          p99: quantile(waits, 0.99),
          longest: Math.max(...waits) / mean(waits),
          fairness: jain(counts),
        }),
      );
      // Hanging calls would disturb the next run.
      if (took === Infinity) break;
    }
    return Object.assign({}, ...samples) as Sample;
  });
}
