import { interleaved } from '../measure/rounds.js';
import type { Servers } from '../measure/servers.js';
import type { ResultTable } from '../report/tables.js';
import { fit, type Group, nodesTitle, type Plan, times, toFirst } from './group.js';
import { type Employed, withStaff } from './sessions.js';

const IN_FLIGHT = 64;

/** Measures the largest number of calls per second, with many calls in flight. */
export const throughput: Group = {
  name: 'throughput',
  about: `acquire and release with ${IN_FLIGHT} in flight, each on a key of its own`,
  async run(plan) {
    const tables: ResultTable[] = [];
    for (const nodes of plan.nodes) {
      const title = `Throughput with ${IN_FLIGHT} in flight on distinct keys, ${nodesTitle(nodes)}`;
      tables.push(
        await withStaff(nodes, fit(plan.contenders, nodes), (staff, servers) =>
          throughputTable(title, staff, servers, plan),
        ),
      );
    }
    return { tables };
  },
};

/** Measures acquire and release with many calls in flight. */
export async function throughputTable(
  title: string,
  staff: readonly Employed[],
  servers: Servers,
  plan: Plan,
): Promise<ResultTable> {
  const count = times(servers.all.length === 1 ? 6_000 : 2_000, plan, 2 * IN_FLIGHT);
  const rows = await interleaved(
    staff.map(({ contender, worker }) => ({
      name: contender.name,
      async run() {
        const before = await servers.sent(contender.sends);
        const { took, cpu } = await worker.must('lanes', { how: 'acquire', inFlight: IN_FLIGHT, count });
        return {
          perSecond: (1_000 * count) / took,
          cpu: (1_000 * cpu) / count,
          commands: ((await servers.sent(contender.sends)) - before) / count,
        };
      },
    })),
    times(11, plan, 2),
  );
  return {
    title,
    rows,
    columns: [
      { figure: 'perSecond', title: `cycles/s, ${toFirst(rows)}`, digits: 0, ratio: true },
      { figure: 'cpu', title: `client CPU us/cycle, ${toFirst(rows)}`, digits: 0, ratio: true },
      { figure: 'commands', title: 'commands per node', digits: 2 },
    ],
  };
}
