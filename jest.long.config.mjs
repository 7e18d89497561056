import config from './jest.config.mjs';

/** Tests that have a short form for `npm run test:all`, and a long form, which `FAULTS=long` selects. */
const LONGER = [
  'faults/scenarios.*',
  'faults/controls.slow',
  'lab/playground.slow',
  'sample-app/batch-run.slow',
  'sample-app/demo.slow',
  'waiting/contention.slow',
  'waiting/kinds.slow',
  'stores/postgres/failover.slow',
  'stores/etcd/cluster.slow',
  'stores/etcd/contention.slow',
  'stores/zookeeper/zookeeper-ensemble.slow',
];

/** `npm run test:faults` runs the long form of these tests, and tests that are too long for `npm run test:all`. */
/** @type {import('jest').Config} */
export default {
  ...config,
  testMatch: ['**/*.long.ts', ...LONGER.map((name) => `**/test/${name}.test.ts`)],
};
