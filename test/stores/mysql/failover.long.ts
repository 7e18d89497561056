import { expect, test } from '@jest/globals';
import { debianMysql, laterMariadb } from '../../support/debian-mysql.js';
import { failOverOn } from './failover.js';

const programs = [...debianMysql(), ...laterMariadb()];

for (const program of programs) failOverOn(program);

// Without this test the file would fail on a machine without these servers.
test('the fail-over runs on the MySQL and the later MariaDB of Debian, as far as they can be had', () => {
  expect(programs).toEqual(expect.any(Array));
});
