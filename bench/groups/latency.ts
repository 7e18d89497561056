import { ours, oursDecorated } from '../contenders/ours.js';
import type { Session } from '../contenders/contender.js';
import { interleaved } from '../measure/rounds.js';
import { median, quantile } from '../measure/statistics.js';
import type { ResultTable } from '../report/tables.js';
import { fit, type Group, nodesTitle, times, toFirst } from './group.js';
import { withSessions } from './sessions.js';

const TTL = 10_000;
const nothing = (): Promise<void> => Promise.resolve();

/** One call after the other, on keys that are free. */
export const latency: Group = {
  name: 'latency',
  about: 'acquire and release; a whole withLock with renewal; one after the other, on free keys',
  async run(plan) {
    const tables: ResultTable[] = [];
    for (const nodes of plan.nodes) {
      const contenders = fit(plan.contenders, nodes);
      const decorated = contenders.includes(ours) ? [...contenders, oursDecorated] : contenders;
      const found = await withSessions(nodes, decorated, async (opened, servers) => {
        let serial = 0;
        const key = (): string => `latency:${++serial % 1_000}`;
        const cycles = times(100, plan, 20);
        const rounds = times(15, plan, 2);
        const cycle = async (session: Session): Promise<[number, number]> => {
          const begun = performance.now();
          const release = await session.acquire(key(), TTL);
          const acquired = performance.now();
          await release();
          return [acquired - begun, performance.now() - acquired];
        };
        const parts = await interleaved(
          opened
            .filter(({ contender }) => contender !== oursDecorated)
            .map(({ contender, session }) => ({
              name: contender.name,
              async run() {
                await cycle(session);
                const before = await servers.sent(contender.sends);
                const taken = await repeat(cycles, () => cycle(session));
                const commands = ((await servers.sent(contender.sends)) - before) / cycles;
                const wholes = taken.map(([acquire, release]) => acquire + release);
                return {
                  acquire: 1_000 * median(taken.map(([acquire]) => acquire)),
                  release: 1_000 * median(taken.map(([, release]) => release)),
                  cycle: 1_000 * median(wholes),
                  p99: 1_000 * quantile(wholes, 0.99),
                  commands,
                };
              },
            })),
          rounds,
        );
        const wholes = await interleaved(
          opened.map(({ contender, session }) => ({
            name: contender.name,
            async run() {
              const taken = await repeat(cycles, async () => {
                const begun = performance.now();
                await session.withLock(key(), TTL, nothing);
                return performance.now() - begun;
              });
              return { withLock: 1_000 * median(taken), p99: 1_000 * quantile(taken, 0.99) };
            },
          })),
          rounds,
        );
        return { parts, wholes };
      });
      tables.push({
        title: `Latency of acquire and release, ${nodesTitle(nodes)}, us`,
        rows: found.parts,
        columns: [
          { figure: 'acquire', title: 'acquire p50', digits: 0 },
          { figure: 'release', title: 'release p50', digits: 0 },
          { figure: 'cycle', title: `both p50, ${toFirst(found.parts)}`, digits: 0, ratio: true },
          { figure: 'p99', title: 'both p99', digits: 0 },
          { figure: 'commands', title: 'commands per node', digits: 2 },
        ],
      });
      tables.push({
        title: `Latency of withLock, renewed where offered, ${nodesTitle(nodes)}, us`,
        rows: found.wholes,
        columns: [
          { figure: 'withLock', title: `p50, ${toFirst(found.wholes)}`, digits: 0, ratio: true },
          { figure: 'p99', title: 'p99', digits: 0 },
        ],
      });
    }
    return { tables };
  },
};

async function repeat<T>(count: number, measure: () => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  for (let index = 0; index < count; index++) results.push(await measure());
  return results;
}
