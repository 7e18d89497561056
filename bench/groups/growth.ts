import { ours } from '../contenders/ours.js';
import { raw } from '../contenders/raw.js';
import type { Session } from '../contenders/contender.js';
import { once, type Sample } from '../measure/rounds.js';
import { Servers } from '../measure/servers.js';
import { median } from '../measure/statistics.js';
import type { Line, Plot } from '../report/plot.js';
import type { Column, ResultTable } from '../report/tables.js';
import { type Findings, type Group, type Plan, progress, times } from './group.js';
import { queue } from './hand-over.js';
import { heldTtl, hold } from './held.js';

const TTL = 10_000;
const NODES = [1, 2, 3, 5, 7, 9];
const KEYS = [1, 10, 100, 1_000, 10_000];
const WAITERS = [1, 8, 32, 100, 300, 1_000];
const HELD = [1, 100, 10_000, 50_000];

/** Figures of a curve, by size. */
type Curve = ReadonlyMap<number, Sample>;

/** Measures how the cost of this package grows. */
export const growth: Group = {
  name: 'growth',
  about: 'how cost grows with nodes, with the keys of a lock, with waiters, and with held locks',
  async run(plan) {
    const found = [
      await withNodes(plan),
      await withKeys(plan),
      await withWaiters(plan),
      await withHeld(plan),
    ];
    return {
      tables: found.map(({ table }) => table),
      plots: found.map(({ plot }) => plot),
    } satisfies Findings;
  },
};

interface Grown {
  readonly table: ResultTable;
  readonly plot: Plot;
}

/** Returns the sizes that the effort allows. */
function upTo(sizes: readonly number[], { effort }: Plan): readonly number[] {
  return sizes.slice(0, Math.max(1, Math.ceil(sizes.length * effort)));
}

function tableOf(title: string, size: string, curve: Curve, columns: readonly Column[]): ResultTable {
  const rows = new Map(
    [...curve].map(([at, sample]) => [`${at.toLocaleString('en')} ${size}`, once(sample)]),
  );
  return { title, rows, columns };
}

function lineOf(name: string, curve: Curve, figure: string): Line {
  return { name, points: [...curve].map(([at, sample]) => [at, sample[figure] ?? NaN]) };
}

async function cycleTime(session: Session, key: () => string, count: number): Promise<number> {
  const taken: number[] = [];
  for (let index = -count / 5; index < count; index++) {
    const begun = performance.now();
    await (
      await session.acquire(key(), TTL)
    )();
    // Calls with a negative index warm up, and do not count.
    if (index >= 0) taken.push(performance.now() - begun);
  }
  return 1_000 * median(taken);
}

async function withNodes(plan: Plan): Promise<Grown> {
  progress('nodes');
  const sizes = upTo(NODES, plan);
  const servers = await Servers.start(sizes.at(-1)!);
  try {
    await servers.oldEnough();
    const curve = new Map<number, Sample>();
    for (const nodes of sizes) {
      const sample: Record<string, number> = {};
      for (const contender of [raw, ours]) {
        const session = await contender.open(servers.urls.slice(0, nodes));
        let serial = 0;
        const key = (): string => `nodes:${contender.name}:${++serial}`;
        sample[contender.name] = await cycleTime(session, key, times(1_000, plan, 10));
        await session.close();
      }
      curve.set(nodes, { ...sample, ratio: sample['ours']! / sample['raw']! });
    }
    return {
      table: tableOf('Acquire and release by the number of nodes, p50, us', 'nodes', curve, [
        { figure: 'raw', title: 'raw', digits: 0 },
        { figure: 'ours', title: 'ours', digits: 0 },
        { figure: 'ratio', title: 'ratio', digits: 2 },
      ]),
      plot: {
        file: 'growth-nodes',
        title: 'Acquire and release by the number of nodes',
        xTitle: 'nodes',
        yTitle: 'microseconds, p50',
        lines: [lineOf('ours', curve, 'ours'), lineOf('raw', curve, 'raw')],
      },
    };
  } finally {
    await servers.stop();
  }
}

async function withKeys(plan: Plan): Promise<Grown> {
  progress('keys');
  const servers = await Servers.start(1);
  const { openService } = await import('../contenders/ours-app.js');
  const { locks, close } = await openService(servers.urls);
  try {
    const curve = new Map<number, Sample>();
    for (const count of upTo(KEYS, plan)) {
      const keys = Array.from({ length: count }, (_, index) => `keys:${index}`);
      const taken: number[] = [];
      for (let round = 0; round < times(count > 1_000 ? 10 : 100, plan, 3); round++) {
        const begun = performance.now();
        const lock = await locks.acquire(keys, { ttl: TTL, renew: false, retry: false });
        await lock.release();
        taken.push(1_000 * (performance.now() - begun));
      }
      curve.set(count, { cycle: median(taken), perKey: median(taken) / count });
    }
    return {
      table: tableOf('Acquire and release of one lock by the number of its keys, one node', 'keys', curve, [
        { figure: 'cycle', title: 'p50, us', digits: 0 },
        { figure: 'perKey', title: 'us per key', digits: 1 },
      ]),
      plot: {
        file: 'growth-keys',
        title: 'One lock of many keys, one node',
        xTitle: 'keys of the lock',
        yTitle: 'microseconds, p50',
        logY: true,
        lines: [lineOf('acquire and release', curve, 'cycle')],
      },
    };
  } finally {
    await close();
    await servers.stop();
  }
}

async function withWaiters(plan: Plan): Promise<Grown> {
  const servers = await Servers.start(1);
  try {
    const curve = new Map<number, Sample>();
    for (const waiters of upTo(WAITERS, plan)) {
      progress(`${waiters} waiters`);
      const sample: Record<string, number> = {};
      for (const processes of waiters % 4 === 0 ? [1, 4] : [1]) {
        const run = { each: 1, within: 60_000 };
        const runs = { first: run, turns: run };
        const found = await queue(ours, servers, waiters, processes, runs);
        sample[`took${processes}`] = (found['turns.took'] ?? NaN) / waiters;
        sample[`commands${processes}`] = found['turns.commands'] ?? NaN;
      }
      curve.set(waiters, sample);
    }
    const inFour = new Map([...curve].filter(([waiters]) => waiters % 4 === 0));
    return {
      table: tableOf('Waiters for one key that hold for 1 ms, one node', 'waiters', curve, [
        { figure: 'took1', title: 'one process: ms for each', digits: 2 },
        { figure: 'commands1', title: 'commands for each', digits: 1 },
        { figure: 'took4', title: 'four processes: ms for each', digits: 2 },
        { figure: 'commands4', title: 'commands for each', digits: 1 },
      ]),
      plot: {
        file: 'growth-waiters',
        title: 'Waiters for one key that hold for 1 ms, one node',
        xTitle: 'waiters',
        yTitle: 'ms for each lock, its hold included',
        lines: [lineOf('one process', curve, 'took1'), lineOf('four processes', inFour, 'took4')],
      },
    };
  } finally {
    await servers.stop();
  }
}

async function withHeld(plan: Plan): Promise<Grown> {
  const ttl = heldTtl(plan);
  const servers = await Servers.start(1);
  try {
    const curve = new Map<number, Sample>();
    for (const count of upTo(HELD, plan)) {
      progress(`${count} held locks`);
      const sample = await hold(ours, servers, count, ttl);
      if (sample) curve.set(count, sample);
    }
    return {
      table: tableOf(`Held locks that are renewed, ttl ${ttl / 1_000} s, one node`, 'locks', curve, [
        { figure: 'commands', title: 'commands per lock and second', digits: 4 },
        { figure: 'cpu', title: 'client CPU, % of a core', digits: 1 },
        { figure: 'heap', title: 'heap per lock, bytes', digits: 0 },
        { figure: 'kept', title: 'kept, %', digits: 1 },
      ]),
      plot: {
        file: 'growth-held',
        title: `Client CPU for held locks, ttl ${ttl / 1_000} s, one node`,
        xTitle: 'held locks',
        yTitle: '% of a core',
        lines: [lineOf('client CPU', curve, 'cpu')],
      },
    };
  } finally {
    await servers.stop();
  }
}
