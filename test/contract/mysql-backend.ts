import { MysqlStore } from '../../lib/stores/mysql/mysql-store.js';
import { type StartMysqlOptions, startMysqlServer } from '../support/mysql-server.js';
import { newTerms } from '../support/postgres-store.js';
import type { Backend } from './lock-contract.js';

/** A real MariaDB or MySQL. */
export async function mysqlBackend(options: StartMysqlOptions = {}): Promise<Backend> {
  const server = await startMysqlServer(options);
  return {
    async nodes() {
      const store = new MysqlStore({ uri: server.uri }, newTerms());
      await store.connect();
      return [store];
    },
    async countKeys() {
      const held =
        "select count(*) from redlock_locks where state <> 'free' and ends > unix_timestamp(now(6)) * 1000000";
      return Number(await server.value(held));
    },
    stop: () => server.stop(),
  };
}
