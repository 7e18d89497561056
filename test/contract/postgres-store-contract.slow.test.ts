import { afterAll, beforeAll, describe, test } from '@jest/globals';
import type { LockMode } from '../../lib/core/lock-mode.js';
import { PostgresStore } from '../../lib/stores/postgres/postgres-store.js';
import { type PostgresServer, startPostgresServer } from '../support/postgres-server.js';
import { newTerms } from '../support/postgres-store.js';
import { storeContract } from 'nestjs-redlock/store';

const modes: readonly LockMode[] = ['exclusive', 'shared', 'permits'];

let server: PostgresServer;
let store: PostgresStore;

beforeAll(async () => {
  server = await startPostgresServer();
  store = new PostgresStore({ connectionString: server.url }, newTerms());
  await store.connect();
});
afterAll(async () => {
  await store.close();
  await server.stop();
});

storeContract({ describe, test }, 'PostgreSQL', { modes, store: () => store });
