import { hasMysql, startMysqlServer } from '../../support/mysql-server.js';
import { startPostgresServer } from '../../support/postgres-server.js';
import { clientClockOn } from './client-clock.js';

clientClockOn('PostgreSQL', async () => (await startPostgresServer()).url);
if (hasMysql()) clientClockOn('MariaDB', async () => (await startMysqlServer()).uri);
