import { expect, test } from '@jest/globals';
import { mysqlPrograms } from '../../support/mysql-server.js';
import { faultsOn } from './faults.js';

const programs = mysqlPrograms();

for (const program of programs) faultsOn(program);

// Without this test the file would fail on a machine without MariaDB.
test('the faults run on MariaDB, if it is installed', () => {
  expect(programs).toEqual(expect.any(Array));
});
