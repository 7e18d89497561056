import { mysqlPrograms } from '../support/mysql-server.js';
import { inspectionContract } from './inspection-contract.js';
import { lockContract } from './lock-contract.js';
import { mysqlBackend } from './mysql-backend.js';

for (const program of mysqlPrograms()) {
  lockContract(program.name, () => mysqlBackend({ program }));
  inspectionContract(program.name, () => mysqlBackend({ program }));
}
