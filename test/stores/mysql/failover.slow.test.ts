import { mysqlPrograms } from '../../support/mysql-server.js';
import { onEach } from '../../support/on-each.js';
import { failOverOn } from './failover.js';

onEach(mysqlPrograms(), 'MariaDB', failOverOn);
