/**
 * A connection to MySQL or MariaDB: a connection of `mysql2/promise`, or any object whose `query` resolves to what
 * `mysql2` gives: the rows or the header of the result, and further values.
 *
 * @example
 * ```ts
 * import type { MysqlClient } from 'nestjs-redlock/fencing';
 *
 * // Like the entity manager of TypeORM, whose `query` returns only the rows or the header.
 * interface Manager {
 *   query(text: string, values?: unknown[]): Promise<any>;
 * }
 *
 * export function clientOf(manager: Manager): MysqlClient {
 *   return { query: async (text, values) => [await manager.query(text, values)] };
 * }
 * ```
 */
export interface MysqlClient {
  query(text: string, values?: unknown[]): PromiseLike<readonly unknown[]>;
}

/** A connection from a pool. */
export interface MysqlPoolClient extends MysqlClient {
  /** Returns the connection to the pool. */
  release(): void;
  /** Closes the connection. */
  destroy(): void;
  on?(event: 'error', listener: (error: Error) => void): unknown;
  off?(event: 'error', listener: (error: Error) => void): unknown;
}

/** A source of connections: a pool of `mysql2/promise`, or any object with the same `getConnection`. */
export interface MysqlPool<Client extends MysqlPoolClient = MysqlPoolClient> {
  getConnection(): Promise<Client>;
}
