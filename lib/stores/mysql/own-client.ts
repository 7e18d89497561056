import { connect, type Socket } from 'node:net';
import { type Connection, type ConnectionOptions, createConnection, type SslOptions } from 'mysql2';
import { withTimeout } from '../../core/with-timeout.js';
import type { DatabaseClient, DatabaseDriver } from '../database/database-client.js';
import { withAdvice } from './connection-advice.js';
import type { MysqlAddress } from './mysql.options.js';
import { SQL_MODE } from './schema.js';

/** Milliseconds that the server has for closing a connection that ends. After that, the socket is destroyed. */
const END_WITHIN_MS = 1_000;

/**
 * Milliseconds without traffic after which TCP checks a connection. Networks forget idle connections after half a minute
 * to an hour; the default of Linux is two hours.
 */
const KEEP_ALIVE_AFTER_MS = 5_000;

/** Milliseconds within which a connection must be open. */
const CONNECT_WITHIN_MS = 5_000;

/**
 * Longest wait of a statement for a row that another transaction has locked, in seconds. All statements that lock rows are
 * short, so a longer wait shows that the other transaction hangs.
 */
const LOCK_WAIT_S = 2;

/**
 * Settings of the session, in place of those that the server or the administrator has chosen for applications. In
 * particular, answers are longer than the default of `group_concat_max_len`, and an idle connection stays open.
 *
 * The server may ignore the character set of the handshake, or set another one after it (`init_connect`). It would then
 * read the keys in JSON in that character set, but not those that come as bytes: one key would have two rows, and two holders.
 */
const SESSION =
  `set names utf8mb4 collate utf8mb4_bin, sql_mode = '${SQL_MODE}', innodb_lock_wait_timeout = ${LOCK_WAIT_S}, lock_wait_timeout = ${LOCK_WAIT_S}, ` +
  'group_concat_max_len = 67108864, autocommit = 1, sql_safe_updates = 0, wait_timeout = 28800, completion_type = 0' +
  // MariaDB and MySQL have different names for the time limit of statements. Each takes the other's part for a comment.
  '/*M! , max_statement_time = 0 */ /*!80000 , max_execution_time = 0 */';

/** A setting that has different names on the servers. */
const READ_WRITE = 'set session transaction read write';

/**
 * Errors of a server that became read-only or shuts down. The connection is then replaced, because a new one may lead to
 * the primary.
 */
const REPLACED_AFTER = new Set([
  'ER_OPTION_PREVENTS_STATEMENT',
  'ER_READ_ONLY_MODE',
  'ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION',
  'ER_SERVER_SHUTDOWN',
  'ER_NORMAL_SHUTDOWN',
]);

/** Opens connections with `mysql2`. */
export function mysqlDriver(address: MysqlAddress): DatabaseDriver<OwnClient> {
  return {
    newClient: () => new OwnClient(address),
    test: 'do 1',
    replaces: (error) => REPLACED_AFTER.has((error as { code?: string }).code ?? ''),
    withAdvice,
  };
}

/** A connection of `mysql2`, whose end has a time limit. */
export class OwnClient implements DatabaseClient {
  #connection: Connection | undefined;
  #socket: Socket | undefined;
  #isEnded = false;
  readonly #listeners: ((error: Error) => void)[] = [];
  /** Rejects the statements without an answer: `mysql2` forgets them when the socket is destroyed. */
  readonly #waiting = new Set<(error: Error) => void>();

  constructor(private readonly address: MysqlAddress) {}

  connect(): Promise<void> {
    return new Promise((resolve, reject) => {
      // `end` and a loss reject it, also while the password is on its way.
      this.#waiting.add(reject);
      void this.#open()
        .then(resolve, reject)
        .finally(() => this.#waiting.delete(reject));
    });
  }

  async #open(): Promise<void> {
    const { password, socketPath, host, port, user, database, ssl } = this.address;
    const given = typeof password === 'function' ? await password() : password;
    if (this.#isEnded) throw new Error('the connection was closed');
    const socket = socketPath === undefined ? connect(port, host) : connect(socketPath);
    this.#socket = socket.setNoDelay(true).setKeepAlive(true, KEEP_ALIVE_AFTER_MS);
    const options: ConnectionOptions = {
      host,
      port,
      database,
      ...(user === undefined ? {} : { user }),
      ...(given === undefined ? {} : { password: given }),
      // Without `verifyIdentity`, mysql2 would accept the certificate of any host.
      ...(ssl === undefined
        ? {}
        : { ssl: { verifyIdentity: ssl.rejectUnauthorized !== false, ...ssl } as SslOptions }),
      stream: () => socket,
      connectTimeout: CONNECT_WITHIN_MS,
      charset: 'UTF8MB4_BIN',
      // mysql2 allows a server to ask for any file of the client.
      flags: ['-LOCAL_FILES'],
    };
    const connection = createConnection(options);
    this.#connection = connection;
    connection.on('error', (error) => this.#lost(error));
    socket.on('close', () => this.#lost(new Error('the connection was closed')));
    await new Promise<void>((resolve) => void connection.once('connect', () => resolve()));
    await this.run(SESSION);
    await this.run(READ_WRITE);
  }

  run(text: string, values: readonly unknown[] = []): Promise<string | undefined> {
    const connection = this.#connection;
    return new Promise((resolve, reject) => {
      if (!connection || this.#socket?.destroyed !== false)
        return reject(new Error('the connection was closed'));
      this.#waiting.add(reject);
      const answered = (error: (Error & { fatal?: boolean }) | null, result: unknown): void => {
        this.#waiting.delete(reject);
        if (!error) return resolve(textOf(result));
        // `mysql2` gives the error of a lost connection to the statement alone. Its caller sends the statement again only if
        // the loss is known by then.
        if (error.fatal === true) this.#lost(error);
        else this.#rollBack(connection);
        reject(error);
      };
      const query = { sql: text, rowsAsArray: true };
      // Values of a prepared statement need no escaping.
      if (values.length > 0) connection.execute(query, [...values] as string[], answered);
      else connection.query(query, answered);
    });
  }

  onLost(listener: (error: Error) => void): void {
    this.#listeners.push(listener);
  }

  async end(): Promise<void> {
    this.#isEnded = true;
    const connection = this.#connection;
    if (connection && this.#waiting.size === 0 && this.#socket?.destroyed === false) {
      const ended = new Promise<void>((resolve) => connection.end(() => resolve()));
      await withTimeout(ended, END_WITHIN_MS).catch(() => undefined);
    }
    this.#socket?.destroy();
    this.#lost(new Error('the connection was closed'));
  }

  /**
   * Ends the transaction that a failed call may have left open, with its rows locked: a server need not run the handler of
   * a procedure that was killed or has no memory left. The next statement comes after the rollback.
   */
  #rollBack(connection: Connection): void {
    connection.query('rollback', (error: Error | null) => {
      if (error) this.#lost(error);
    });
  }

  #lost(error: Error): void {
    for (const reject of this.#waiting) reject(error);
    this.#waiting.clear();
    for (const listener of this.#listeners) listener(error);
  }
}

/**
 * The text in the only row and column of a result. A result of rows with a name and a value becomes a JSON object.
 */
function textOf(result: unknown): string | undefined {
  if (!Array.isArray(result)) return undefined;
  // A procedure answers with a list of results.
  const rows = (Array.isArray(result[0]) && Array.isArray(result[0][0]) ? result[0] : result) as unknown[][];
  const [first = []] = rows;
  if (first.length > 1) return JSON.stringify(Object.fromEntries(rows as [string, unknown][]));
  const [value] = first;
  return value === null || value === undefined ? undefined : String(value);
}
