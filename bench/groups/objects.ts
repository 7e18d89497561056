import { once } from '../measure/rounds.js';
import type { ResultTable } from '../report/tables.js';
import { fit, type Group, nodesTitle, times } from './group.js';
import { withStaff } from './sessions.js';

const IN_FLIGHT = 64;

/** Measures the objects that a lock leaves to the garbage collector. */
export const objects: Group = {
  name: 'objects',
  about: `bytes of the objects made for a lock, one at a time and ${IN_FLIGHT} in flight`,
  async run(plan) {
    const tables: ResultTable[] = [];
    for (const nodes of plan.nodes) {
      const rows = await withStaff(nodes, fit(plan.contenders, nodes), async (staff) => {
        const figures = new Map<string, ReturnType<typeof once>>();
        for (const { contender, worker } of staff) {
          const sample: Record<string, number> = {};
          for (const how of ['acquire', 'withLock'] as const) {
            if (how === 'withLock') await worker.must('warmUp', { how, within: 1_500 });
            for (const inFlight of [1, IN_FLIGHT]) {
              const made = await worker.must('objects', {
                how,
                inFlight,
                count: times(2_000, plan, 4 * IN_FLIGHT),
              });
              sample[`${how}.${inFlight}`] = made / 1_000;
            }
          }
          figures.set(contender.name, once(sample));
        }
        return figures;
      });
      tables.push({
        title: `Objects made for each lock, ${nodesTitle(nodes)}, kB`,
        rows,
        columns: [
          { figure: 'acquire.1', title: 'acquire and release, one at a time', digits: 1 },
          { figure: `acquire.${IN_FLIGHT}`, title: `${IN_FLIGHT} in flight`, digits: 1 },
          { figure: 'withLock.1', title: 'withLock, one at a time', digits: 1 },
          { figure: `withLock.${IN_FLIGHT}`, title: `${IN_FLIGHT} in flight`, digits: 1 },
        ],
        notes: [
          'Measured by the sampling heap profiler. Collected objects count, and the contents of buffers do not. Where nothing is',
          'collected, the heap grows by up to 10 % more.',
        ],
      });
    }
    return { tables };
  },
};
