import { expect, test } from '@jest/globals';
import { debianPostgres } from '../support/postgres-server.js';
import { inspectionContract } from './inspection-contract.js';
import { lockContract } from './lock-contract.js';
import { postgresBackend } from './postgres-backend.js';

const installed = await debianPostgres();

for (const { name, bin } of installed) {
  lockContract(name, () => postgresBackend({ bin }));
  inspectionContract(name, () => postgresBackend({ bin }));
}

// Without this test the file would fail on a machine that has no PostgreSQL of Debian. Each change runs these contracts
// on the embedded PostgreSQL: see contract/postgres.test.ts.
test(`the contracts run on ${installed.length} versions of PostgreSQL of Debian`, () => {
  expect(installed).toEqual(expect.any(Array));
});
