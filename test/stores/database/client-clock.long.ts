import { debianMysql, laterMariadb } from '../../support/debian-mysql.js';
import { startMysqlServer } from '../../support/mysql-server.js';
import { onEach } from '../../support/on-each.js';
import { clientClockOn } from './client-clock.js';

onEach([...debianMysql(), ...laterMariadb()], 'the MySQL and the later MariaDB of Debian', (program) =>
  clientClockOn(program.name, async () => (await startMysqlServer({ program })).uri),
);
