import { afterAll, beforeAll, describe } from '@jest/globals';
import { PostgresStore } from '../../../lib/stores/postgres/postgres-store.js';
import { type PostgresServer, startPostgresServer } from '../../support/postgres-server.js';
import { newTerms } from '../../support/postgres-store.js';
import { startTcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';
import { failoverContract, type ReplicatedDatabase } from '../failover-contract.js';
import { orphansOn } from './contention.js';

let template: PostgresServer;

beforeAll(async () => {
  template = await startPostgresServer();
  await template.shutDown();
});
afterAll(() => template.stop());

/** A primary and its standby: streaming replication, synchronous with `synchronous_standby_names`. */
async function startPair(replication: 'synchronous' | 'asynchronous'): Promise<ReplicatedDatabase> {
  const primary = await startPostgresServer({ copyOf: template });
  const link = await startTcpProxy(primary);
  const replica = await startPostgresServer({
    copyOf: template,
    standby: true,
    settings: [`primary_conninfo=host=${link.host} port=${link.port} user=postgres application_name=standby`],
  });
  const looker = await primary.client();
  if (replication === 'synchronous') {
    await looker.query(`alter system set synchronous_standby_names = 'standby'`);
    await looker.query('select pg_reload_conf()');
  }
  const state = replication === 'synchronous' ? 'sync' : 'async';
  const following = `select from pg_stat_replication where state = 'streaming' and sync_state = '${state}'`;
  await until(async () => (await looker.query(following)).rowCount === 1);
  return {
    primary,
    replica,
    link,
    promote: async () => (await replica.client()).query('select pg_promote()'),
    newStore: ({ host, port }) =>
      new PostgresStore({ connectionString: `postgres://postgres@${host}:${port}/postgres` }, newTerms()),
    orphans: (ttl) => orphansOn(replica, ttl),
  };
}

describe('a fail-over of PostgreSQL to a standby', () => {
  failoverContract(startPair);
});
