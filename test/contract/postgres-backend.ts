import { PostgresStore } from '../../lib/stores/postgres/postgres-store.js';
import { newTerms } from '../support/postgres-store.js';
import { type StartPostgresOptions, startPostgresServer } from '../support/postgres-server.js';
import type { Backend } from './lock-contract.js';

/** A real PostgreSQL. */
export async function postgresBackend(options: StartPostgresOptions = {}): Promise<Backend> {
  const server = await startPostgresServer(options);
  const looker = await server.client();
  return {
    async nodes() {
      const store = new PostgresStore({ connectionString: server.url }, newTerms());
      await store.connect();
      return [store];
    },
    async countKeys() {
      const { rows } = await looker.query(
        `select count(*) from redlock.locks where state <> 'free' and ends > clock_timestamp()`,
      );
      return Number((rows as { count: string }[])[0]?.count);
    },
    stop: () => server.stop(),
  };
}
