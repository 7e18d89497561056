import { expect, test } from '@jest/globals';
import { debianMysql, laterMariadb } from '../../support/debian-mysql.js';
import { faultsOn } from './faults.js';

const programs = [...debianMysql(), ...laterMariadb()];

for (const program of programs) faultsOn(program);

// Without this test the file would fail on a machine without these servers.
test('the faults run on the MySQL and the later MariaDB of Debian, as far as they can be had', () => {
  expect(programs).toEqual(expect.any(Array));
});
