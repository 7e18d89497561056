import { describe, expect, test } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import { createPool, type Pool, type PoolConnection } from 'mysql2/promise';
import {
  type FencedRegisterOptions,
  type MysqlClient,
  MysqlFencedRegister,
  StaleTokenError,
} from '../../lib/fencing/index.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { hasMysql, type MysqlServer, startMysqlServer } from '../support/mysql-server.js';
import { Step } from '../support/transactions.js';
import { until } from '../support/until.js';
import { registerContract } from './register-contract.js';

const register = new MysqlFencedRegister();

(hasMysql() ? describe : describe.skip)('MysqlFencedRegister on MariaDB', () => {
  let server: MysqlServer;
  let pool: Pool;

  const newPool = (connectionLimit: number): Pool => {
    const made = createPool({ uri: server.uri, connectionLimit });
    // Nothing awaits this promise, because the transaction of a failed test may never return its connection.
    cleanUpAfterTests(async () => void made.end().catch(() => undefined));
    return made;
  };

  async function inTransaction(task: (client: PoolConnection) => Promise<void>): Promise<void> {
    const client = await pool.getConnection();
    try {
      await client.beginTransaction();
      await task(client);
      await client.commit();
    } catch (error) {
      await client.rollback();
      throw error;
    } finally {
      client.release();
    }
  }

  /** InnoDB shows what it showed before unless nobody has looked for 0.1 s, so that frequent looks would see nothing new. */
  const waits = async (): Promise<number> => {
    await sleep(150);
    return Number(
      await server.value("select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'"),
    );
  };

  const account = registerContract<MysqlClient>(async () => {
    server = await startMysqlServer();
    pool = newPool(20);
    return {
      newRegister(options) {
        const made = new MysqlFencedRegister(options);
        return {
          createTableSql: made.createTableSql,
          transaction: (lock, task) => made.transaction(pool, lock, task),
          advance: (client, lock) => made.advance(client, lock),
        };
      },
      async query(text, values = [], client = pool) {
        const [rows] = await client.query(text, [...values]);
        return rows as Record<string, unknown>[];
      },
      inTransaction,
      waits,
      isLost: (error) => (error as { fatal?: unknown }).fatal === true,
      key: '`key`',
      serial: 'int auto_increment',
      longestName: 58,
      noSuchTable: 'ER_NO_SUCH_TABLE',
    };
  });
  const { holder, read } = account;

  test('a transaction whose connection is lost after the commit resolves to the result of its task', async () => {
    const losing = {
      getConnection: async () => {
        const client = await pool.getConnection();
        const query = client.query.bind(client) as MysqlClient['query'];
        return Object.assign(Object.create(client) as PoolConnection, {
          query: async (text: string, values?: unknown[]) => {
            const answer = await query(text, values);
            if (text === 'commit') client.destroy();
            return answer;
          },
        });
      },
    };
    const written = register.transaction(losing, holder(9), async (client) => {
      await client.query('update accounts set value = ? where id = ?', ['once', account.key]);
      return 'done';
    });
    await expect(written).resolves.toBe('done');
    await expect(read()).resolves.toBe('once');
  });

  test('holders of one key begin again when the server resolves their deadlock by a rollback', async () => {
    const [checked, resume] = [new Step(), new Step()];
    const failed = register.transaction(pool, holder(1), async () => {
      checked.done();
      await resume.reached;
      throw new Error('rolled back');
    });
    await checked.reached;
    // The row of the key is new, and goes with the rollback: those who wait for it then insert it at the same time.
    const others = [2, 3, 4, 5].map((token) => account.isAccepted(holder(token)));
    await until(async () => (await waits()) === others.length);
    resume.done();
    await expect(failed).rejects.toThrow('rolled back');
    for (const other of others) expect([true, false]).toContain(await other);
    await expect(account.highestOf()).resolves.toBe(5);
  });

  test('a fenced transaction returns its connection with the settings that it had, and closes a broken one', async () => {
    const single = newPool(1);
    const state = async (client: MysqlClient): Promise<unknown> => {
      const [rows] = await client.query('select connection_id() as id, @@session.wait_timeout as seconds');
      return (rows as unknown[])[0];
    };
    const before = (await state(single)) as { id: number };
    await expect(register.transaction(single, holder(2), state)).resolves.toEqual({ ...before, seconds: 10 });
    await expect(state(single)).resolves.toEqual(before);
    await expect(register.transaction(single, holder(1), state)).rejects.toThrow(StaleTokenError);
    await expect(state(single)).resolves.toEqual(before);
    await expect(
      new MysqlFencedRegister({ idleTimeout: 0 }).transaction(single, holder(2), state),
    ).resolves.toEqual(before);
    await expect(
      register.transaction(single, holder(2), async (client) => {
        await server.query(`kill ${before.id}`);
        await account.write('too late', client);
      }),
    ).rejects.toThrow(/killed|closed|lost|ended|ECONNRESET|EPIPE/);
    const after = await register.transaction(single, holder(2), state);
    expect((after as { id: number }).id).not.toBe(before.id);
    await expect(read()).resolves.toBe('initial');
  });

  test.each([
    ['the server rolled it back because of a deadlock', 'deadlock'],
    ['a statement committed it', 'commit'],
  ])('a fenced transaction rejects when %s and the task went on', async (_, how) => {
    const swallowing = register.transaction(pool, holder(3), async (client) => {
      if (how === 'commit') await client.query('create table if not exists committed (n int)');
      else await deadlock(client);
      await account.write('unprotected', client);
    });
    await expect(swallowing).rejects.toThrow(/^The transaction for .* ended before its task/);
  });

  /** Makes the server roll the transaction of `client` back. */
  async function deadlock(client: MysqlClient): Promise<void> {
    const { key } = account;
    const [mine, theirs] = [`${key}:mine`, `${key}:theirs`];
    await pool.query("insert into accounts values (?, ''), (?, '')", [mine, theirs]);
    const other = await server.client();
    await other.query('begin');
    // The server rolls the transaction with fewer changes back.
    const changes = Array.from({ length: 100 }, (__, index) => `('${key}:${index}', '')`);
    await other.query(`insert into accounts values ${changes.join(', ')}`);
    await other.query('update accounts set value = 1 where id = ?', [theirs]);
    await client.query('update accounts set value = 1 where id = ?', [mine]);
    const waiting = other.query('update accounts set value = 2 where id = ?', [mine]);
    await until(async () => (await waits()) > 0);
    const victim = client.query('update accounts set value = 2 where id = ?', [theirs]);
    await expect(victim).rejects.toMatchObject({ code: 'ER_LOCK_DEADLOCK' });
    await waiting;
    await other.query('rollback');
  }

  test('`advance` refuses a lower token also in a transaction whose snapshot is older than the higher token', async () => {
    await expect(account.isAccepted(holder(1))).resolves.toBe(true);
    const stale = inTransaction(async (client) => {
      await read(client);
      await register.transaction(pool, holder(2), (other) => account.write('new', other));
      await register.advance(client, holder(1));
    });
    await expect(stale).rejects.toThrow(StaleTokenError);
  });

  test('`advance` refuses a pool, a connection without a transaction, and results that do not tell', async () => {
    await inTransaction(async (client) => {
      await client.rollback();
      for (const without of [pool, client])
        await expect(register.advance(without, holder(1))).rejects.toThrow(
          /^Expected `client` to be .* call `beginTransaction` first/,
        );
      const mute: MysqlClient = { query: async () => [[]] };
      await expect(register.advance(mute, holder(1))).rejects.toThrow(/^Expected `client.query` to/);
    });
    await expect(account.highestOf()).resolves.toBeUndefined();
  });
});

test.each<[unknown, RegExp]>([
  [{ table: 'tokens`; drop table tasks' }, /^Expected `table` to be a table name .*/],
  [{ table: 'x'.repeat(59) }, /at most 58/],
  [{ idleTimeout: -1 }, /^Expected `idleTimeout` to be .*, at least 0, got -1$/],
  [null, /^Expected the options of `MysqlFencedRegister` to be an object/],
])('MysqlFencedRegister refuses the invalid options %j', (options, message) => {
  expect(() => new MysqlFencedRegister(options as FencedRegisterOptions)).toThrow(message);
});
