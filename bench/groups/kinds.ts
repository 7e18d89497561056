import { KINDS, permitsKey, sharedKey } from '../contenders/kinds.js';
import { redisSemaphore, redisSemaphorePermits } from '../contenders/redis-semaphore.js';
import type { ResultTable } from '../report/tables.js';
import { type Group, nodesTitle, progress, withThree } from './group.js';
import { latencyTable } from './latency.js';
import { serverTimeTable } from './server-time.js';
import { withStaff } from './sessions.js';
import { throughputTable } from './throughput.js';

const NOTES = [
  'Each lock on a key of its own, which nobody else holds, but where it says that all have the same key. A lock with permits',
  'has a slot and a token of its own; a semaphore of redis-semaphore has neither, and on several nodes each counts by itself.',
];

/** Measures permits and shared locks in comparison with exclusive locks. */
export const kinds: Group = {
  name: 'kinds',
  about: 'a permit and a shared lock beside an exclusive one of ours; semaphores of redis-semaphore',
  async run(plan) {
    const tables: ResultTable[] = [];
    const theirs = plan.contenders.includes(redisSemaphore) ? [redisSemaphorePermits] : [];
    const contenders = [...KINDS, ...theirs];
    for (const nodes of withThree(plan)) {
      progress(nodesTitle(nodes));
      await withStaff(nodes, contenders, async (staff, servers) => {
        const title = nodesTitle(nodes);
        const latency = await latencyTable(
          `Kinds of lock, one after the other, ${title}, us`,
          staff,
          servers,
          plan,
        );
        tables.push(
          { ...latency, notes: NOTES },
          await throughputTable(`Kinds of lock, 64 in flight, ${title}`, staff, servers, plan),
          await serverTimeTable(
            `Kinds of lock, server time, ${title}, us, of each node`,
            // This measurement holds more locks at once than there are permits.
            staff.filter(({ contender }) => contender !== sharedKey && contender !== permitsKey),
            servers,
            plan,
          ),
        );
      });
    }
    return { tables };
  },
};
