import { expect, test } from '@jest/globals';
import { mysqlPrograms } from '../support/mysql-server.js';
import { inspectionContract } from './inspection-contract.js';
import { lockContract } from './lock-contract.js';
import { mysqlBackend } from './mysql-backend.js';

const programs = mysqlPrograms();

for (const program of programs) {
  lockContract(program.name, () => mysqlBackend({ program }));
  inspectionContract(program.name, () => mysqlBackend({ program }));
}

// Without this test the file would fail on a machine without MariaDB.
test('the contracts run on MariaDB, if it is installed', () => {
  expect(programs).toEqual(expect.any(Array));
});
