import type { StoreFactory } from '../../core/store-factory.js';
import { checkPostgresOptions, type PostgresOptions } from './postgres.options.js';
import { PostgresStore } from './postgres-store.js';

/**
 * Locks in PostgreSQL: the `nodes` of a module, alone, because a database that replicates itself is one node.
 *
 * It opens two connections of its own for each process, and never uses one of the application's: a lock inside a
 * transaction would disappear with its rollback, and be visible only after its commit. Its tables are created at
 * start-up, or by the migration that `npx nestjs-redlock postgres-migration` prints.
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
  return { openStore: (terms) => new PostgresStore(options, terms) };
}
