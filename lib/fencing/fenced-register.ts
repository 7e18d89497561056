import {
  type FencedRegisterOptions,
  type RegisterDialect,
  resolveRegisterOptions,
  tokenColumn,
} from './fenced-register.options.js';
import type { LockMode } from '../core/lock-mode.js';
import { quoted } from '../core/printable.js';
import type { SqlClient, SqlPool, SqlPoolClient } from './sql-client.js';
import { StaleTokenError } from './stale-token.error.js';
import { type CheckedHolder, checkedHolder, type TokenHolder } from './token-holder.js';

// Longer names are not allowed, because PostgreSQL shortens them without an error.
const DIALECT: RegisterDialect = { owner: 'FencedRegister', mark: '"', longest: 63 };

/** PostgreSQL's code for `LOCK TABLE` or `RELEASE SAVEPOINT` outside of a transaction. */
const NO_ACTIVE_TRANSACTION = '25P01';

/** PostgreSQL's code for a savepoint that the transaction does not have. */
const NO_SUCH_SAVEPOINT = '3B001';

/** PostgreSQL's code for a statement after a failed one. */
const FAILED_TRANSACTION = '25P02';

/**
 * A table in PostgreSQL with the highest fencing token of each key. The table refuses lower tokens, so a holder that
 * was paused until after the end of its lock cannot overwrite the data of the next holder.
 *
 * The check and the write are one transaction that begins with the check. The check locks the key's row, so no other
 * check succeeds until the transaction has ended. The transactions of one key run one after the other, in the order of
 * their tokens.
 *
 * Locks that are held at the same time have no order. So the token of a permit is compared with earlier tokens of its
 * slot, and the token of a shared lock (a read) with earlier tokens of writes. The token of an exclusive lock is
 * compared with all earlier tokens of the key. In every mode, only one transaction of a key runs at a time.
 *
 * @see docs/fencing.md
 *
 * @example
 * ```ts
 * import { Injectable } from '@nestjs/common';
 * import { type LockHandle, LockService } from 'nestjs-redlock';
 * import { FencedRegister } from 'nestjs-redlock/fencing';
 * import { Pool } from 'pg';
 *
 * @Injectable()
 * export class Accounts {
 *   private readonly register = new FencedRegister();
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
 *       this.register.transaction(this.pool, lock, async (client) => {
 *         await client.query('update accounts set balance = balance - $2 where id = $1', [account, amount]);
 *       }),
 *     );
 *   }
 * }
 * ```
 */
export class FencedRegister {
  /**
   * Statement that creates the table if it does not exist. Run it in your migrations. When several processes run it at
   * the same time, one of them can fail, as with every `create table if not exists`.
   */
  readonly createTableSql: string;
  private readonly table: string;
  private readonly idleTimeout: number;

  /** @throws TypeError or RangeError naming the wrong option */
  constructor(options: FencedRegisterOptions = {}) {
    ({ table: this.table, idleTimeout: this.idleTimeout } = resolveRegisterOptions(options, DIALECT));
    this.createTableSql =
      `create table if not exists ${this.table} (key text primary key, ${tokenColumn('token')}, ` +
      `${tokenColumn('read_token')}, slots jsonb not null default '{}')`;
  }

  /**
   * Runs `task` in a new transaction, and checks the token at its start. The check also protects reads: no earlier
   * holder can change the data afterwards.
   *
   * Keep the transaction short, and use only the database in `task`: later holders of the lock wait for the end of the
   * transaction. Use no statement that ends the transaction, such as `commit`.
   *
   * @param pool - the pool that lends the connection
   * @param lock - the lock under which the call is made; with several keys, all of them are checked
   * @param task - reads and writes with its argument, the client; when `task` throws, nothing is written
   * @returns the result of `task`, after the commit
   * @throws StaleTokenError when the table has a higher token; `task` is then not called
   * @throws TypeError or RangeError when `lock` has no usable keys or token
   * @throws Error when a statement failed but `task` did not throw: PostgreSQL has rolled the transaction back
   * @throws Error when a statement of `task` ended the transaction: the token did not protect what `task` wrote after it
   */
  async transaction<T>(
    pool: SqlPool,
    lock: TokenHolder,
    task: (client: SqlClient) => Promise<T>,
  ): Promise<T> {
    const holder = checkedHolder(lock);
    const client = await pool.connect();
    let broken: Error | undefined;
    // The server ends the connection when `idleTimeout` has passed. The client reports that as an `error` event, which
    // without a listener would be an uncaught error.
    const noteBroken = (error: Error): void => {
      broken = error;
    };
    client.on?.('error', noteBroken);
    try {
      await this.begin(client);
      await this.raise(client, holder);
      const result = await task(client);
      await commit(client, holder);
      return result;
    } catch (error) {
      await client.query('rollback').catch(noteBroken);
      throw error;
    } finally {
      client.off?.('error', noteBroken);
      // A connection whose transaction may still be open must not return to the pool.
      client.release(broken);
    }
  }

  /**
   * Checks the token in a transaction that the application itself has begun, for example with a library. Call `advance`
   * before all other statements: the check protects only the statements after it, and two transactions that write first
   * and check later can deadlock. Roll back when `advance` throws.
   *
   * With the isolation level repeatable read or serializable, the call may fail with a serialization failure (40001)
   * instead of a `StaleTokenError`. PostgreSQL may do so even to the later of two holders, whose token is valid: try
   * the transaction of that holder again.
   *
   * @param client - the connection of the open transaction
   * @param lock - the lock under which the call is made; with several keys, all of them are checked
   * @throws StaleTokenError when a higher token was seen
   * @throws TypeError when `client` has no open transaction, or `lock` no usable keys
   * @throws RangeError when `lock` has no usable token
   *
   * @example
   * ```ts
   * import type { LockHandle } from 'nestjs-redlock';
   * import { FencedRegister } from 'nestjs-redlock/fencing';
   * import type { ClientBase } from 'pg';
   *
   * export async function rename(client: ClientBase, lock: LockHandle, name: string): Promise<void> {
   *   await client.query('begin');
   *   try {
   *     await new FencedRegister().advance(client, lock);
   *     await client.query('update shops set name = $1', [name]);
   *     await client.query('commit');
   *   } catch (error) {
   *     await client.query('rollback');
   *     throw error;
   *   }
   * }
   * ```
   */
  async advance(client: SqlClient, lock: TokenHolder): Promise<void> {
    const holder = checkedHolder(lock);
    await this.assertTransaction(client);
    await this.raise(client, holder);
  }

  private async begin(client: SqlPoolClient): Promise<void> {
    const limit = this.idleTimeout;
    const set = limit === 0 ? '' : `set local idle_in_transaction_session_timeout = ${limit}; `;
    await client.query(`begin; ${set}savepoint redlock_fence`);
  }

  /**
   * Checks that a transaction is open: PostgreSQL allows `lock table` only in a transaction. The statement of `raise`
   * takes the same table lock, so the check adds no lock.
   */
  private async assertTransaction(client: SqlClient): Promise<void> {
    try {
      await client.query(`lock table ${this.table} in row exclusive mode`);
    } catch (error) {
      if ((error as { code?: unknown }).code !== NO_ACTIVE_TRANSACTION) throw error;
      throw new TypeError(
        'Expected `client` to be the connection of an open transaction, got a connection without one. Without a ' +
          'transaction the check ends before the write begins, and a stale holder can be paused in between: call `begin` first, ' +
          'on the same connection, or use `transaction(pool, lock, task)`.',
        { cause: error },
      );
    }
  }

  /**
   * Compares and raises the tokens in one statement, so that no other token comes in between. The statement also locks
   * the rows.
   */
  private async raise(client: SqlClient, holder: CheckedHolder): Promise<void> {
    const { keys, fencingToken, mode, slots } = holder;
    const { insert, change, fits } = STATEMENTS[mode];
    const { rows } = await client.query<{ key: string }>(
      // The keys are sorted, so two locks with several keys lock the rows in the same order and cannot deadlock.
      `insert into ${this.table} as register ${insert} ` +
        `on conflict (key) do update set ${change} where ${fits} returning key`,
      mode === 'permits' ? [keys, String(fencingToken), slots] : [keys, String(fencingToken)],
    );
    const raised = new Set(rows.map(({ key }) => key));
    const refused = keys.filter((key) => !raised.has(key));
    if (refused.length > 0)
      throw new StaleTokenError(refused, fencingToken, await this.highest(client, refused, holder));
  }

  /** Reads the highest of the tokens with which the check compared the refused token. */
  private async highest(
    client: SqlClient,
    refused: readonly string[],
    { keys, mode, slots }: CheckedHolder,
  ): Promise<number | undefined> {
    const { rows } = await client.query<{ token: string | number | bigint | null }>(
      "select max(greatest(token, case when $2::text <> 'shared' then read_token end, (select max(value::bigint) " +
        "from jsonb_each_text(slots) as slot where $2::text <> 'permits' or slot.key = given.slot::text))) as token " +
        `from ${this.table} join unnest($1::text[], $3::int[]) as given(key, slot) using (key)`,
      [refused, mode, mode === 'permits' ? refused.map((key) => slots[keys.indexOf(key)]) : []],
    );
    // `pg` returns a bigint as a string by default. Every value that the table accepts is exact as a number.
    const token = rows[0]?.token ?? null;
    return token === null ? undefined : Number(token);
  }
}

/**
 * Commits the transaction of the check. It is still open if it still has its savepoint. After the end of the transaction
 * each further statement of the task would be a transaction of its own, without the check.
 */
async function commit(client: SqlClient, { keys }: CheckedHolder): Promise<void> {
  try {
    await client.query('release savepoint redlock_fence; commit');
  } catch (error) {
    const { code } = error as { code?: unknown };
    if (code === FAILED_TRANSACTION)
      throw new Error(
        `Nothing was written for ${quoted(keys)}: a statement failed, so PostgreSQL rolled the transaction back. Do not ` +
          'catch the error of the statement in the task.',
        { cause: error },
      );
    if (code !== NO_ACTIVE_TRANSACTION && code !== NO_SUCH_SAVEPOINT) throw error;
    throw new Error(
      `The transaction for ${quoted(keys)} ended before its task, so the token did not protect what the task wrote after ` +
        'that. A statement such as `commit` or `rollback` ended it: use none in the task.',
      { cause: error },
    );
  }
}

/** Condition: no slot has seen a token higher than $2. */
const NO_SLOT_HIGHER =
  'not exists (select from jsonb_each_text(register.slots) as slot where slot.value::bigint > $2::bigint)';

/**
 * The parts of the statement for each mode: the values of a new row, the change of an existing row, and the condition
 * of the change. `token` is the highest token of exclusive locks, `read_token` the highest of shared locks, and `slots`
 * has the highest token of each slot of permits (S21).
 */
const STATEMENTS: Readonly<Record<LockMode, Readonly<Record<'insert' | 'change' | 'fits', string>>>> = {
  exclusive: {
    insert: '(key, token) select unnest($1::text[]), $2::bigint',
    // The tokens of slots are no longer needed: `token` now refuses lower tokens for all slots.
    change: "token = excluded.token, slots = '{}'",
    fits: `greatest(register.token, register.read_token) <= $2::bigint and ${NO_SLOT_HIGHER}`,
  },
  shared: {
    insert: '(key, read_token) select unnest($1::text[]), $2::bigint',
    change: 'read_token = greatest(register.read_token, excluded.read_token)',
    fits: `register.token <= $2::bigint and ${NO_SLOT_HIGHER}`,
  },
  permits: {
    insert:
      '(key, slots) select key, jsonb_build_object(slot::text, $2::bigint) ' +
      'from unnest($1::text[], $3::int[]) as given(key, slot)',
    change: 'slots = register.slots || excluded.slots',
    fits:
      'greatest(register.token, register.read_token) <= $2::bigint and not exists (select from ' +
      'jsonb_each_text(excluded.slots) as given where (register.slots ->> given.key)::bigint > $2::bigint)',
  },
};
