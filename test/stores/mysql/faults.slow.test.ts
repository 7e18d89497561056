import { mysqlPrograms } from '../../support/mysql-server.js';
import { onEach } from '../../support/on-each.js';
import { faultsOn } from './faults.js';

onEach(mysqlPrograms(), 'MariaDB', faultsOn);
