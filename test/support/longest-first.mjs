import { existsSync } from 'node:fs';
import Sequencer from '@jest/test-sequencer';

/**
 * Test files that take long, the longest first. A long file that begins last runs on while the other workers have
 * nothing to do.
 */
const LONG = [
  'faults/scenarios.clients',
  'consumers/packed-package',
  'faults/scenarios.nodes',
  'contract/clients',
  'stores/postgres/faults',
  'faults/scenarios.kinds',
  'contract/etcd-store-contract',
  'contract/etcd',
  'contract/postgres-store-contract',
  'sample-app/batch-run',
  'cli/declared',
  'faults/controls',
  'sample-app/demo',
  'lab/playground',
  'waiting/kinds',
  'stores/postgres/failover',
  'install',
  'docs',
  'module/process-life',
  'lab/lab',
  'cli/cli',
  'contract/redis',
  'transactions/nestjs-cls',
  'model/one-node',
  'faults/nodes-away',
  'contract/postgres',
  'stores/redis/health/server-probe',
  'contract/redis-store-contract',
  'readme',
  'contract/memory-store-contract',
  'fencing/paused-holder',
  'model/kinds',
  'variants/acl',
  'lab/endings',
  'waiting/waiters',
  'stores/etcd/faults',
  'stores/redis/permits',
  'stores/redis/connection/cluster-connecting',
  'contract/permits',
  'decorator/schedule/ticks',
  'stores/redis/redis-store',
  'model/node',
  'examples/examples',
  'waiting/contention',
  'stores/postgres/pgbouncer',
  'variants/sentinel',
  'stores/etcd/cluster',
].map((name) => `/test/${name}.test.ts`);

const missing = LONG.filter((name) => !existsSync(`.${name}`));
if (missing.length > 0)
  throw new Error(`longest-first.mjs names tests that are not there: ${missing.join(', ')}`);

/** Runs the long test files before the others. Without this order a fresh clone runs the largest files first. */
export default class LongestFirst extends Sequencer {
  sort(tests) {
    const rank = ({ path }) => {
      const index = LONG.findIndex((name) => path.endsWith(name));
      return index < 0 ? LONG.length : index;
    };
    return [...super.sort(tests)].sort((a, b) => rank(a) - rank(b));
  }
}
