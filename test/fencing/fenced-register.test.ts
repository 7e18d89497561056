import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
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
import { until } from '../support/until.js';

cleanUpAfterTests(() => {
  // Nothing awaits this promise, because the transaction of a failed test may never return its connection.
  void pool?.end();
  return Promise.resolve();
});

const register = new FencedRegister();
let url: string;
let pool: Pool;
/** The protected resource, a row of a table; a new one for each test. */
let key: string;

beforeAll(async () => {
  ({ url } = await startPostgresServer());
  pool = new Pool({ connectionString: url, max: 20 });
  // The server may end before the pool closes its connections. Without a listener, that error would end the process.
  pool.on('error', () => undefined);
  await pool.query(register.createTableSql);
  await pool.query('create table accounts (id text primary key, value text not null, writes serial)');
});

beforeEach(async () => {
  key = randomUUID();
  await pool.query('insert into accounts (id, value) values ($1, $2)', [key, 'initial']);
});

const holder = (fencingToken: number): TokenHolder => ({ keys: [key], fencingToken });

async function read(client: SqlClient = pool): Promise<string | undefined> {
  const { rows } = await client.query<{ value: string }>('select value from accounts where id = $1', [key]);
  return rows[0]?.value;
}

async function write(value: string, client: SqlClient = pool): Promise<void> {
  await client.query('update accounts set value = $2 where id = $1', [key, value]);
}

async function highestOf(name: string = key): Promise<number | undefined> {
  const { rows } = await pool.query('select token from fencing_tokens where key = $1', [name]);
  return rows[0] && Number(rows[0].token);
}

const isAccepted = (lock: TokenHolder): Promise<boolean> =>
  register
    .transaction(pool, lock, async () => true)
    .catch((error: unknown) => {
      if (error instanceof StaleTokenError) return false;
      throw error;
    });

/** True if a connection waits for a row that another connection has locked. */
async function somebodyWaits(): Promise<boolean> {
  const { rows } = await pool.query(`select 1 from pg_stat_activity where wait_event_type = 'Lock'`);
  return rows.length > 0;
}

function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open };
}

describe('FencedRegister.transaction', () => {
  test('the register accepts the first token of a key, a higher token and an equal token', async () => {
    for (const [token, value] of [
      [33, 'first'],
      [35, 'second'],
      [35, 'third'],
    ] as const) {
      await expect(
        register.transaction(pool, holder(token), async (client) => {
          await write(value, client);
          return read(client);
        }),
      ).resolves.toBe(value);
    }
    await expect(highestOf()).resolves.toBe(35);
  });

  test('the register refuses a lower token before it calls the task', async () => {
    await register.transaction(pool, holder(35), (client) => write('new', client));
    let called = false;

    const refused = register.transaction(pool, holder(34), async () => {
      called = true;
    });

    await expect(refused).rejects.toThrow(StaleTokenError);
    await expect(refused).rejects.toMatchObject({ keys: [key], token: 34, highest: 35 });
    expect(called).toBe(false);
    await expect(read()).resolves.toBe('new');
  });

  test('the register compares tokens exactly up to 2^53 - 1, and its table accepts no higher token', async () => {
    const most = Number.MAX_SAFE_INTEGER;
    await register.transaction(pool, holder(most - 1), (client) => write('new', client));
    await register.transaction(pool, holder(most), (client) => write('newer', client));

    await expect(
      register.transaction(pool, holder(most - 1), (client) => write('old', client)),
    ).rejects.toMatchObject({ token: most - 1, highest: most });
    await expect(
      pool.query('update fencing_tokens set token = token + 1 where key = $1', [key]),
    ).rejects.toThrow(/check constraint/);
  });

  test('the register does not compare the tokens of different keys', async () => {
    await register.transaction(pool, { keys: ['another'], fencingToken: 99 }, async () => undefined);

    await expect(register.transaction(pool, holder(1), async () => 'done')).resolves.toBe('done');
  });

  test('the register checks the token of a lock with several keys against each key', async () => {
    const [a, b] = [randomUUID(), randomUUID()];
    await register.transaction(pool, { keys: [b], fencingToken: 7 }, async () => undefined);

    const refused = register.transaction(pool, { keys: [b, a], fencingToken: 6 }, async () => undefined);

    await expect(refused).rejects.toMatchObject({ keys: [b], token: 6, highest: 7 });
    await expect(highestOf(a)).resolves.toBeUndefined();
    await register.transaction(pool, { keys: [b, a], fencingToken: 8 }, async () => undefined);
    await expect(highestOf(a)).resolves.toBe(8);
    await expect(highestOf(b)).resolves.toBe(8);
  });

  test('the register does not store the token when the transaction is rolled back', async () => {
    const failure = new Error('the task failed');
    const failed = register.transaction(pool, holder(9), async (client) => {
      await write('half', client);
      throw failure;
    });

    await expect(failed).rejects.toBe(failure);
    await expect(read()).resolves.toBe('initial');
    await expect(highestOf()).resolves.toBeUndefined();
  });
});

describe('FencedRegister.transaction with two holders at the same time', () => {
  // The stale holder passes the check and pauses. Its successor must not write between the stale check and the stale
  // write.
  test('a newer holder waits for the transaction of a paused older holder, and writes last', async () => {
    const [checked, resume] = [gate(), gate()];
    const older = register.transaction(pool, holder(1), async (client) => {
      checked.open();
      await resume.opened;
      await write('old', client);
    });
    await checked.opened;
    let seen: string | undefined;
    const newer = register.transaction(pool, holder(2), async (client) => {
      seen = await read(client);
      await write('new', client);
    });
    await until(somebodyWaits);
    expect(seen).toBeUndefined();

    resume.open();
    await Promise.all([older, newer]);

    expect(seen).toBe('old');
    await expect(read()).resolves.toBe('new');
  });

  test('an older holder waits for the transaction of a paused newer holder, and is then refused', async () => {
    const [checked, resume] = [gate(), gate()];
    const newer = register.transaction(pool, holder(2), async (client) => {
      checked.open();
      await resume.opened;
      await write('new', client);
    });
    await checked.opened;
    const older = register.transaction(pool, holder(1), (client) => write('old', client));
    await until(somebodyWaits);

    resume.open();
    const [refused] = await Promise.allSettled([older, newer]);

    expect(refused).toMatchObject({ status: 'rejected', reason: expect.any(StaleTokenError) });
    await expect(read()).resolves.toBe('new');
  });

  // Negative control: the check runs in one transaction, and the write comes after this transaction.
  test('the register does not prevent a stale write that follows the transaction (control)', async () => {
    const [checked, resume] = [gate(), gate()];
    const older = (async () => {
      await register.transaction(pool, holder(1), async () => undefined);
      checked.open();
      await resume.opened;
      await write('old');
    })();
    await checked.opened;
    await register.transaction(pool, holder(2), (client) => write('new', client));

    resume.open();
    await older;

    await expect(read()).resolves.toBe('old');
  });

  test('the register refuses a write whose token is lower than the token of an earlier read', async () => {
    const seen = await register.transaction(pool, holder(2), read);

    await expect(register.transaction(pool, holder(1), (client) => write('old', client))).rejects.toThrow(
      StaleTokenError,
    );
    await register.transaction(pool, holder(2), (client) => write(`${seen}, changed`, client));

    await expect(read()).resolves.toBe('initial, changed');
  });

  test('the register accepts only increasing tokens from 120 concurrent holders with keys in any order', async () => {
    const other = randomUUID();
    await pool.query('create table accepted (place serial, key text, token bigint)');
    const tokens = Array.from({ length: 120 }, (_, index) => index + 1).toSorted(() => Math.random() - 0.5);

    const results = await Promise.allSettled(
      tokens.map((fencingToken, index) => {
        const keys = [[key, other], [other, key], [key]][index % 3] ?? [];
        return register.transaction(pool, { keys, fencingToken }, async (client) => {
          for (const each of keys) {
            await client.query('insert into accepted (key, token) values ($1, $2)', [each, fencingToken]);
          }
        });
      }),
    );

    // Every transaction is accepted or refused. None ends with a deadlock or a serialization failure.
    const errors = results.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []));
    expect(errors.filter((error) => !(error instanceof StaleTokenError))).toEqual([]);
    for (const each of [key, other]) {
      const { rows } = await pool.query(
        'select token::int as token from accepted where key = $1 order by place',
        [each],
      );
      const accepted = rows.map(({ token }) => token as number);
      expect(accepted.length).toBeGreaterThan(0);
      expect(accepted).toEqual(accepted.toSorted((a, b) => a - b));
    }
    await expect(highestOf()).resolves.toBe(120);
  });
});

describe('the transaction and its connection', () => {
  test('a fenced transaction ends after its idle timeout, writes nothing, and unblocks its successor', async () => {
    const impatient = new FencedRegister({ idleTimeout: 3_000 });
    const [checked, resume] = [gate(), gate()];
    const start = performance.now();
    const older = impatient
      .transaction(pool, holder(1), async (client) => {
        checked.open();
        await resume.opened;
        await write('old', client);
      })
      .catch((error: Error) => error.message);
    await checked.opened;

    await impatient.transaction(pool, holder(2), (client) => write('new', client));

    expect(performance.now() - start).toBeGreaterThan(2_900);
    expect(performance.now() - start).toBeLessThan(30_000);
    resume.open();
    await expect(older).resolves.toMatch(/not queryable|terminat/);
    await expect(read()).resolves.toBe('new');
  });

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
          await write('too late', client);
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
      await write('new', client);
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
  async function inTransaction(begin: string, task: (client: PoolClient) => Promise<void>): Promise<void> {
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

  test('`advance` accepts a first token, and refuses a lower token', async () => {
    await inTransaction('begin', async (client) => {
      await register.advance(client, holder(2));
      await write('new', client);
    });

    await expect(
      inTransaction('begin', async (client) => {
        await register.advance(client, holder(1));
        await write('old', client);
      }),
    ).rejects.toMatchObject({ code: 'TOKEN_STALE', token: 1, highest: 2 });
    await expect(read()).resolves.toBe('new');
  });

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
    await expect(highestOf()).resolves.toBeUndefined();
  });

  test('`advance` rejects with the error of PostgreSQL when the table is missing', async () => {
    const elsewhere = new FencedRegister({ table: 'nowhere' });

    await expect(
      inTransaction('begin', (client) => elsewhere.advance(client, holder(1))),
    ).rejects.toMatchObject({ code: '42P01' });
  });

  // At these isolation levels a transaction sees the database as of its first query, so it does not see the token of
  // the successor. PostgreSQL rejects its update of the register instead, because the successor has changed that row.
  test.each(['repeatable read', 'serializable'])(
    '`advance` rejects at the isolation level %s when a successor has written since the transaction began',
    async (level) => {
      await register.transaction(pool, holder(1), async () => undefined);
      const stale = inTransaction(`begin isolation level ${level}`, async (client) => {
        await read(client);
        await register.transaction(pool, holder(2), (other) => write('new', other));
        await register.advance(client, holder(1));
        await write('old', client);
      });

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

  test.each(['Tokens', 'user', 'apart.order', 'x'.repeat(63)])(
    'FencedRegister works with a table named %s',
    async (table) => {
      const other = new FencedRegister({ table });
      await pool.query('create schema if not exists apart');
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

describe('FencedRegister.transaction with locks of several holders', () => {
  const reader = (fencingToken: number): TokenHolder => ({ ...holder(fencingToken), mode: 'shared' });
  const permit = (slot: number, fencingToken: number): TokenHolder => ({
    ...holder(fencingToken),
    mode: 'permits',
    slots: [slot],
  });

  test('the register compares the tokens of each slot separately', async () => {
    const said: boolean[] = [];
    for (const [slot, token] of [
      [0, 40],
      [3, 35],
      [0, 39],
      [3, 35],
      [3, 36],
      [3, 35],
      [0, 40],
    ] as const)
      said.push(await isAccepted(permit(slot, token)));
    expect(said).toEqual([true, true, false, true, true, false, true]);
    await expect(register.transaction(pool, permit(0, 39), read)).rejects.toMatchObject({
      keys: [key],
      token: 39,
      highest: 40,
    });
  });

  test('the register compares the token of a reader with writers, and the token of a writer with all holders', async () => {
    const said: boolean[] = [];
    for (const lock of [reader(40), reader(38), holder(39), holder(40), reader(39), reader(41), holder(41)])
      said.push(await isAccepted(lock));
    expect(said).toEqual([true, true, false, true, false, true, true]);
    await expect(register.transaction(pool, reader(40), read)).rejects.toMatchObject({ highest: 41 });
  });

  test('the register compares the tokens of permits with the tokens of readers and of writers', async () => {
    const said: boolean[] = [];
    for (const lock of [
      permit(1, 30),
      holder(29),
      reader(29),
      holder(30),
      permit(0, 29),
      permit(0, 31),
      reader(32),
      permit(0, 31),
      permit(0, 32),
      holder(31),
    ])
      said.push(await isAccepted(lock));
    expect(said).toEqual([true, false, false, true, false, true, true, false, true, false]);
    await expect(register.transaction(pool, holder(31), read)).rejects.toMatchObject({ highest: 32 });
  });

  test('the register assigns each slot to its key, whatever the order of the keys', async () => {
    const [first, second] = [`${key}:a`, `${key}:b`];
    const both = (keys: string[], slots: number[], fencingToken: number): TokenHolder => ({
      keys,
      slots,
      fencingToken,
      mode: 'permits',
    });
    await expect(isAccepted(both([first, second], [0, 7], 40))).resolves.toBe(true);
    await expect(isAccepted(both([second, first], [0, 7], 39))).resolves.toBe(true);
    const refused = register.transaction(pool, both([second, first], [7, 1], 39), read);
    await expect(refused).rejects.toMatchObject({ keys: [second], token: 39, highest: 40 });
  });

  test('a write waits for a concurrent read, and is then refused if the read has the higher token', async () => {
    const [checked, gateway] = [gate(), gate()];
    const reading = register.transaction(pool, reader(41), () => {
      checked.open();
      return gateway.opened;
    });
    await checked.opened;
    const writing = isAccepted(holder(40));
    await until(somebodyWaits);
    gateway.open();
    await reading;
    await expect(writing).resolves.toBe(false);
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
    await expect(isAccepted({ ...holder(1), ...part } as TokenHolder)).rejects.toThrow(message);
  });
});
