import { ours, oursDecorated } from '../contenders/ours.js';
import { interleaved } from '../measure/rounds.js';
import { median, quantile } from '../measure/statistics.js';
import type { ResultTable } from '../report/tables.js';
import { fit, type Group, nodesTitle, type Plan, times, toFirst } from './group.js';
import { type Employed, withStaff } from './sessions.js';
import type { Servers } from '../measure/servers.js';

/** Measures sequential calls on free keys. */
export const latency: Group = {
  name: 'latency',
  about: 'acquire and release; a whole withLock with renewal; one after the other, on free keys',
  async run(plan) {
    const tables: ResultTable[] = [];
    for (const nodes of plan.nodes) {
      const contenders = fit(plan.contenders, nodes);
      const decorated = contenders.includes(ours) ? [...contenders, oursDecorated] : contenders;
      const title = nodesTitle(nodes);
      await withStaff(nodes, decorated, async (staff, servers) => {
        const undecorated = staff.filter(({ contender }) => contender !== oursDecorated);
        tables.push(
          await latencyTable(`Latency of acquire and release, ${title}, us`, undecorated, servers, plan),
          await wholes(title, staff, plan),
        );
        if (contenders.includes(ours)) tables.push(await decorator(title, staff, plan));
      });
    }
    return { tables };
  },
};

/** Measures acquire and release, one after the other. */
export async function latencyTable(
  title: string,
  staff: readonly Employed[],
  servers: Servers,
  plan: Plan,
): Promise<ResultTable> {
  const count = times(100, plan, 20);
  const rows = await interleaved(
    staff.map(({ contender, worker }) => ({
      name: contender.name,
      async run() {
        const before = await servers.sent(contender.sends);
        const { acquire, release } = await worker.must('calls', { how: 'acquire', count });
        const commands = ((await servers.sent(contender.sends)) - before) / count;
        const cycles = acquire.map((took, index) => took + (release[index] ?? NaN));
        return {
          acquire: 1_000 * median(acquire),
          release: 1_000 * median(release),
          cycle: 1_000 * median(cycles),
          p99: 1_000 * quantile(cycles, 0.99),
          commands,
        };
      },
    })),
    times(31, plan, 2),
  );
  return {
    title,
    rows,
    columns: [
      { figure: 'acquire', title: 'acquire p50', digits: 0 },
      { figure: 'release', title: 'release p50', digits: 0 },
      { figure: 'cycle', title: `both p50, ${toFirst(rows)}`, digits: 0, ratio: true },
      { figure: 'p99', title: 'both p99', digits: 0, ratio: true },
      { figure: 'commands', title: 'commands per node', digits: 2 },
    ],
  };
}

async function wholes(title: string, staff: readonly Employed[], plan: Plan): Promise<ResultTable> {
  for (const { worker } of staff) await worker.must('warmUp', { how: 'withLock', within: 1_500 });
  const rows = await interleaved(
    staff.map(({ contender, worker }) => ({
      name: contender.name,
      run: () => timesOf(worker, 'withLock', plan),
    })),
    times(31, plan, 2),
  );
  return {
    title: `Latency of withLock, renewed where offered, ${title}, us`,
    rows,
    columns: [
      { figure: 'p50', title: `p50, ${toFirst(rows)}`, digits: 0, ratio: true },
      { figure: 'p99', title: 'p99', digits: 0, ratio: true },
    ],
  };
}

/** Measures `withLock` and the decorator in comparison with acquire and release. */
async function decorator(title: string, staff: readonly Employed[], plan: Plan): Promise<ResultTable> {
  const workerOf = (name: string) => staff.find(({ contender }) => contender.name === name)!.worker;
  const [plain, decorated] = [workerOf(ours.name), workerOf(oursDecorated.name)];
  const rows = await interleaved(
    [
      { name: 'acquire and release', run: () => timesOf(plain, 'hold', plan) },
      { name: 'withLock', run: () => timesOf(plain, 'withLock', plan) },
      { name: '@WithLock', run: () => timesOf(decorated, 'withLock', plan) },
    ],
    times(31, plan, 2),
  );
  return {
    title: `Ours, renewed, one after the other, ${title}, us`,
    rows,
    columns: [
      { figure: 'p50', title: 'p50, to acquire and release', digits: 0, ratio: true },
      { figure: 'p99', title: 'p99', digits: 0, ratio: true },
    ],
  };
}

async function timesOf(
  worker: Employed['worker'],
  how: 'hold' | 'withLock',
  plan: Plan,
): Promise<{ p50: number; p99: number }> {
  const { acquire, release } = await worker.must('calls', { how, count: times(100, plan, 20) });
  const took = acquire.map((one, index) => one + (release[index] ?? 0));
  return { p50: 1_000 * median(took), p99: 1_000 * quantile(took, 0.99) };
}
