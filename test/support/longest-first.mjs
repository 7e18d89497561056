import { existsSync } from 'node:fs';
import Sequencer from '@jest/test-sequencer';

/**
 * Test files that take long, the longest first. A long file that begins last runs on while the other workers have
 * nothing to do.
 */
const LONG = [
  'consumers/packed-package.slow',
  'faults/scenarios.clients.slow',
  'faults/scenarios.nodes.slow',
  'faults/scenarios.kinds.slow',
  'shown-objects.slow',
  'lab/lab.slow',
  'waiting/kinds.slow',
  'sample-app/batch-run.slow',
  'lab/playground.slow',
  'contract/clients.slow',
  'faults/scenarios.replicated.slow',
  'examples/examples.slow',
  'faults/controls.slow',
  'sample-app/demo.slow',
  'cli/cli.slow',
  'contract/postgres-store-contract.slow',
  'faults/scenarios.essential',
  'stores/redis/health/server-probe.slow',
  'cli/postgres.slow',
  'valkey.slow',
  'stores/postgres/faults',
  'stores/postgres/contention.slow',
  'store/wrong-stores.slow',
  'store/contract-runners.slow',
  'contract/etcd-store-contract.slow',
  'contract/zookeeper-store-contract.slow',
  'stores/zookeeper/zookeeper-ensemble.slow',
  'api-reference.slow',
  'variants/sentinel.slow',
  'module/process-life.slow',
  'stores/postgres/pgbouncer.slow',
  'faults/nodes-away.slow',
  'stores/redis/node-identity',
  'contract/redis',
  'stores/redis/redis-store',
  'sample-app/instance.slow',
  'redlock/suspend',
  'stores/etcd/faults',
  'contract/redis.slow',
  'stores/etcd/idle-connections.slow',
  'cli/declared.slow',
  'recipes/cache.slow',
  'waiting/waiters',
  'stores/redis/late-acquire',
  'bench/bench.slow',
  'waiting/contention.slow',
  'cli/doctor.slow',
  'stores/postgres/postgres-store',
  'decorator/schedule/ticks.slow',
  'stores/etcd/answers.slow',
  'stores/redis/connection/cluster-connecting.slow',
  'decorator/results/held-results.slow',
  'fencing/paused-holder.slow',
  'prose.slow',
  'stores/etcd/cluster.slow',
  'contract/permits.slow',
  'stores/redis/resent-acquire.slow',
  'variants/node-redis.slow',
  'stores/postgres/full-disk.slow',
  'stores/etcd/contention.slow',
  'contract/etcd',
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
