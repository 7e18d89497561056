import type { Redlock } from '../../../lib/redlock/redlock.js';
import { PATIENT } from '../../support/patience.js';
import { startPostgresServer } from '../../support/postgres-server.js';
import { redlockOver } from '../../support/core.js';
import { PostgresStore } from '../../../lib/stores/postgres/postgres-store.js';
import { newTerms } from '../../support/postgres-store.js';
import { type ContendedServer, contentionContract } from '../contention-contract.js';
import { LEAST, orphansOn, TERMS } from './contention.js';

// `npm run test:faults` runs longer.

async function start(): Promise<ContendedServer> {
  const server = await startPostgresServer();
  const looker = await server.client();
  return {
    terms: TERMS,
    async open(): Promise<Redlock> {
      const store = new PostgresStore({ connectionString: server.url }, newTerms());
      await store.connect();
      return redlockOver([store], PATIENT);
    },
    restart: () => server.restart(),
    pause: async () => server.pause(),
    resume: () => server.resume(),
    cut: async () =>
      looker.query(
        `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'nestjs-redlock' and random() < 0.2`,
      ),
    forget: async () => looker.query(`update redlock.locks set state = 'free'`).catch(() => undefined),
    orphans: () => orphansOn(server),
    stop: () => server.stop(),
  };
}

contentionContract('PostgreSQL', { start, processes: 4, least: LEAST, times: 2, pause: 1_600 });
