/** Result of a statement. */
export interface SqlResult<Row> {
  readonly rows: Row[];
  /** Number of rows that were read or changed. */
  readonly rowCount?: number | null;
  /** Command that the server reports: after `commit`, `'ROLLBACK'` means that a statement had failed. */
  readonly command?: string;
}

/**
 * A connection to PostgreSQL: a `Client` or `PoolClient` of `pg`, or any object that has their `query`.
 *
 * @example
 * ```ts
 * import type { SqlClient } from 'nestjs-redlock/fencing';
 *
 * // As the entity manager of TypeORM has it: `query` gives the rows alone.
 * interface Manager {
 *   query(text: string, values?: unknown[]): Promise<any[]>;
 * }
 *
 * export function clientOf(manager: Manager): SqlClient {
 *   return { query: async (text, values) => ({ rows: await manager.query(text, values) }) };
 * }
 * ```
 */
export interface SqlClient {
  // oxlint-disable-next-line typescript/no-explicit-any -- as with `pg`: what a row has, the statement decides
  query<Row extends object = any>(text: string, values?: unknown[]): Promise<SqlResult<Row>>;
}

/** A connection that a pool has lent. */
export interface SqlPoolClient extends SqlClient {
  /** Gives it back; with an error, to be closed. */
  release(error?: Error): void;
  on?(event: 'error', listener: (error: Error) => void): unknown;
  off?(event: 'error', listener: (error: Error) => void): unknown;
}

/** Source of connections: a `Pool` of `pg`, or any object that has its `connect`. */
export interface SqlPool {
  connect(): Promise<SqlPoolClient>;
}
