import config from './jest.config.mjs';

/** Tests that have a short form for `npm test`, and a long form, which `FAULTS=long` selects. */
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

/** `npm run test:faults` runs the long form of these tests, and tests that are too long for `npm test`. */
/** @type {import('jest').Config} */
export default {
  ...config,
  testMatch: ['**/*.long.ts', ...LONGER.map((name) => `**/test/${name}.test.ts`)],
};
