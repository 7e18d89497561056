import { KINDS, permitsKey, sharedKey } from '../contenders/kinds.js';
import { redisSemaphore, redisSemaphorePermits } from '../contenders/redis-semaphore.js';
import type { ResultTable } from '../report/tables.js';
import { type Group, nodesTitle, progress, withThree } from './group.js';
import { latencyTable } from './latency.js';
import { serverTimeTable } from './server-time.js';
import { withStaff } from './sessions.js';
import { throughputTable } from './throughput.js';

const NOTES = [
  'Each lock has its own key, which nobody else holds, except in the rows with "all the same key". A lock with permits',
  'has its own slot and token. A semaphore of redis-semaphore has neither, and on several nodes each node counts alone.',
];

/** Measures permits and shared locks in comparison with exclusive locks. */
export const kinds: Group = {
  name: 'kinds',
  about: 'permits, shared locks and exclusive locks of this package, and semaphores of redis-semaphore',
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
            // Leave out the kinds with one key for all locks: this measurement holds more locks at the same time than
            // one key has permits.
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
