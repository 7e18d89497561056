import { onEach } from '../support/on-each.js';
import { debianPostgres } from '../support/postgres-server.js';
import { inspectionContract } from './inspection-contract.js';
import { lockContract } from './lock-contract.js';
import { postgresBackend } from './postgres-backend.js';

// Each change runs these contracts on the embedded PostgreSQL: see contract/postgres.test.ts.
onEach(await debianPostgres(), 'PostgreSQL of Debian', ({ name, bin }) => {
  lockContract(name, () => postgresBackend({ bin }));
  inspectionContract(name, () => postgresBackend({ bin }));
});
