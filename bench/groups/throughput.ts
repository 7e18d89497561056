import { interleaved } from '../measure/rounds.js';
import type { ResultTable } from '../report/tables.js';
import { fit, type Group, nodesTitle, times, toFirst } from './group.js';
import { withStaff } from './sessions.js';

const IN_FLIGHT = 64;

/** As many calls as come through, with many in flight. */
export const throughput: Group = {
  name: 'throughput',
  about: `acquire and release with ${IN_FLIGHT} in flight, each on a key of its own`,
  async run(plan) {
    const tables: ResultTable[] = [];
    for (const nodes of plan.nodes) {
      const rows = await withStaff(nodes, fit(plan.contenders, nodes), (staff, servers) => {
        const count = times(nodes === 1 ? 6_000 : 2_000, plan, 2 * IN_FLIGHT);
        return interleaved(
          staff.map(({ contender, worker }) => ({
            name: contender.name,
            async run() {
              const before = await servers.sent(contender.sends);
              const { took, cpu } = await worker.must('lanes', {
                how: 'acquire',
                inFlight: IN_FLIGHT,
                count,
              });
              return {
                perSecond: (1_000 * count) / took,
                cpu: (1_000 * cpu) / count,
                commands: ((await servers.sent(contender.sends)) - before) / count,
              };
            },
          })),
          times(11, plan, 2),
        );
      });
      tables.push({
        title: `Throughput with ${IN_FLIGHT} in flight on distinct keys, ${nodesTitle(nodes)}`,
        rows,
        columns: [
          { figure: 'perSecond', title: `cycles/s, ${toFirst(rows)}`, digits: 0, ratio: true },
          { figure: 'cpu', title: `client CPU us/cycle, ${toFirst(rows)}`, digits: 0, ratio: true },
          { figure: 'commands', title: 'commands per node', digits: 2 },
        ],
      });
    }
    return { tables };
  },
};
