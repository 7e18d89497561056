import { expect, test } from '@jest/globals';
import { mysqlPrograms } from '../../support/mysql-server.js';
import { failOverOn } from './failover.js';

const programs = mysqlPrograms();

for (const program of programs) failOverOn(program);

// Without this test the file would fail on a machine without MariaDB.
test('the fail-over runs on MariaDB, if it is installed', () => {
  expect(programs).toEqual(expect.any(Array));
});
