import { exclusive, shared } from '../contenders/kinds.js';
import { once, type Sample } from '../measure/rounds.js';
import { Servers } from '../measure/servers.js';
import { median, quantile } from '../measure/statistics.js';
import { withWorkers } from '../measure/workers.js';
import type { Contender } from '../contenders/contender.js';
import type { ResultTable } from '../report/tables.js';
import { type Group, nodesTitle, type Plan, progress, times, withThree } from './group.js';

const READERS = 16;
const PROCESSES = 4;
const HOLD = 5;
const WRITERS = [0, 1, 4];

/** Measures how often readers and writers get a lock, and how long they wait, under a constant stream of readers. */
export const readers: Group = {
  name: 'readers',
  about: `${READERS} readers in ${PROCESSES} processes that read for ${HOLD} ms again and again, and writers among them`,
  async run(plan) {
    const tables: ResultTable[] = [];
    for (const nodes of withThree(plan)) {
      const servers = await Servers.start(nodes);
      try {
        await servers.oldEnough();
        const rows = new Map<string, ReturnType<typeof once>>();
        for (const writers of WRITERS) {
          progress(`${nodesTitle(nodes)}, ${writers} writers`);
          const name = `${writers} writer${writers === 1 ? '' : 's'}`;
          rows.set(name, once(await stream(servers, shared, writers, plan)));
        }
        rows.set('1 writer, all exclusive', once(await stream(servers, exclusive, 1, plan)));
        tables.push({
          title: `${READERS} readers that ask again at once, each reads for ${HOLD} ms, ${nodesTitle(nodes)}`,
          rows,
          columns: [
            { figure: 'write.perSecond', title: 'writes/s', digits: 0 },
            { figure: 'write.p50', title: 'a writer waits: p50, ms', digits: 1 },
            { figure: 'write.longest', title: 'longest', digits: 1 },
            { figure: 'read.perSecond', title: 'reads/s', digits: 0 },
            { figure: 'read.p50', title: 'a reader waits: p50, ms', digits: 1 },
            { figure: 'read.longest', title: 'longest', digits: 1 },
            { figure: 'read.together', title: 'readers at a time', digits: 1 },
          ],
          notes: [
            'A writer asks again as soon as it has written. Readers at a time: the average number of concurrent readers.',
          ],
        });
      } finally {
        await servers.stop();
      }
    }
    return { tables };
  },
};

/** Runs readers and writers of one key, and counts their locks. */
function stream(servers: Servers, reading: Contender, writers: number, plan: Plan): Promise<Sample> {
  return withWorkers(PROCESSES + 1, async (workers) => {
    const within = times(5_000, plan, 500);
    const key = `stream:${reading.name}:${writers}`;
    const waits = await Promise.all(
      workers.map(async (worker, index) => {
        const writes = index === 0;
        await worker.must('open', { name: (writes ? exclusive : reading).name, urls: servers.urls });
        const waiters = writes ? writers : READERS / PROCESSES;
        const job = { key, waiters, each: Infinity, hold: HOLD, within };
        return waiters === 0 ? [] : ((await worker.ask('queue', job, within + 10_000))?.waits ?? []);
      }),
    );
    const [writes = [], ...reads] = waits;
    const allReads = reads.flat();
    return {
      ...summary('write', writes, within),
      ...summary('read', allReads, within),
      'read.together': (allReads.length * HOLD) / within,
    };
  });
}

function summary(name: string, waits: readonly number[], within: number): Sample {
  return {
    [`${name}.perSecond`]: waits.length === 0 ? NaN : (1_000 * waits.length) / within,
    [`${name}.p50`]: median(waits),
    [`${name}.p99`]: quantile(waits, 0.99),
    [`${name}.longest`]: waits.length === 0 ? NaN : Math.max(...waits),
  };
}
