/** Result of a statement. */
export interface SqlResult<Row> {
  readonly rows: Row[];
  /** Number of rows that were read or changed. */
  readonly rowCount?: number | null;
}

/**
 * A connection to PostgreSQL: a `Client` or `PoolClient` of `pg`, or any object with the same `query`.
 *
 * @example
 * ```ts
 * import type { SqlClient } from 'nestjs-redlock/fencing';
 *
 * // Like the entity manager of TypeORM, whose `query` returns only the rows.
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
  // oxlint-disable-next-line typescript/no-explicit-any -- as with `pg`: the statement decides which fields a row has
  query<Row extends object = any>(text: string, values?: unknown[]): Promise<SqlResult<Row>>;
}

/** A connection from a pool. */
export interface SqlPoolClient extends SqlClient {
  /** Returns the connection to the pool; with an error, the pool closes the connection. */
  release(error?: Error): void;
  on?(event: 'error', listener: (error: Error) => void): unknown;
  off?(event: 'error', listener: (error: Error) => void): unknown;
}

/** A source of connections: a `Pool` of `pg`, or any object with the same `connect`. */
export interface SqlPool {
  connect(): Promise<SqlPoolClient>;
}
