import type { StoreFactory } from '../../core/store-factory.js';
import { checkPostgresOptions, type PostgresOptions } from './postgres.options.js';
import { PostgresStore } from './postgres-store.js';

/**
 * Locks in PostgreSQL. The result must be the only entry of the module's `nodes`, because a database that replicates
 * itself is one node.
 *
 * The store opens two connections for each process, and a third one for long work. It never uses a connection of the
 * application: a lock inside a transaction would be visible only after the commit, and would disappear with a rollback.
 * The tables are created at start-up, or by the migration that `npx nestjs-redlock postgres-migration` prints.
 *
 * @throws TypeError or RangeError naming the invalid option
 * @see docs/postgres.md
 *
 * @example
 * ```ts
 * import { Module } from '@nestjs/common';
 * import { RedlockModule } from 'nestjs-redlock';
 * import { postgres } from 'nestjs-redlock/postgres';
 *
 * @Module({
 *   imports: [RedlockModule.forRoot({ nodes: postgres({ connectionString: 'postgres://app:secret@db:5432/app' }) })],
 * })
 * export class AppModule {}
 * ```
 */
export function postgres(options: PostgresOptions): StoreFactory {
  checkPostgresOptions(options);
  return { openStore: (terms) => new PostgresStore(options, terms), made: { by: 'postgres', options } };
}
