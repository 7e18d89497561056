import config from './jest.config.mjs';

/** Tests that `npm test` runs in a short form; the environment variable FAULTS turns the long one on. */
const LONGER = [
  'faults/scenarios.*',
  'faults/controls',
  'lab/playground',
  'waiting/contention',
  'waiting/kinds',
  'stores/postgres/faults',
  'stores/postgres/failover',
  'stores/etcd/cluster',
  'stores/etcd/faults',
];

/** `npm run test:faults`: those, and tests that are too long for `npm test`. */
/** @type {import('jest').Config} */
export default {
  ...config,
  testMatch: ['**/*.long.ts', ...LONGER.map((name) => `**/test/${name}.test.ts`)],
};
