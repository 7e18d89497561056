import type { StoreFactory } from '../../core/store-factory.js';
import { checkMysqlOptions, type MysqlOptions } from './mysql.options.js';
import { MysqlStore } from './mysql-store.js';

/**
 * Locks in MySQL or MariaDB. The result must be the only entry of the module's `nodes`, because a database that
 * replicates itself is one node.
 *
 * The store opens one connection for each process, a second one while callers wait, and a third one for long work. It
 * never uses a connection of the application: a lock inside a transaction would be visible only after the commit, and
 * would disappear with a rollback. The tables and procedures are created at start-up, or by the migration that
 * `npx nestjs-redlock schema --node mysql://…` prints.
 *
 * @throws TypeError or RangeError naming the invalid option
 * @see docs/mysql.md
 *
 * @example
 * ```ts
 * import { Module } from '@nestjs/common';
 * import { RedlockModule } from 'nestjs-redlock';
 * import { mysql } from 'nestjs-redlock/mysql';
 *
 * @Module({
 *   imports: [RedlockModule.forRoot({ nodes: mysql({ uri: 'mysql://app:secret@db:3306/app' }) })],
 * })
 * export class AppModule {}
 * ```
 */
export function mysql(options: MysqlOptions): StoreFactory {
  checkMysqlOptions(options);
  return { openStore: (terms) => new MysqlStore(options, terms), made: { by: 'mysql', options } };
}
