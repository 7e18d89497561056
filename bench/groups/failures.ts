import { setTimeout as sleep } from 'node:timers/promises';
import { startTcpProxy, type TcpProxy } from '../../test/support/tcp-proxy.js';
import type { Contender } from '../contenders/contender.js';
import { type Figure, once, prefixed, type Sample } from '../measure/rounds.js';
import { Servers } from '../measure/servers.js';
import { median } from '../measure/statistics.js';
import { withWorkers, type Worker } from '../measure/workers.js';
import type { ResultTable } from '../report/tables.js';
import { distinct, fit, progress, type Group, type Plan, times } from './group.js';
import type { Employed } from './sessions.js';

const NODES = 5;
const SLOWER = 100;
const BUDGET = 1_000;
/** Number of parallel calls; so few that the creation of their errors takes no noticeable time. */
const FEW = 10;
const LOST_TTL = 3_000;
/** Time in milliseconds after which a call counts as hanging. */
const PATIENCE = 2_500;

/** Measures the compared libraries with slow, hanging and dead nodes, and with lost locks. */
export const failures: Group = {
  name: 'failures',
  about: 'on five nodes: one slower, two hung or killed, a quorum impossible, a lock lost',
  async run(plan) {
    const contenders = distinct(fit(plan.contenders, NODES));
    const servers = await Servers.start(NODES);
    const proxy = await startTcpProxy(servers.all[0]!);
    try {
      await servers.oldEnough();
      return await withWorkers(contenders.length, async (workers) => {
        const staff = contenders.map((contender, index) => ({ contender, worker: workers[index]! }));
        for (const { contender, worker } of staff) {
          // The calls run in workers: in this process the proxy would be part of the measurement.
          const through = [proxy.url, ...servers.urls.slice(1)];
          await worker.ask('open', { name: contender.name, urls: through }, 2 * PATIENCE);
          await worker.ask('cycles', { count: 200, within: 1_000 }, PATIENCE);
        }
        progress('one node slower');
        const slow = await withSlowNode(staff, proxy, plan);
        progress('locks lost');
        const lost = await withLocksLost(contenders, servers);
        const away = await withNodesAway(staff, servers, plan);
        return { tables: [slow, away, lost] };
      });
    } finally {
      await servers.stop();
      // Do not await `close`: it only resets connections, and the proxy does not keep the process alive.
      void proxy.close();
    }
  },
};

async function cycles(worker: Worker, plan: Plan): Promise<number> {
  const result = await worker.ask('cycles', { count: times(150, plan, 10), within: 1_000 }, PATIENCE);
  return result?.p50 ?? Infinity;
}

async function withSlowNode(staff: readonly Employed[], proxy: TcpProxy, plan: Plan): Promise<ResultTable> {
  const rows = new Map<string, Readonly<Record<string, Figure>>>();
  for (const { contender, worker } of staff) {
    const healthy: number[] = [];
    const slow: number[] = [];
    for (let round = 0; round < times(3, plan, 1); round++) {
      healthy.push(await cycles(worker, plan));
      proxy.delayReplies(SLOWER);
      slow.push(await cycles(worker, plan));
      proxy.delayReplies(0);
      await sleep(SLOWER + 20);
    }
    rows.set(
      contender.name,
      once({
        healthy: median(healthy),
        slow: median(slow),
        ratio: median(slow.map((value, round) => value / healthy[round]!)),
      }),
    );
  }
  return {
    title: `One of five nodes ${SLOWER} ms slower: acquire and release, p50, ms`,
    rows,
    columns: [
      { figure: 'healthy', title: 'healthy', digits: 2 },
      { figure: 'slow', title: 'one slower', digits: 2 },
      { figure: 'ratio', title: 'ratio', digits: 2 },
    ],
  };
}

async function withNodesAway(staff: readonly Employed[], servers: Servers, plan: Plan): Promise<ResultTable> {
  const samples = new Map<string, Record<string, number>>();
  const put = (contender: Contender, figures: Sample): void => {
    samples.set(contender.name, { ...samples.get(contender.name), ...figures });
  };
  const minority = servers.all.slice(3);
  const urls = servers.urls;

  progress('two of five hung');
  for (const { contender, worker } of staff) put(contender, { healthy: await cycles(worker, plan) });
  await fresh(staff, urls, plan, (contender, sample) => put(contender, prefixed('fresh', sample)));
  for (const server of minority) server.pause();
  for (const { contender, worker } of staff) put(contender, { hung: await cycles(worker, plan) });
  await fresh(staff, urls, plan, (contender, sample) => put(contender, prefixed('hungFresh', sample)));

  progress('three of five hung');
  servers.all[2]?.pause();
  for (const { contender } of staff) put(contender, await impossible(contender, servers, plan));
  for (const server of servers.all.slice(2)) server.resume();
  await sleep(500);

  progress('two of five killed');
  await withWorkers(staff.length, async (workers) => {
    for (const [index, { contender }] of staff.entries()) {
      await workers[index]!.ask('open', { name: contender.name, urls }, 2 * PATIENCE);
      await workers[index]!.ask('cycles', { count: 200, within: 1_000 }, PATIENCE);
    }
    for (const server of minority) await server.kill();
    await sleep(500);
    for (const [index, { contender }] of staff.entries()) {
      put(contender, { killed: await cycles(workers[index]!, plan) });
    }
  });
  await fresh(staff, urls, plan, (contender, sample) => put(contender, prefixed('killedFresh', sample)));

  return {
    title: 'Two of five nodes away: acquire and release, p50, ms',
    rows: new Map([...samples].map(([name, sample]) => [name, once(sample)])),
    columns: [
      { figure: 'healthy', title: 'healthy', digits: 2 },
      { figure: 'fresh.p50', title: 'healthy, fresh process', digits: 2 },
      { figure: 'hung', title: 'hung', digits: 2 },
      { figure: 'hungFresh.p50', title: 'hung, fresh process', digits: 2 },
      { figure: 'hungFresh.open', title: 'its start', digits: 0 },
      { figure: 'killed', title: 'killed', digits: 2 },
      { figure: 'killedFresh.p50', title: 'killed, fresh process', digits: 2 },
      { figure: 'killedFresh.open', title: 'its start', digits: 0 },
      { figure: 'late', title: `three hung: ${FEW} errors, ms after deadline`, digits: 0 },
      { figure: 'lateMany', title: '500 errors', digits: 0 },
      { figure: 'heap', title: 'bytes left for each', digits: 0 },
    ],
    notes: [
      `never: not within ${PATIENCE / 1_000} s. The deadline is ${BUDGET} ms where a library has one, and else 0.`,
    ],
  };
}

/**
 * Starts a new process for each library while the nodes are in their present state, and measures its start and its
 * calls.
 */
function fresh(
  staff: readonly Employed[],
  urls: readonly string[],
  plan: Plan,
  put: (contender: Contender, sample: Sample) => void,
): Promise<void> {
  return withWorkers(staff.length, async (workers) => {
    for (const [index, { contender }] of staff.entries()) {
      const worker = workers[index]!;
      const open = (await worker.ask('open', { name: contender.name, urls }, 2 * PATIENCE)) ?? Infinity;
      if (open === Infinity) {
        put(contender, { open, p50: Infinity });
        continue;
      }
      await worker.ask('cycles', { count: 200, within: 1_000 }, PATIENCE);
      put(contender, { open, p50: await cycles(worker, plan) });
    }
  });
}

/** Measures calls while three of five nodes hang. */
function impossible(contender: Contender, servers: Servers, plan: Plan): Promise<Sample> {
  return withWorkers(1, async ([worker]) => {
    for (const server of servers.all.slice(2)) server.resume();
    await worker?.ask('open', { name: contender.name, urls: servers.urls }, PATIENCE);
    await worker?.ask('cycles', { count: 200, within: 1_000 }, PATIENCE);
    for (const server of servers.all.slice(2)) server.pause();
    const fail = (attempts: number) =>
      worker?.ask('fail', { attempts, budget: BUDGET, within: PATIENCE }, PATIENCE + 3_000);
    const late = (await fail(FEW))?.late ?? Infinity;
    // If ten calls hang, more calls hang, too.
    if (late === Infinity) return { late, lateMany: late, heap: NaN };
    const many = await fail(times(500, plan, 10));
    return { late, lateMany: many?.late ?? Infinity, heap: many?.heap ?? NaN };
  });
}

/** Measures when a holder learns that its lock is lost: before or after its keys would have expired. */
async function withLocksLost(contenders: readonly Contender[], servers: Servers): Promise<ResultTable> {
  const majority = servers.all.slice(2);
  const quorum = await lose(contenders, servers, () => {
    for (const server of majority) server.pause();
    return Promise.resolve();
  });
  for (const server of majority) server.resume();
  await sleep(500);
  const deleted = await lose(contenders, servers, (key) => servers.remove(key));
  const rows = new Map(
    contenders.map(({ name }, index) => [
      name,
      once({ ...prefixed('quorum', quorum[index]!), ...prefixed('deleted', deleted[index]!) }),
    ]),
  );
  return {
    title: `A lock with a ttl of ${LOST_TTL} ms is lost, ms`,
    rows,
    columns: [
      { figure: 'quorum.told', title: 'three of five nodes hang: holder learns of it after', digits: 0 },
      { figure: 'quorum.early', title: 'time left of the ttl', digits: 0 },
      { figure: 'deleted.told', title: 'key deleted: holder learns of it after', digits: 0 },
      { figure: 'deleted.early', title: 'time left of the ttl', digits: 0 },
    ],
    notes: [
      'The ttl ends when the keys would have ended, by their remaining time at the fault. Negative: too late.',
    ],
  };
}

/**
 * Lets all compared libraries lose their locks at the same time, each with its own key. Together they save time, as
 * each run takes seconds, and the results need not be exact to microseconds.
 */
function lose(
  contenders: readonly Contender[],
  servers: Servers,
  strike: (key: string) => Promise<void>,
): Promise<Sample[]> {
  return withWorkers(contenders.length, (workers) => {
    const ready = workers.map(async (worker, index): Promise<string> => {
      const { name } = contenders[index]!;
      const key = `lost:${name}:${process.hrtime.bigint()}`;
      await worker.ask('open', { name, urls: servers.urls }, 2 * PATIENCE);
      return key;
    });
    return Promise.all(
      workers.map(async (worker, index): Promise<Sample> => {
        await Promise.all(ready);
        const key = await ready[index]!;
        const told = new Promise<number>((resolve) => {
          worker.onLost = () => resolve(performance.now());
        });
        await worker.ask('hold', { keys: [key], ttl: LOST_TTL, watched: true }, PATIENCE);
        // Libraries that renew at a third of the ttl have renewed once by now.
        await sleep(LOST_TTL / 2);
        const left = await servers.remaining(key, contenders[index]!.linger);
        const struck = performance.now();
        await strike(key);
        const at = await Promise.race([told, sleep(1.5 * LOST_TTL, Infinity)]);
        return { told: at - struck, early: at === Infinity ? NaN : left - (at - struck) };
      }),
    );
  });
}
