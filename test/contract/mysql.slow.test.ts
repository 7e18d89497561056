import { mysqlPrograms } from '../support/mysql-server.js';
import { onEach } from '../support/on-each.js';
import { inspectionContract } from './inspection-contract.js';
import { lockContract } from './lock-contract.js';
import { mysqlBackend } from './mysql-backend.js';

onEach(mysqlPrograms(), 'MariaDB', (program) => {
  lockContract(program.name, () => mysqlBackend({ program }));
  inspectionContract(program.name, () => mysqlBackend({ program }));
});
