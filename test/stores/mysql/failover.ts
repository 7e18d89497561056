import { describe } from '@jest/globals';
import { MysqlStore } from '../../../lib/stores/mysql/mysql-store.js';
import { type MysqlProgram, startMysqlServer } from '../../support/mysql-server.js';
import { newTerms } from '../../support/postgres-store.js';
import { startTcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';
import { failoverContract, type ReplicatedDatabase } from '../failover-contract.js';

/** A day in milliseconds: the primary never stops waiting for its replica. */
const FOREVER = 86_400_000;

/** The names of replication, in which MariaDB and MySQL differ. */
interface Names {
  /** Settings of both servers. */
  readonly settings: readonly string[];
  /** Connects a replica to its primary. */
  readonly follow: (host: string, port: number, user: string, password: string) => string;
  /** The beginning of the variables for semi-synchronous replication on the primary. */
  readonly semiSync: string;
}

const REPLICATING = ['log-bin=log', 'sync-binlog=1'];

const MARIADB: Names = {
  settings: [...REPLICATING, 'binlog-format=ROW', 'rpl-semi-sync-slave-enabled=ON'],
  follow: (host, port, user, password) =>
    `change master to master_host = '${host}', master_port = ${port}, master_user = '${user}', ` +
    `master_password = '${password}', master_use_gtid = slave_pos`,
  semiSync: 'rpl_semi_sync_master',
};

const MYSQL: Names = {
  settings: [
    ...REPLICATING,
    ...['gtid-mode=ON', 'enforce-gtid-consistency=ON'],
    ...['plugin-load-add=semisync_source.so', 'plugin-load-add=semisync_replica.so'],
    'rpl-semi-sync-replica-enabled=ON',
  ],
  follow: (host, port, user, password) =>
    `change replication source to source_host = '${host}', source_port = ${port}, source_user = '${user}', ` +
    `source_password = '${password}', source_auto_position = 1, get_source_public_key = 1`,
  semiSync: 'rpl_semi_sync_source',
};

/** A primary and its replica. The synchronous one is semi-synchronous, and the primary never stops waiting for it. */
async function startPair(
  program: MysqlProgram,
  replication: 'synchronous' | 'asynchronous',
): Promise<ReplicatedDatabase> {
  const { settings, follow, semiSync } = program.name === 'MySQL' ? MYSQL : MARIADB;
  const [primary, replica] = await Promise.all(
    [1, 2].map((id) => startMysqlServer({ program, settings: [`server-id=${id}`, ...settings] })),
  );
  if (!primary || !replica) throw new Error('two servers were started');
  const link = await startTcpProxy(primary);
  await replica.query('set global read_only = 1');
  await replica.query(follow(link.host, link.port, primary.user, primary.password));
  await replica.query('start replica');
  await until(
    async () =>
      (await primary.value(
        "select count(*) from information_schema.processlist where command like 'Binlog Dump%'",
      )) === 1,
  );
  if (replication === 'synchronous') {
    // Only now: a primary without its replica would wait for it.
    await primary.query(
      `set global ${semiSync}_timeout = ${FOREVER}, global ${semiSync}_wait_point = after_sync, ` +
        `global ${semiSync}_enabled = 1`,
    );
    // A replica tells when it connects that it will acknowledge.
    await replica.query('stop replica');
    await replica.query('start replica');
    await until(async () => {
      const [clients] = (await primary.query(`show global status like '${semiSync}_clients'`)) as string[][];
      return clients?.[1] === '1';
    });
  }
  return {
    primary,
    replica,
    link,
    async promote() {
      // The replica must apply everything that it has received before it takes over.
      await replica.query('stop replica io_thread');
      await until(async () =>
        String(await replica.query('show replica status')).includes('has read all relay log'),
      );
      await replica.query('stop replica');
      await replica.query('set global read_only = 0');
    },
    newStore: ({ port }) =>
      new MysqlStore({ uri: replica.uriOf(replica.user, replica.database, port) }, newTerms()),
  };
}

export function failOverOn(program: MysqlProgram): void {
  describe(`a fail-over of ${program.name} to a replica`, () => {
    failoverContract((replication) => startPair(program, replication));
  });
}
