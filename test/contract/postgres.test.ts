import { postgresVersions } from '../support/postgres-server.js';
import { inspectionContract } from './inspection-contract.js';
import { lockContract } from './lock-contract.js';
import { postgresBackend } from './postgres-backend.js';

for (const { name, bin } of await postgresVersions()) {
  lockContract(name, () => postgresBackend({ bin }));
  inspectionContract(name, () => postgresBackend({ bin }));
}
