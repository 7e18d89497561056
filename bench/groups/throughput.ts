import { interleaved } from '../measure/rounds.js';
import type { ResultTable } from '../report/tables.js';
import { fit, type Group, nodesTitle, times, toFirst } from './group.js';
import { withSessions } from './sessions.js';

const TTL = 10_000;
const IN_FLIGHT = 64;

/** As many calls as come through, with many in flight. */
export const throughput: Group = {
  name: 'throughput',
  about: `acquire and release with ${IN_FLIGHT} in flight, each on a key of its own`,
  async run(plan) {
    const tables: ResultTable[] = [];
    for (const nodes of plan.nodes) {
      const rows = await withSessions(nodes, fit(plan.contenders, nodes), (opened, servers) => {
        const cycles = times(nodes === 1 ? 3_000 : 1_500, plan, 2 * IN_FLIGHT);
        return interleaved(
          opened.map(({ contender, session }) => ({
            name: contender.name,
            async run() {
              const before = await servers.sent(contender.sends);
              const cpuBefore = process.cpuUsage();
              const begun = performance.now();
              let left = cycles;
              const loop = async (lane: number): Promise<void> => {
                while (left-- > 0) await (await session.acquire(`throughput:${lane}`, TTL))();
              };
              await Promise.all(Array.from({ length: IN_FLIGHT }, (_, lane) => loop(lane)));
              const seconds = (performance.now() - begun) / 1_000;
              const { user, system } = process.cpuUsage(cpuBefore);
              return {
                perSecond: cycles / seconds,
                cpu: (user + system) / cycles,
                commands: ((await servers.sent(contender.sends)) - before) / cycles,
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
