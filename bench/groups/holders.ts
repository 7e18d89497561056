import { once } from '../measure/rounds.js';
import { Servers } from '../measure/servers.js';
import { median } from '../measure/statistics.js';
import type { ResultTable } from '../report/tables.js';
import type { LockHandle, LockService } from '../../lib/index.js';
import type { Kind } from '../contenders/ours-app.js';
import { type Group, type Plan, progress, times } from './group.js';

const PERMITS = 1_000;
const TTL = 120_000;
const IN_FLIGHT = 100;
/**
 * Smallest number of holders for the figure of memory. The memory of a server varies by some kilobytes, and fewer
 * holders take less memory than that.
 */
const FEWEST_FOR_BYTES = 100;

interface Crowd {
  readonly title: string;
  readonly key: string;
  readonly kind: Kind;
  /** Numbers of holders of the key during the measurements. */
  readonly sizes: readonly number[];
  /** A request that is refused because of the holders. */
  readonly refused: (locks: LockService) => Promise<LockHandle | null>;
}

const CROWDS: readonly Crowd[] = [
  {
    title: `of ${PERMITS.toLocaleString('en')} permits`,
    key: 'permits',
    kind: { permits: PERMITS },
    sizes: [0, 10, 500, PERMITS - 1],
    refused: (locks) => locks.tryAcquire('permits', { ttl: TTL, renew: false }),
  },
  {
    title: 'readers',
    key: 'readers',
    kind: { mode: 'shared' },
    sizes: [0, 10, 1_000, 10_000],
    refused: (locks) => locks.tryAcquire('readers', { ttl: TTL, renew: false }),
  },
];

/** Measures a key with very many holders. */
export const holders: Group = {
  name: 'holders',
  about:
    'one key with up to 1,000 permits, and with up to 10,000 readers: time per call, memory, inspect and list',
  async run(plan) {
    const tables: ResultTable[] = [];
    for (const crowd of CROWDS) tables.push(await growing(crowd, plan));
    return { tables };
  },
};

async function growing({ title, key, kind, sizes, refused }: Crowd, plan: Plan): Promise<ResultTable> {
  const servers = await Servers.start(1);
  const { openService } = await import('../contenders/ours-app.js');
  const { locks, close } = await openService(servers.urls);
  const held: LockHandle[] = [];
  const take = (): Promise<LockHandle> =>
    locks.acquire(key, { ttl: TTL, renew: false, retry: false, ...kind });
  try {
    // The first calls load scripts into the server, and let V8 compile code.
    for (let call = 0; call < times(500, plan, 20); call++) await (await take()).release();
    const empty = (await servers.stored()).bytes;
    const rows = new Map<string, ReturnType<typeof once>>();
    for (const size of sizes.slice(0, Math.max(3, Math.ceil(sizes.length * plan.effort)))) {
      progress(`${size} ${title}`);
      while (held.length < size) {
        const more = Math.min(IN_FLIGHT, size - held.length);
        held.push(...(await Promise.all(Array.from({ length: more }, take))));
      }
      const count = times(500, plan, 10);
      const before = await servers.served([]);
      const cycle = await timeOf(count, async () => (await take()).release());
      const served = ((await servers.served([])) - before) / count;
      const sample: Record<string, number> = {
        cycle,
        served,
        inspect: (await timeOf(times(30, plan, 2), () => locks.inspect(key))) / 1_000,
        list: (await timeOf(times(30, plan, 2), () => all(locks))) / 1_000,
      };
      if (size > 0) sample['refused'] = await timeOf(count, () => refused(locks));
      if (size >= FEWEST_FOR_BYTES) sample['bytes'] = ((await servers.stored()).bytes - empty) / size;
      rows.set(`${size.toLocaleString('en')} ${title}`, once(sample));
    }
    return {
      title: `One key, ${title}, one node`,
      rows,
      columns: [
        { figure: 'cycle', title: 'one more: acquire and release, p50, us', digits: 0 },
        { figure: 'served', title: 'of which server time', digits: 1 },
        { figure: 'refused', title: 'an exclusive lock refused, p50, us', digits: 0 },
        { figure: 'bytes', title: 'bytes in Redis for each', digits: 0 },
        { figure: 'inspect', title: 'inspect, p50, ms', digits: 2 },
        { figure: 'list', title: 'list, p50, ms', digits: 2 },
      ],
      notes: [
        'Bytes: growth of used_memory since there were no holders, without the memory of connections. Free slots are included.',
      ],
    };
  } finally {
    await Promise.all(held.map((lock) => lock.release()));
    await close();
    await servers.stop();
  }
}

async function timeOf(count: number, call: () => Promise<unknown>): Promise<number> {
  const taken: number[] = [];
  for (let index = 0; index < count; index++) {
    const begun = performance.now();
    await call();
    taken.push(1_000 * (performance.now() - begun));
  }
  return median(taken);
}

async function all(locks: LockService): Promise<number> {
  let count = 0;
  for await (const { holders: found } of locks.list()) count += found.length;
  return count;
}
