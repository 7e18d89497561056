import { existsSync } from 'node:fs';
import Sequencer from '@jest/test-sequencer';

/** Slow test files, longest first: a late start would leave the other worker without work. */
const LONG = [
  'faults/scenarios.nodes',
  'sample-app/batch-run',
  'consumers/packed-package',
  'faults/scenarios.clients',
  'bench/bench',
  'waiting/contention',
  'stores/postgres/faults',
  'stores/redis/health/server-probe',
  'faults/scenarios.kinds',
  'faults/nodes-away',
  'waiting/kinds',
  'contract/redis',
  'contract/postgres',
  'contract/permits',
  'lab/lab',
  'examples/examples',
  'stores/redis/connection/cluster-connecting',
  'contract/memory-store-contract',
  'decorator/schedule/ticks',
  'faults/controls',
  'stores/postgres/pgbouncer',
  'waiting/waiters',
  'stores/redis/renewals',
  'docs',
  'lab/endings',
  'readme',
  'stores/redis/redis-store',
  'fencing/paused-holder',
  'sample-app/instance',
  'cli/cli',
].map((name) => `/test/${name}.test.ts`);

const missing = LONG.filter((name) => !existsSync(`.${name}`));
if (missing.length > 0)
  throw new Error(`longest-first.mjs names tests that are not there: ${missing.join(', ')}`);

/** Runs the test files that take long before the others; without it a fresh clone goes by the size of the files. */
export default class LongestFirst extends Sequencer {
  sort(tests) {
    const rank = ({ path }) => {
      const index = LONG.findIndex((name) => path.endsWith(name));
      return index < 0 ? LONG.length : index;
    };
    return [...super.sort(tests)].sort((a, b) => rank(a) - rank(b));
  }
}
