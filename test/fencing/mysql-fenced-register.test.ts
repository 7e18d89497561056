import { randomUUID } from 'node:crypto';
import { beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { createPool, type Pool, type PoolConnection, type RowDataPacket } from 'mysql2/promise';
import {
  type FencedRegisterOptions,
  type MysqlClient,
  MysqlFencedRegister,
  StaleTokenError,
  type TokenHolder,
} from '../../lib/fencing/index.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { hasMysql, type MysqlServer, startMysqlServer } from '../support/mysql-server.js';
import { Step } from '../support/transactions.js';
import { until } from '../support/until.js';

const register = new MysqlFencedRegister();

/** The number of transactions that wait for a row that another one has locked. */
const LOCK_WAITS = "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'";

(hasMysql() ? describe : describe.skip)('MysqlFencedRegister on MariaDB', () => {
  let server: MysqlServer;
  let pool: Pool;
  /** The protected resource, a row of a table; a new one for each test. */
  let key: string;

  const newPool = (connectionLimit: number): Pool => {
    const made = createPool({ uri: server.uri, connectionLimit });
    // Nothing awaits this promise, because the transaction of a failed test may never return its connection.
    cleanUpAfterTests(async () => void made.end().catch(() => undefined));
    return made;
  };

  beforeAll(async () => {
    server = await startMysqlServer();
    pool = newPool(20);
    await pool.query(register.createTableSql);
    await pool.query('create table accounts (id varchar(50) primary key, value varchar(50) not null)');
  });

  beforeEach(async () => {
    key = randomUUID();
    await pool.query('insert into accounts (id, value) values (?, ?)', [key, 'initial']);
  });

  const holder = (fencingToken: number): TokenHolder => ({ keys: [key], fencingToken });
  const reader = (fencingToken: number): TokenHolder => ({ ...holder(fencingToken), mode: 'shared' });
  const permit = (slot: number, fencingToken: number): TokenHolder => ({
    ...holder(fencingToken),
    mode: 'permits',
    slots: [slot],
  });

  async function read(client: MysqlClient = pool): Promise<unknown> {
    const [rows] = await client.query('select value from accounts where id = ?', [key]);
    return (rows as { value: string }[])[0]?.value;
  }

  async function write(value: string, client: MysqlClient = pool): Promise<void> {
    await client.query('update accounts set value = ? where id = ?', [value, key]);
  }

  async function highestOf(name = key): Promise<number | undefined> {
    const [rows] = await pool.query<RowDataPacket[]>('select token from fencing_tokens where `key` = ?', [
      name,
    ]);
    return (rows[0] as { token: number } | undefined)?.token;
  }

  const isAccepted = (lock: TokenHolder): Promise<boolean> =>
    register.transaction(pool, lock, async () => true).catch(falseIfStale);

  async function accepts(locks: readonly TokenHolder[]): Promise<boolean[]> {
    const said: boolean[] = [];
    for (const lock of locks) said.push(await isAccepted(lock));
    return said;
  }

  /** True if a transaction waits for a row that another one has locked. */
  const somebodyWaits = async (): Promise<boolean> => (await server.value(LOCK_WAITS)) !== 0;

  test('the register accepts the first token of a key, a higher token and an equal token, and refuses a lower one before it calls the task', async () => {
    for (const [token, value] of [
      [33, 'first'],
      [35, 'second'],
      [35, 'third'],
    ] as const) {
      const written = register.transaction(pool, holder(token), async (client) => {
        await write(value, client);
        return read(client);
      });
      await expect(written).resolves.toBe(value);
    }
    let called = false;
    const refused = register.transaction(pool, holder(34), async () => {
      called = true;
    });
    await expect(refused).rejects.toThrow(StaleTokenError);
    await expect(refused).rejects.toMatchObject({ keys: [key], token: 34, highest: 35 });
    expect(called).toBe(false);
    await expect(read()).resolves.toBe('third');
  });

  test('the register compares tokens exactly up to 2^53 - 1, and its table accepts no higher token', async () => {
    const most = Number.MAX_SAFE_INTEGER;
    await expect(accepts([holder(most - 1), holder(most), holder(most - 1)])).resolves.toEqual([
      true,
      true,
      false,
    ]);
    await expect(
      pool.query('update fencing_tokens set token = token + 1 where `key` = ?', [key]),
    ).rejects.toThrow(/constraint/i);
  });

  test('the register compares keys as bytes, and the token of a lock with several keys with each of them', async () => {
    const [a, b, odd] = [`${key}a`, `${key}A`, `${key}'\\"á ?`];
    await expect(isAccepted({ keys: [b], fencingToken: 7 })).resolves.toBe(true);
    const refused = register.transaction(pool, { keys: [b, odd, a], fencingToken: 6 }, read);
    await expect(refused).rejects.toMatchObject({ keys: [b], token: 6, highest: 7 });
    await expect(highestOf(a)).resolves.toBeUndefined();
    await expect(isAccepted({ keys: [b, odd, a], fencingToken: 8 })).resolves.toBe(true);
    for (const each of [a, b, odd]) await expect(highestOf(each)).resolves.toBe(8);
    await expect(isAccepted({ keys: [`${key}a `], fencingToken: 1 })).resolves.toBe(true);
  });

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
      await client.query('update accounts set value = ? where id = ?', ['once', key]);
      return 'done';
    });
    await expect(written).resolves.toBe('done');
    await expect(read()).resolves.toBe('once');
  });

  test('the register stores neither token nor data when the task fails', async () => {
    const failure = new Error('the task failed');
    const failed = register.transaction(pool, holder(9), async (client) => {
      await write('half', client);
      throw failure;
    });
    await expect(failed).rejects.toBe(failure);
    await expect(read()).resolves.toBe('initial');
    await expect(highestOf()).resolves.toBeUndefined();
  });

  test.each([
    ['newer', 1, 2, ['old', 'new'], 'new'],
    ['older', 2, 1, ['new', undefined], 'new'],
  ] as const)(
    'the %s of two holders waits for the transaction of the other holder, whose process is paused',
    async (_, firstToken, secondToken, writes, stored) => {
      const [checked, resume] = [new Step(), new Step()];
      const first = register.transaction(pool, holder(firstToken), async (client) => {
        checked.done();
        await resume.reached;
        await write(writes[0], client);
      });
      await checked.reached;
      let seen: unknown;
      const second = register
        .transaction(pool, holder(secondToken), async (client) => {
          seen = await read(client);
          await write(writes[1] ?? 'not reached', client);
          return true;
        })
        .catch(falseIfStale);
      await until(somebodyWaits);
      expect(seen).toBeUndefined();
      resume.done();
      await first;
      await expect(second).resolves.toBe(writes[1] !== undefined);
      expect(seen).toBe(writes[1] === undefined ? undefined : 'old');
      await expect(read()).resolves.toBe(stored);
    },
  );

  // Negative control: the check runs in one transaction, and the write comes after this transaction.
  test('the register does not prevent a stale write that follows the transaction (control)', async () => {
    await expect(isAccepted(holder(1))).resolves.toBe(true);
    await register.transaction(pool, holder(2), (client) => write('new', client));
    await write('old');
    await expect(read()).resolves.toBe('old');
  });

  test('the register accepts only increasing tokens from 120 concurrent holders with keys in any order', async () => {
    const other = randomUUID();
    await pool.query(
      'create table accepted (place int auto_increment primary key, k varchar(50), token bigint)',
    );
    const tokens = Array.from({ length: 120 }, (_, index) => index + 1).toSorted(() => Math.random() - 0.5);
    const results = await Promise.allSettled(
      tokens.map((fencingToken, index) => {
        const keys = [[key, other], [other, key], [key]][index % 3] ?? [];
        return register.transaction(pool, { keys, fencingToken }, async (client) => {
          for (const each of keys)
            await client.query('insert into accepted (k, token) values (?, ?)', [each, fencingToken]);
        });
      }),
    );
    // None of the transactions ends with a deadlock.
    const errors = results.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []));
    expect(errors.filter((error) => !(error instanceof StaleTokenError))).toEqual([]);
    for (const each of [key, other]) {
      const [rows] = await pool.query<RowDataPacket[]>(
        'select token from accepted where k = ? order by place',
        [each],
      );
      const accepted = rows.map(({ token }) => token as number);
      expect(accepted.length).toBeGreaterThan(0);
      expect(accepted).toEqual(accepted.toSorted((a, b) => a - b));
    }
    await expect(highestOf()).resolves.toBe(120);
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
    const others = [2, 3, 4, 5].map((token) => isAccepted(holder(token)));
    await until(async () => Number(await server.value(LOCK_WAITS)) === others.length);
    resume.done();
    await expect(failed).rejects.toThrow('rolled back');
    for (const other of others) expect([true, false]).toContain(await other);
    await expect(highestOf()).resolves.toBe(5);
  });

  test('the register compares permits by slot, readers with writes, and writers with all holders', async () => {
    await expect(
      accepts([permit(0, 40), permit(3, 35), permit(0, 39), permit(3, 36), permit(3, 35), permit(0, 40)]),
    ).resolves.toEqual([true, true, false, true, false, true]);
    await expect(register.transaction(pool, permit(0, 39), read)).rejects.toMatchObject({
      keys: [key],
      token: 39,
      highest: 40,
    });
    await expect(
      accepts([
        ...[holder(39), reader(39), holder(41), permit(7, 40), permit(7, 42), reader(43), permit(7, 42)],
        ...[reader(42), permit(7, 44), holder(43), holder(44)],
      ]),
    ).resolves.toEqual([false, false, true, false, true, true, false, true, true, false, true]);
  });

  test('the register assigns each slot to its key, whatever the order of the keys', async () => {
    const [first, second] = [`${key}:a`, `${key}:b`];
    const both = (keys: string[], slots: number[], fencingToken: number): TokenHolder => ({
      keys,
      slots,
      fencingToken,
      mode: 'permits',
    });
    await expect(
      accepts([both([first, second], [0, 7], 40), both([second, first], [0, 7], 39)]),
    ).resolves.toEqual([true, true]);
    const refused = register.transaction(pool, both([second, first], [7, 1], 39), read);
    await expect(refused).rejects.toMatchObject({ keys: [second], token: 39, highest: 40 });
  });

  test('a fenced transaction ends after its idle timeout, writes nothing, and unblocks its successor', async () => {
    const impatient = new MysqlFencedRegister({ idleTimeout: 1_500 });
    const [checked, resume] = [new Step(), new Step()];
    const begun = performance.now();
    const older = impatient.transaction(pool, holder(1), async (client) => {
      checked.done();
      await resume.reached;
      await write('old', client);
    });
    older.catch(() => undefined);
    await checked.reached;
    await impatient.transaction(pool, holder(2), (client) => write('new', client));
    // The server counts whole seconds.
    expect(performance.now() - begun).toBeGreaterThan(1_900);
    resume.done();
    await expect(older).rejects.toMatchObject({ fatal: true });
    await expect(read()).resolves.toBe('new');
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
        await write('too late', client);
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
      await write('unprotected', client);
    });
    await expect(swallowing).rejects.toThrow(/^The transaction for .* ended before its task/);
  });

  /** Makes the server roll the transaction of `client` back. */
  async function deadlock(client: MysqlClient): Promise<void> {
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
    await until(somebodyWaits);
    const victim = client.query('update accounts set value = 2 where id = ?', [theirs]);
    await expect(victim).rejects.toMatchObject({ code: 'ER_LOCK_DEADLOCK' });
    await waiting;
    await other.query('rollback');
  }

  describe('`advance`', () => {
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

    test('`advance` accepts a first token, and refuses a lower token', async () => {
      await inTransaction(async (client) => {
        await register.advance(client, holder(2));
        await write('new', client);
      });
      const stale = inTransaction(async (client) => {
        await register.advance(client, holder(1));
        await write('old', client);
      });
      await expect(stale).rejects.toMatchObject({ code: 'TOKEN_STALE', token: 1, highest: 2 });
      await expect(read()).resolves.toBe('new');
    });

    test('`advance` refuses a lower token also in a transaction whose snapshot is older than the higher token', async () => {
      await expect(isAccepted(holder(1))).resolves.toBe(true);
      const stale = inTransaction(async (client) => {
        await read(client);
        await register.transaction(pool, holder(2), (other) => write('new', other));
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
      await expect(highestOf()).resolves.toBeUndefined();
    });

    test('`advance` rejects with the error of the server when the table is missing', async () => {
      const elsewhere = new MysqlFencedRegister({ table: 'nowhere' });
      await expect(inTransaction((client) => elsewhere.advance(client, holder(1)))).rejects.toMatchObject({
        code: 'ER_NO_SUCH_TABLE',
      });
    });
  });

  test.each(['Tokens', 'user', 'apart.order', 'x'.repeat(58)])(
    'MysqlFencedRegister works with a table named %s',
    async (table) => {
      const other = new MysqlFencedRegister({ table });
      await server.query('create database if not exists apart');
      await pool.query(other.createTableSql);
      await pool.query(other.createTableSql);
      await other.transaction(pool, holder(2), async () => undefined);
      await expect(other.transaction(pool, holder(1), async () => undefined)).rejects.toThrow(
        StaleTokenError,
      );
      await expect(highestOf()).resolves.toBeUndefined();
    },
  );
});

test.each<[unknown, RegExp]>([
  [{ table: 'tokens`; drop table tasks' }, /^Expected `table` to be a table name .*/],
  [{ table: 'x'.repeat(59) }, /at most 58/],
  [{ idleTimeout: -1 }, /^Expected `idleTimeout` to be .*, at least 0, got -1$/],
  [null, /^Expected the options of `MysqlFencedRegister` to be an object/],
])('MysqlFencedRegister refuses the invalid options %j', (options, message) => {
  expect(() => new MysqlFencedRegister(options as FencedRegisterOptions)).toThrow(message);
});

function falseIfStale(error: unknown): boolean {
  if (error instanceof StaleTokenError) return false;
  throw error;
}
