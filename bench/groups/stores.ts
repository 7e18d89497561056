import { setTimeout as sleep } from 'node:timers/promises';
import { debianMysql } from '../../test/support/debian-mysql.js';
import { hasEtcd, startEtcd } from '../../test/support/etcd-server.js';
import { mysqlPrograms, startMysqlServer } from '../../test/support/mysql-server.js';
import { startPostgresServer } from '../../test/support/postgres-server.js';
import { hasZooKeeper, startZooKeeper } from '../../test/support/zookeeper-server.js';
import {
  advisoryLock,
  oursInEtcd,
  oursInMysql,
  oursInZooKeeper,
  OUR_STORES,
  type StoreUrls,
  type StoreWay,
} from '../contenders/stores.js';
import type { Release } from '../contenders/contender.js';
import { type Figure, once, type Sample } from '../measure/rounds.js';
import { Servers } from '../measure/servers.js';
import { median, quantile } from '../measure/statistics.js';
import { type Group, type Plan, progress, times } from './group.js';
import { heldTtl } from './held.js';

const TTL = 60_000;
const IN_FLIGHT = 64;
/**
 * Number of held locks that are acquired at a time; few enough for a busy machine to acquire them within the time
 * limit.
 */
const AT_ONCE = 500;
/** Milliseconds within which a waiting call gets into the queue. */
const IN_LINE = 30;

/** Measures the same lock in each store, and another library for PostgreSQL. */
export const stores: Group = {
  name: 'stores',
  about:
    'ours in memory, in Redis, in PostgreSQL, in MariaDB, in MySQL, in etcd and in ZooKeeper, and advisory-lock: latency, ' +
    'throughput, hand-over, locks held',
  async run(plan) {
    const servers = await Servers.start(1);
    const database = await startPostgresServer();
    // This is the default timing of etcd.
    const cluster = hasEtcd() ? await startEtcd({ timing: { heartbeat: 100, election: 1_000 } }) : undefined;
    const ensemble = hasZooKeeper() ? await startZooKeeper({ isOnDisk: true }) : undefined;
    // A trial downloads no server.
    const programs = [...mysqlPrograms(), ...(plan.effort < 1 ? [] : debianMysql())];
    const mysqlServers = await Promise.all(programs.map((program) => startMysqlServer({ program })));
    try {
      const urls: StoreUrls = { redis: servers.urls[0] ?? '', postgres: database.url, etcd: cluster?.url };
      // The run installs other libraries only if `--only` allows more than `raw` and `ours`.
      const hasOthers = plan.contenders.some(({ name }) => name !== 'raw' && name !== 'ours');
      const rows = new Map<string, Readonly<Record<string, Figure>>>();
      const inMysql = programs.map(({ name }, index) => oursInMysql(name, mysqlServers[index]?.uri ?? ''));
      const ways = [
        ...OUR_STORES,
        ...inMysql,
        ...(cluster ? [oursInEtcd] : []),
        ...(ensemble ? [oursInZooKeeper(ensemble.address)] : []),
        ...(hasOthers ? [advisoryLock] : []),
      ];
      for (const way of ways) {
        progress(way.name);
        rows.set(way.name, once(await measure(way, urls, plan)));
      }
      const count = times(10_000, plan, 100);
      return {
        tables: [
          {
            title: 'Stores, one node each',
            rows,
            columns: [
              { figure: 'acquire', title: 'acquire p50, us', digits: 0 },
              { figure: 'release', title: 'release p50, us', digits: 0 },
              { figure: 'worst', title: 'both p99, us', digits: 0 },
              { figure: 'perSecond', title: `locks/s, ${IN_FLIGHT} in flight`, digits: 0 },
              { figure: 'handOver', title: 'hand-over p50, ms', digits: 2 },
              { figure: 'take', title: `${count.toLocaleString('en')} locks: to take, s`, digits: 2 },
              { figure: 'cpu', title: 'renewed: client CPU, % of a core', digits: 1 },
              { figure: 'kept', title: 'kept, %', digits: 1 },
            ],
            notes: [
              'Hand-over: from the call of release in one process to the return of a waiter of another session.',
            ],
          },
        ],
      };
    } finally {
      await servers.stop();
      await database.stop();
      await Promise.all(mysqlServers.map((each) => each.stop()));
      await cluster?.stop();
      await ensemble?.stop();
    }
  },
};

async function measure(way: StoreWay, urls: StoreUrls, plan: Plan): Promise<Sample> {
  const session = await way.open(urls);
  const other = way.isShared ? await way.open(urls) : session;
  try {
    for (let call = 0; call < times(200, plan, 20); call++)
      await (
        await session.acquire(`warm:${call}`, TTL)
      )();
    const sample = {
      ...(await latencyOf(session, times(1_000, plan, 20))),
      perSecond: await throughputOf(session, times(10_000, plan, 200)),
      handOver: await handOverOf([session, other], times(200, plan, 5)),
    };
    if (!session.hold || !way.holdsMany) return sample;
    // A busy machine may not take so many locks in time, and the other figures are worth having.
    const held = await heldBy(session, plan).catch((error: Error) => {
      progress(`${way.name}: the held locks were not measured: ${error.message}`);
      return {};
    });
    return { ...sample, ...held };
  } finally {
    await session.close();
    if (other !== session) await other.close();
  }
}

type Opened = Awaited<ReturnType<StoreWay['open']>>;

async function latencyOf(session: Opened, count: number): Promise<Sample> {
  const [acquired, released, both]: [number[], number[], number[]] = [[], [], []];
  for (let call = 0; call < count; call++) {
    const begun = performance.now();
    const release = await session.acquire(`latency:${call}`, TTL);
    const held = performance.now();
    await release();
    const end = performance.now();
    acquired.push(1_000 * (held - begun));
    released.push(1_000 * (end - held));
    both.push(1_000 * (end - begun));
  }
  return { acquire: median(acquired), release: median(released), worst: quantile(both, 0.99) };
}

async function throughputOf(session: Opened, count: number): Promise<number> {
  let next = 0;
  const begun = performance.now();
  const work = async (): Promise<void> => {
    while (next < count) await (await session.acquire(`throughput:${next++}`, TTL))();
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, work));
  return (1_000 * count) / (performance.now() - begun);
}

/** Measures hand-overs of one lock between two sessions. */
async function handOverOf([one, other]: readonly [Opened, Opened], count: number): Promise<number> {
  const taken: number[] = [];
  let release = await one.acquire('hand-over', TTL);
  for (let turn = 0; turn < count; turn++) {
    const waiting = (turn % 2 === 0 ? other : one).wait('hand-over', TTL);
    const returned = waiting.then(() => performance.now());
    await sleep(IN_LINE);
    const begun = performance.now();
    await release();
    taken.push((await returned) - begun);
    release = await waiting;
  }
  await release();
  return median(taken);
}

async function heldBy(session: Opened, plan: Plan): Promise<Sample> {
  const count = times(10_000, plan, 100);
  const ttl = heldTtl(plan);
  let lost = 0;
  const begun = performance.now();
  const held: (Release | undefined)[] = [];
  while (held.length < count) {
    const more = Array.from({ length: Math.min(AT_ONCE, count - held.length) }, (_, index) =>
      session.hold?.(`held:${held.length + index}`, ttl, () => lost++),
    );
    held.push(...(await Promise.all(more)));
  }
  const take = (performance.now() - begun) / 1_000;
  const before = process.cpuUsage();
  await sleep(ttl);
  const { user, system } = process.cpuUsage(before);
  const kept = (100 * (count - lost)) / count;
  await Promise.all(held.map((release) => release?.()));
  return { take, cpu: (100 * (user + system)) / 1_000 / ttl, kept };
}
