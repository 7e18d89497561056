import { existsSync } from 'node:fs';
import Sequencer from '@jest/test-sequencer';

/**
 * Test files that take long, the longest first. A long file that begins last runs on while the other workers have
 * nothing to do.
 */
const LONG = [
  'consumers/packed-package.slow',
  'board/board.browser',
  'shown-objects.slow',
  'waiting/kinds.slow',
  'valkey.slow',
  'stores/zookeeper/zookeeper-ensemble.slow',
  'contract/mysql-store-contract.slow',
  'faults/controls.slow',
  'faults/scenarios.clients.slow',
  'examples/examples.slow',
  'thread/blocked.endings.slow',
  'thread/blocked',
  'lab/page.browser',
  'contract/clients.slow',
  'contract/postgres-store-contract.slow',
  'faults/scenarios.essential',
  'faults/scenarios.nodes.slow',
  'thread/blocked.nested.slow',
  'simulation/simulation.slow',
  'faults/scenarios.kinds.slow',
  'stores/redis/health/server-probe.slow',
  'faults/scenarios.replicated.slow',
  'stores/redis/detach',
  'stores/postgres/postgres-store',
  'contract/etcd-store-contract.slow',
  'stores/mysql/faults.slow',
  'waiting/waiters',
  'bench/bench.slow',
  'stores/etcd/faults.slow',
  'waiting/contention.slow',
  'stores/redis/node-identity',
  'cli/declared.slow',
  'fencing/paused-holder.slow',
  'lab/lab.slow',
  'stores/postgres/faults.slow',
  'sample-app/instance.slow',
  'errors-page.slow',
  'module/process-life.slow',
  'faults/nodes-away.slow',
  'variants/sentinel.slow',
  'stores/postgres/failover.slow',
  'sample-app/batch-run.slow',
  'stores/postgres/pgbouncer.slow',
  'contract/redis.slow',
  'stores/redis/late-acquire',
  'cli/cli.slow',
  'cli/doctor.slow',
  'cli/postgres.slow',
  'decorator/schedule/ticks.slow',
  'cli/run.slow',
  'contract/redis',
  'stores/redis/connection/cluster-connecting.slow',
  'lab/playground.slow',
  'stores/redis/redis-store',
  'sample-app/demo.slow',
  'stores/etcd/idle-connections.slow',
  'install.slow',
  'contract/etcd',
  'model/one-node.slow',
  'variants/acl.slow',
  'contract/zookeeper-store-contract.slow',
  'recipes/cache.slow',
  'decorator/with-lock.stacking.slow',
  'contract/permits.slow',
  'variants/node-redis.slow',
  'redlock/suspend',
  'contract/mysql.slow',
  'contract/postgres',
  'stores/redis/moving-slot.slow',
  'store/contract-runners.slow',
  'nest/commands.slow',
  'module/closing',
  'consumers/packed-types.slow',
  'decorator/results/held-results.slow',
  'stores/redis/permits',
  'service/transactions',
  'store/wrong-stores.slow',
  'service/neutral-context',
  'store/own-store.slow',
  'stores/redis/resent-acquire.slow',
  'module/shutdown',
  'board/redlock-board.module',
].map((name) => `/test/${name}${name.endsWith('.browser') ? '' : '.test'}.ts`);

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
