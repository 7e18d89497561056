import { debianMysql, laterMariadb } from '../../support/debian-mysql.js';
import { onEach } from '../../support/on-each.js';
import { faultsOn } from './faults.js';

onEach([...debianMysql(), ...laterMariadb()], 'the MySQL and the later MariaDB of Debian', faultsOn);
