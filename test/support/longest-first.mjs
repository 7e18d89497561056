import { existsSync } from 'node:fs';
import Sequencer from '@jest/test-sequencer';

/**
 * Test files that take long, the longest first. A long file that begins last runs on while the other workers have
 * nothing to do.
 */
const LONG = [
  'faults/scenarios.clients.slow',
  'consumers/packed-package.slow',
  'faults/scenarios.nodes.slow',
  'contract/clients.slow',
  'stores/postgres/faults',
  'faults/scenarios.kinds.slow',
  'contract/etcd-store-contract',
  'contract/etcd',
  'contract/postgres-store-contract',
  'sample-app/batch-run.slow',
  'cli/declared.slow',
  'faults/controls.slow',
  'sample-app/demo.slow',
  'lab/playground.slow',
  'waiting/kinds.slow',
  'stores/postgres/failover.slow',
  'install.slow',
  'docs',
  'module/process-life.slow',
  'lab/lab.slow',
  'cli/cli',
  'contract/redis',
  'transactions/nestjs-cls.slow',
  'model/one-node',
  'faults/nodes-away.slow',
  'contract/postgres',
  'stores/redis/health/server-probe',
  'contract/redis-store-contract',
  'readme',
  'contract/memory-store-contract',
  'fencing/paused-holder',
  'model/kinds.slow',
  'variants/acl.slow',
  'lab/endings.slow',
  'waiting/waiters',
  'stores/etcd/faults',
  'stores/redis/permits',
  'stores/redis/connection/cluster-connecting.slow',
  'contract/permits',
  'decorator/schedule/ticks.slow',
  'stores/redis/redis-store',
  'model/node.slow',
  'examples/examples.slow',
  'waiting/contention.slow',
  'stores/postgres/pgbouncer.slow',
  'variants/sentinel.slow',
  'stores/etcd/cluster.slow',
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
