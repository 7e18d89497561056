import { interleaved, prefixed, type Sample } from '../measure/rounds.js';
import type { Servers } from '../measure/servers.js';
import type { ResultTable } from '../report/tables.js';
import { fit, type Group, nodesTitle, type Plan, times, toFirst } from './group.js';
import { type Employed, withStaff } from './sessions.js';

const IN_FLIGHT = 64;

/** Measures the time that a lock takes on servers, which have one thread for all clients. */
export const serverTime: Group = {
  name: 'server-time',
  about: `microseconds of a server for an acquire and for a release, one at a time and ${IN_FLIGHT} at once`,
  async run(plan) {
    const tables: ResultTable[] = [];
    for (const nodes of plan.nodes) {
      const title = `Server time for each lock, ${nodesTitle(nodes)}, us, of each node`;
      tables.push(
        await withStaff(nodes, fit(plan.contenders, nodes), (staff, servers) =>
          serverTimeTable(title, staff, servers, plan),
        ),
      );
    }
    return { tables };
  },
};

/** Measures how long a server runs the commands of an acquire, and those of a release. */
export async function serverTimeTable(
  title: string,
  staff: readonly Employed[],
  servers: Servers,
  plan: Plan,
): Promise<ResultTable> {
  const count = times(1_024, plan, 2 * IN_FLIGHT);
  const rows = await interleaved(
    staff.map((employed) => ({
      name: employed.contender.name,
      run: async () => ({
        ...prefixed('one', await servedFor(employed, servers, count, 1)),
        ...prefixed('many', await servedFor(employed, servers, count, IN_FLIGHT)),
      }),
    })),
    times(7, plan, 2),
  );
  return {
    title,
    rows,
    columns: [
      {
        figure: 'one.acquire',
        title: `one at a time: acquire, ${toFirst(rows)}`,
        digits: 1,
        ratio: true,
      },
      { figure: 'one.release', title: 'release', digits: 1, ratio: true },
      { figure: 'many.acquire', title: `${IN_FLIGHT} at once: acquire`, digits: 1, ratio: true },
      { figure: 'many.release', title: 'release', digits: 1, ratio: true },
    ],
    notes: [
      'From INFO commandstats (usec): the time to run the commands, without reading, parsing and answering them.',
    ],
  };
}

async function servedFor(
  { contender, worker }: Employed,
  servers: Servers,
  count: number,
  inFlight: number,
): Promise<Sample> {
  const keys = Array.from({ length: count }, (_, index) => `served:${contender.name}:${index}`);
  const before = await servers.served(contender.sends);
  await worker.must('take', { keys, inFlight });
  const between = await servers.served(contender.sends);
  await worker.must('release', { inFlight });
  const after = await servers.served(contender.sends);
  return { acquire: (between - before) / count, release: (after - between) / count };
}
