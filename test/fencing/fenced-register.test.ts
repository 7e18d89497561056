import { setTimeout as sleep } from 'node:timers/promises';
import { randomUUID } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import { Pool, type PoolClient } from 'pg';
import {
  FencedRegister,
  type FencedRegisterOptions,
  type SqlClient,
  StaleTokenError,
  type TokenHolder,
} from '../../lib/fencing/index.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { startPostgresServer } from '../support/postgres-server.js';
import { registerContract } from './register-contract.js';

cleanUpAfterTests(() => {
  // Nothing awaits this promise, because the transaction of a failed test may never return its connection.
  void pool?.end();
  return Promise.resolve();
});

const register = new FencedRegister();
let url: string;
let pool: Pool;

async function inTransaction(
  task: (client: PoolClient) => Promise<void>,
  begin: string = 'begin',
): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query(begin);
    await task(client);
    await client.query('commit');
  } catch (error) {
    await client.query('rollback');
    throw error;
  } finally {
    client.release();
  }
}

const account = registerContract<SqlClient>(async () => {
  ({ url } = await startPostgresServer());
  pool = new Pool({ connectionString: url, max: 20 });
  // The server may end before the pool closes its connections. Without a listener, that error would end the process.
  pool.on('error', () => undefined);
  return {
    newRegister(options) {
      const made = new FencedRegister(options);
      return {
        createTableSql: made.createTableSql,
        transaction: (lock, task) => made.transaction(pool, lock, task),
        advance: (client, lock) => made.advance(client, lock),
      };
    },
    async query(text, values = [], client = pool) {
      let place = 0;
      const numbered = text.replaceAll('?', () => `$${++place}`);
      return (await client.query<Record<string, unknown>>(numbered, [...values])).rows;
    },
    inTransaction,
    async waits() {
      const { rowCount } = await pool.query(`select 1 from pg_stat_activity where wait_event_type = 'Lock'`);
      return rowCount ?? 0;
    },
    isLost: (error) => /not queryable|terminat/.test((error as Error).message),
    key: 'key',
    serial: 'serial',
    longestName: 63,
    noSuchTable: '42P01',
  };
});
const { holder, read } = account;

describe('the transaction and its connection', () => {
  test('a fenced transaction returns its connection to the pool, unless the connection broke', async () => {
    const single = new Pool({ connectionString: url, max: 1, connectionTimeoutMillis: 30_000 });
    try {
      const pidOf = async (client: SqlClient): Promise<number> => {
        const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
        return rows[0]?.pid ?? 0;
      };
      const first = await register.transaction(single, holder(2), pidOf);
      await expect(register.transaction(single, holder(1), pidOf)).rejects.toThrow(StaleTokenError);
      await expect(register.transaction(single, holder(2), pidOf)).resolves.toBe(first);
      await expect(
        register.transaction(single, holder(2), async (client) => {
          await pool.query('select pg_terminate_backend($1)', [first]);
          await sleep(100); // The connection ends between two statements.
          await account.write('too late', client);
        }),
      ).rejects.toThrow(/not queryable|terminat/);

      await expect(register.transaction(single, holder(2), pidOf)).resolves.not.toBe(first);
      await expect(read()).resolves.toBe('initial');
      expect(single.totalCount).toBe(1);
    } finally {
      await single.end();
    }
  });

  test('a fenced transaction does not return a connection in an unknown state to the pool', async () => {
    // Only the client has this time limit for a statement. The server continues with the statement, and the rollback
    // waits for it.
    const single = new Pool({ connectionString: url, max: 1, query_timeout: 2_000 });
    single.on('error', () => undefined);
    try {
      await expect(
        register.transaction(single, holder(1), (client) => client.query('select pg_sleep(4)')),
      ).rejects.toThrow(/timeout/);

      const other = { keys: [randomUUID()], fencingToken: 1 };
      await expect(register.transaction(single, other, read)).resolves.toBe('initial');
    } finally {
      await single.end();
    }
  });

  test('a fenced transaction rejects when PostgreSQL rolled it back because of a failed statement', async () => {
    const swallowing = register.transaction(pool, holder(3), async (client) => {
      await account.write('new', client);
      await client.query('select * from no_such_table').catch(() => undefined);
    });

    await expect(swallowing).rejects.toThrow(/^Nothing was written .* a statement failed/);
    await expect(read()).resolves.toBe('initial');
  });

  test('a fenced transaction with `idleTimeout: 0` keeps the idle limit of the session', async () => {
    const limitOf = async (client: SqlClient): Promise<string> => {
      const { rows } = await client.query<{ limit: string }>(
        `select current_setting('idle_in_transaction_session_timeout') as limit`,
      );
      return rows[0]?.limit ?? '';
    };

    await expect(register.transaction(pool, holder(1), limitOf)).resolves.toBe('10s');
    await expect(new FencedRegister({ idleTimeout: 0 }).transaction(pool, holder(1), limitOf)).resolves.toBe(
      '0',
    );
    await expect(limitOf(pool)).resolves.toBe('0');
  });
});

describe('FencedRegister.advance in a transaction of the caller', () => {
  test('`advance` refuses a pool, and a connection without a transaction', async () => {
    const client = await pool.connect();
    try {
      for (const without of [pool, client]) {
        const refused = register.advance(without, holder(1));
        await expect(refused).rejects.toThrow(TypeError);
        await expect(refused).rejects.toThrow(/^Expected `client` to be .* call `begin` first/);
      }
    } finally {
      client.release();
    }
    await expect(account.highestOf()).resolves.toBeUndefined();
  });

  // At these isolation levels a transaction sees the database as of its first query, so it does not see the token of
  // the successor. PostgreSQL rejects its update of the register instead, because the successor has changed that row.
  test.each(['repeatable read', 'serializable'])(
    '`advance` rejects at the isolation level %s when a successor has written since the transaction began',
    async (level) => {
      await register.transaction(pool, holder(1), async () => undefined);
      const stale = inTransaction(async (client) => {
        await read(client);
        await register.transaction(pool, holder(2), (other) => account.write('new', other));
        await register.advance(client, holder(1));
        await account.write('old', client);
      }, `begin isolation level ${level}`);

      await expect(stale).rejects.toMatchObject({ code: '40001' });
      await expect(read()).resolves.toBe('new');
    },
  );
});

describe('the options of FencedRegister', () => {
  test.each([
    [{ table: '' }, TypeError, /^Expected `table` to be a table name .*, got ''$/],
    [{ table: 'tokens; drop table tasks' }, TypeError, /^Expected `table`/],
    [{ table: '"tokens"' }, TypeError, /^Expected `table`/],
    [{ table: '1tokens' }, TypeError, /^Expected `table`/],
    [{ table: 'a.b.c' }, TypeError, /^Expected `table`/],
    [{ table: 'a.' }, TypeError, /^Expected `table`/],
    [{ table: 'x'.repeat(64) }, TypeError, /at most 63/],
    [{ table: 7 }, TypeError, /got 7$/],
    [{ idleTimeout: -1 }, RangeError, /^Expected `idleTimeout` to be .*, at least 0, got -1$/],
    [{ idleTimeout: '5s' }, TypeError, /^Expected `idleTimeout`/],
    [{ tabel: 'x' }, TypeError, /^Unknown option `tabel`/],
    [null, TypeError, /^Expected the options of `FencedRegister` to be an object/],
  ])('FencedRegister refuses the invalid options %j', (options, type, message) => {
    const construct = () => new FencedRegister(options as unknown as FencedRegisterOptions);

    expect(construct).toThrow(type);
    expect(construct).toThrow(message);
  });

  test('FencedRegister treats undefined options as omitted', () => {
    expect(new FencedRegister({ table: undefined, idleTimeout: undefined }).createTableSql).toBe(
      register.createTableSql,
    );
  });
});

test.each<[object, string]>([
  [
    { mode: 'permits' },
    "Expected `slots` to be an array with a whole number for each key, because `mode` is 'permits', got undefined",
  ],
  [{ mode: 'permits', slots: [1, 2] }, 'Expected `slots` to be an array with a whole number for each key'],
  [{ mode: 'permits', slots: ['0'] }, "got [ '0' ]"],
  [{ mode: 'read' }, "Expected `mode` to be 'exclusive', 'shared' or 'permits', got 'read'"],
])('the register refuses a lock with the invalid fields %j', async (part, message) => {
  await expect(account.isAccepted({ ...holder(1), ...part } as TokenHolder)).rejects.toThrow(message);
});
