import { quoted } from '../core/printable.js';
import {
  type FencedRegisterOptions,
  type RegisterDialect,
  resolveRegisterOptions,
  tokenColumn,
} from './fenced-register.options.js';
import type { MysqlClient, MysqlPool, MysqlPoolClient } from './mysql-client.js';
import { StaleTokenError } from './stale-token.error.js';
import { type CheckedHolder, checkedHolder, type TokenHolder } from './token-holder.js';

// A name has at most 64 characters. MySQL names the constraints of a table after it, with `_chk_2` at the end.
const DIALECT: RegisterDialect = { owner: 'MysqlFencedRegister', mark: '`', longest: 58 };

/** Flag of a result: a transaction is open (`SERVER_STATUS_IN_TRANS` of the protocol). */
const IN_TRANSACTION = 1;

/** Attempts to begin a transaction whose check the server has rolled back because of a deadlock. */
const ATTEMPTS = 5;

/**
 * A table in MySQL or MariaDB with the highest fencing token of each key. It promises what a `FencedRegister` in
 * PostgreSQL promises: the check and the write are one transaction that begins with the check, and the transactions of a
 * key run one after the other. The table needs InnoDB.
 *
 * @see docs/fencing.md
 *
 * @example
 * ```ts
 * import { Injectable } from '@nestjs/common';
 * import type { Pool } from 'mysql2/promise';
 * import { type LockHandle, LockService } from 'nestjs-redlock';
 * import { MysqlFencedRegister } from 'nestjs-redlock/fencing';
 *
 * @Injectable()
 * export class Accounts {
 *   private readonly register = new MysqlFencedRegister();
 *
 *   constructor(
 *     private readonly locks: LockService,
 *     private readonly pool: Pool,
 *   ) {}
 *
 *   async onModuleInit(): Promise<void> {
 *     await this.pool.query(this.register.createTableSql);
 *   }
 *
 *   withdraw(account: string, amount: number): Promise<void> {
 *     return this.locks.withLock(`account:${account}`, (lock: LockHandle) =>
 *       this.register.transaction(this.pool, lock, async (connection) => {
 *         await connection.query('update accounts set balance = balance - ? where id = ?', [amount, account]);
 *       }),
 *     );
 *   }
 * }
 * ```
 */
export class MysqlFencedRegister {
  /** Statement that creates the table if it does not exist. Run it in your migrations. */
  readonly createTableSql: string;
  private readonly table: string;
  private readonly idleTimeout: number;

  /** @throws TypeError or RangeError naming the wrong option */
  constructor(options: FencedRegisterOptions = {}) {
    ({ table: this.table, idleTimeout: this.idleTimeout } = resolveRegisterOptions(options, DIALECT));
    // Keys are bytes, as in the locks: `a`, `A` and `a ` are three keys.
    this.createTableSql =
      `create table if not exists ${this.table} (\`key\` varbinary(2048) primary key, ${tokenColumn('token')}, ` +
      `${tokenColumn('read_token')}, slots mediumtext character set ascii) engine=innodb row_format=dynamic`;
  }

  /**
   * Runs `task` in a new transaction, and checks the token at its start. The check also protects reads: no earlier
   * holder can change the data afterwards.
   *
   * Keep the transaction short, and use only the database in `task`: later holders of the lock wait for the end of the
   * transaction. Use no statement that ends the transaction, such as `create table`.
   *
   * @param pool - the pool that lends the connection
   * @param lock - the lock under which the call is made; with several keys, all of them are checked
   * @param task - reads and writes with its argument, the connection; when `task` throws, nothing is written
   * @returns the result of `task`, after the commit
   * @throws StaleTokenError when the table has a higher token; `task` is then not called
   * @throws TypeError or RangeError when `lock` has no usable keys or token
   * @throws Error when the transaction ended within `task` although `task` did not throw: the server had rolled it back
   * because of a deadlock, or a statement had committed it
   */
  async transaction<T, Client extends MysqlPoolClient>(
    pool: MysqlPool<Client>,
    lock: TokenHolder,
    task: (client: Client) => Promise<T>,
  ): Promise<T> {
    const holder = checkedHolder(lock);
    const client = await pool.getConnection();
    let isBroken = false;
    // The server ends the connection when `idleTimeout` has passed. The client reports that as an `error` event, which
    // without a listener would be an uncaught error.
    const noteBroken = (): void => {
      isBroken = true;
    };
    client.on?.('error', noteBroken);
    try {
      await this.begin(client, holder);
      const result = await task(client);
      await assertStillOpen(client, holder);
      await client.query('commit');
      // The data is written, so a connection that is lost now must not make the caller write it again.
      await this.restoreTimeout(client).catch(noteBroken);
      return result;
    } catch (error) {
      await rolledBack(client, () => this.restoreTimeout(client)).catch(noteBroken);
      throw error;
    } finally {
      client.off?.('error', noteBroken);
      // A connection whose transaction may still be open must not return to the pool.
      if (isBroken) client.destroy();
      else client.release();
    }
  }

  /**
   * Checks the token in a transaction that the application itself has begun, for example with a library. Call `advance`
   * before all other statements: the check protects only the statements after it, and two transactions that write first
   * and check later can deadlock. With the isolation level repeatable read, the default, a read before `advance` also
   * makes all later reads of the transaction see the data of that time. Roll back when `advance` throws.
   *
   * @param client - the connection of the open transaction
   * @param lock - the lock under which the call is made; with several keys, all of them are checked
   * @throws StaleTokenError when a higher token was seen
   * @throws TypeError when `client` has no open transaction, or its results do not say so; or `lock` has no usable keys
   * @throws RangeError when `lock` has no usable token
   *
   * @example
   * ```ts
   * import type { Connection } from 'mysql2/promise';
   * import type { LockHandle } from 'nestjs-redlock';
   * import { MysqlFencedRegister } from 'nestjs-redlock/fencing';
   *
   * export async function rename(connection: Connection, lock: LockHandle, name: string): Promise<void> {
   *   await connection.beginTransaction();
   *   try {
   *     await new MysqlFencedRegister().advance(connection, lock);
   *     await connection.query('update shops set name = ?', [name]);
   *     await connection.commit();
   *   } catch (error) {
   *     await connection.rollback();
   *     throw error;
   *   }
   * }
   * ```
   */
  async advance(client: MysqlClient, lock: TokenHolder): Promise<void> {
    const holder = checkedHolder(lock);
    await assertTransaction(client);
    await this.raise(client, holder);
  }

  /**
   * Begins the transaction, and checks the token in it. Repeats this after a deadlock, because the server has then rolled
   * the transaction back. Transactions that wait for the row of a new key deadlock when the one that made the row is
   * rolled back.
   */
  private async begin(client: MysqlPoolClient, holder: CheckedHolder): Promise<void> {
    const limit = Math.ceil(this.idleTimeout / 1_000);
    if (limit > 0)
      await client.query(
        `set @redlock_wait_timeout = @@session.wait_timeout, session wait_timeout = ${limit}`,
      );
    for (let attempt = 1; ; attempt++) {
      try {
        await client.query('start transaction');
        await this.raise(client, holder);
        await client.query('savepoint redlock_fence');
        return;
      } catch (error) {
        if (attempt === ATTEMPTS || codeOf(error) !== 'ER_LOCK_DEADLOCK') throw error;
      }
    }
  }

  private async restoreTimeout(client: MysqlPoolClient): Promise<void> {
    if (this.idleTimeout > 0) await client.query('set session wait_timeout = @redlock_wait_timeout');
  }

  /**
   * Raises the tokens, which locks their rows, and compares what the rows have now. The rows of one statement are in the
   * order of their keys, so two locks with several keys lock them in the same order.
   */
  private async raise(client: MysqlClient, holder: CheckedHolder): Promise<void> {
    const { keys, fencingToken, mode, slots } = holder;
    // A refused token is raised, too, and does no harm: a larger one was issued before, and the caller rolls back.
    const column = mode === 'shared' ? 'read_token' : 'token';
    const token = mode === 'permits' ? 0 : fencingToken;
    await client.query(
      `insert into ${this.table} (\`key\`, ${column}) values ${list('(unhex(?), ?)', keys)} ` +
        `on duplicate key update ${column} = greatest(${column}, values(${column}))`,
      keys.flatMap((key) => [hexOf(key), token]),
    );
    // `for update` reads what is committed, also in a transaction that has an older snapshot. A scan of the whole table,
    // which servers prefer for small tables, would lock the rows of other keys, too.
    const [rows] = await client.query(
      `select lower(hex(\`key\`)) as name, token, read_token, slots from ${this.table} force index (primary) ` +
        `where \`key\` in (${list('unhex(?)', keys)}) for update`,
      keys.map(hexOf),
    );
    const seen = new Map((rows as Row[]).map((row) => [row.name, seenIn(row)]));
    const inOrder = keys.map((key) => seen.get(hexOf(key)) ?? NOTHING_SEEN);
    const highest = inOrder.map((each, index) => highestOf(each, mode, slots[index]));
    const refused = keys.filter((_, index) => highest[index]! > fencingToken);
    if (refused.length > 0) throw new StaleTokenError(refused, fencingToken, Math.max(...highest));
    if (mode !== 'permits') return;
    await client.query(
      `insert into ${this.table} (\`key\`, slots) values ${list('(unhex(?), unhex(?))', keys)} ` +
        'on duplicate key update slots = values(slots)',
      keys.flatMap((key, index) => {
        const raised = { ...inOrder[index]!.slots, [slots[index]!]: fencingToken };
        return [hexOf(key), hexOf(JSON.stringify(raised))];
      }),
    );
  }
}

/** A row of the table as the drivers return it: a bigint can be a number or a string. */
interface Row {
  readonly name: string;
  readonly token: number | string;
  readonly read_token: number | string;
  readonly slots: string | null;
}

/** The highest tokens of a key: of exclusive locks, of shared locks, and of each slot of permits (S21). */
interface Seen {
  readonly token: number;
  readonly readToken: number;
  readonly slots: Readonly<Record<string, number>>;
}

const NOTHING_SEEN: Seen = { token: 0, readToken: 0, slots: {} };

function seenIn({ token, read_token, slots }: Row): Seen {
  return {
    token: Number(token),
    readToken: Number(read_token),
    slots: JSON.parse(slots ?? '{}') as Record<string, number>,
  };
}

/** The highest of the tokens with which a token of this mode is compared. */
function highestOf(
  { token, readToken, slots }: Seen,
  mode: CheckedHolder['mode'],
  slot: number | undefined,
): number {
  switch (mode) {
    case 'exclusive':
      return Math.max(token, readToken, ...Object.values(slots));
    case 'shared':
      return Math.max(token, ...Object.values(slots));
    case 'permits':
      return Math.max(token, readToken, slots[String(slot)] ?? 0);
  }
}

/** Hexadecimal digits need no escaping, whatever `sql_mode` and character set the connection has. */
function hexOf(text: string): string {
  return Buffer.from(text).toString('hex');
}

function list(item: string, keys: readonly string[]): string {
  return keys.map(() => item).join(', ');
}

function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | undefined)?.code;
}

/** Checks that a transaction is open. The server says so in the header of each result without rows. */
async function assertTransaction(client: MysqlClient): Promise<void> {
  const [header] = await client.query('do 0');
  const status = (header as { serverStatus?: unknown } | undefined)?.serverStatus;
  if (typeof status !== 'number') {
    throw new TypeError(
      'Expected `client.query` to resolve to an array with the result of `mysql2`, whose `serverStatus` says if a transaction ' +
        'is open, got a result without it. Give a connection of `mysql2/promise`, or an object whose `query` passes its ' +
        'results on; or use `transaction(pool, lock, task)`.',
    );
  }
  if ((status & IN_TRANSACTION) === 0) {
    throw new TypeError(
      'Expected `client` to be the connection of an open transaction, got a connection without one. Without a ' +
        'transaction the check ends before the write begins, and a stale holder can be paused in between: call ' +
        '`beginTransaction` first, on the same connection, or use `transaction(pool, lock, task)`.',
    );
  }
}

/**
 * Checks that the transaction of the check is still open: the savepoint ends with it. After a deadlock, each further
 * statement of the task is a transaction of its own, without the check.
 */
async function assertStillOpen(client: MysqlClient, { keys }: CheckedHolder): Promise<void> {
  try {
    await client.query('release savepoint redlock_fence');
  } catch (error) {
    if (codeOf(error) !== 'ER_SP_DOES_NOT_EXIST') throw error;
    throw new Error(
      `The transaction for ${quoted(keys)} ended before its task, so the token did not protect what the task wrote after ` +
        'that. Either the server rolled it back because of a deadlock: do not catch the error of a statement in the task. ' +
        'Or a statement such as `commit` or `create table` ended it: use none in the task.',
      { cause: error },
    );
  }
}

async function rolledBack(client: MysqlClient, andThen: () => Promise<void>): Promise<void> {
  await client.query('rollback');
  await andThen();
}
