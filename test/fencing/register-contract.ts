import { randomUUID } from 'node:crypto';
import { beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { type FencedRegisterOptions, StaleTokenError, type TokenHolder } from '../../lib/fencing/index.js';
import { Step } from '../support/transactions.js';
import { until } from '../support/until.js';

/** A register on a pool of connections. */
export interface TestedRegister<Client> {
  readonly createTableSql: string;
  transaction<T>(lock: TokenHolder, task: (client: Client) => Promise<T>): Promise<T>;
  advance(client: Client, lock: TokenHolder): Promise<void>;
}

/** A database with registers. `Client` is a connection that has begun a transaction. */
export interface RegisterDatabase<Client> {
  newRegister(options?: FencedRegisterOptions): TestedRegister<Client>;
  /** Runs a statement with a `?` for each value, and returns its rows; without `client` on any connection. */
  query(text: string, values?: readonly unknown[], client?: Client): Promise<Record<string, unknown>[]>;
  /** Runs `task` in a transaction that no register has begun. */
  inTransaction(task: (client: Client) => Promise<void>): Promise<void>;
  /** The number of connections that wait for a row that another one has locked. */
  waits(): Promise<number>;
  /** True for the error of a statement on a connection that the server has closed. */
  isLost(error: unknown): boolean;
  /** The column `key`, in quotation marks if the database needs them. */
  readonly key: string;
  /** The type of a column that numbers the rows. */
  readonly serial: string;
  /** The most characters in the name of a table. */
  readonly longestName: number;
  /** The code of the error for a missing table. */
  readonly noSuchTable: string;
}

/** A protected resource: a row of the table `accounts`, which is new for each test. */
export class Account<Client> {
  database!: RegisterDatabase<Client>;
  register!: TestedRegister<Client>;
  key!: string;

  readonly holder = (fencingToken: number): TokenHolder => ({ keys: [this.key], fencingToken });
  readonly reader = (fencingToken: number): TokenHolder => ({ ...this.holder(fencingToken), mode: 'shared' });
  readonly permit = (slot: number, fencingToken: number): TokenHolder => ({
    ...this.holder(fencingToken),
    mode: 'permits',
    slots: [slot],
  });

  readonly read = async (client?: Client): Promise<unknown> => {
    const rows = await this.database.query('select value from accounts where id = ?', [this.key], client);
    return rows[0]?.['value'];
  };

  async write(value: string, client?: Client): Promise<void> {
    await this.database.query('update accounts set value = ? where id = ?', [value, this.key], client);
  }

  async highestOf(name = this.key): Promise<number | undefined> {
    const sql = `select token from fencing_tokens where ${this.database.key} = ?`;
    const [row] = await this.database.query(sql, [name]);
    return row && Number(row['token']);
  }

  async isAccepted(lock: TokenHolder): Promise<boolean> {
    return this.register.transaction(lock, async () => true).catch(falseIfStale);
  }

  async accepts(locks: readonly TokenHolder[]): Promise<boolean[]> {
    const said: boolean[] = [];
    for (const lock of locks) said.push(await this.isAccepted(lock));
    return said;
  }
}

function falseIfStale(error: unknown): false {
  if (error instanceof StaleTokenError) return false;
  throw error;
}

/**
 * The tests of a fenced register in any database.
 *
 * @returns the account of the running test, for the tests of one database
 */
export function registerContract<Client>(open: () => Promise<RegisterDatabase<Client>>): Account<Client> {
  const account = new Account<Client>();
  const { holder, reader, permit, read } = account;

  beforeAll(async () => {
    account.database = await open();
    account.register = account.database.newRegister();
    await account.database.query(account.register.createTableSql);
    await account.database.query(
      'create table accounts (id varchar(50) primary key, value varchar(50) not null)',
    );
  });

  beforeEach(async () => {
    account.key = randomUUID();
    await account.database.query('insert into accounts (id, value) values (?, ?)', [account.key, 'initial']);
  });

  const transaction = <T>(lock: TokenHolder, task: (client: Client) => Promise<T>): Promise<T> =>
    account.register.transaction(lock, task);

  const somebodyWaits = async (): Promise<boolean> => (await account.database.waits()) > 0;

  test('the register accepts the first token of a key, a higher token and an equal token', async () => {
    for (const [token, value] of [
      [33, 'first'],
      [35, 'second'],
      [35, 'third'],
    ] as const) {
      const written = transaction(holder(token), async (client) => {
        await account.write(value, client);
        return read(client);
      });
      await expect(written).resolves.toBe(value);
    }
    await expect(account.highestOf()).resolves.toBe(35);
  });

  test('the register refuses a lower token before it calls the task', async () => {
    await transaction(holder(35), (client) => account.write('new', client));
    let called = false;
    const refused = transaction(holder(34), async () => {
      called = true;
    });
    await expect(refused).rejects.toThrow(StaleTokenError);
    await expect(refused).rejects.toMatchObject({ keys: [account.key], token: 34, highest: 35 });
    expect(called).toBe(false);
    await expect(read()).resolves.toBe('new');
  });

  test('the register compares tokens exactly up to 2^53 - 1, and its table accepts no higher token', async () => {
    const most = Number.MAX_SAFE_INTEGER;
    await expect(account.accepts([holder(most - 1), holder(most)])).resolves.toEqual([true, true]);
    await expect(transaction(holder(most - 1), read)).rejects.toMatchObject({
      token: most - 1,
      highest: most,
    });
    const higher = `update fencing_tokens set token = token + 1 where ${account.database.key} = ?`;
    await expect(account.database.query(higher, [account.key])).rejects.toThrow(/constraint/i);
  });

  test('the register does not compare the tokens of different keys', async () => {
    await expect(account.isAccepted({ keys: ['another'], fencingToken: 99 })).resolves.toBe(true);
    await expect(account.isAccepted(holder(1))).resolves.toBe(true);
  });

  test('the register checks the token of a lock with several keys against each key, byte for byte', async () => {
    const [a, b, odd] = [`${account.key}a`, `${account.key}A`, `${account.key}'\\"á ?`];
    await expect(account.isAccepted({ keys: [b], fencingToken: 7 })).resolves.toBe(true);
    const refused = transaction({ keys: [b, odd, a], fencingToken: 6 }, read);
    await expect(refused).rejects.toMatchObject({ keys: [b], token: 6, highest: 7 });
    await expect(account.highestOf(a)).resolves.toBeUndefined();
    await expect(account.isAccepted({ keys: [b, odd, a], fencingToken: 8 })).resolves.toBe(true);
    for (const each of [a, b, odd]) await expect(account.highestOf(each)).resolves.toBe(8);
    await expect(account.isAccepted({ keys: [`${a} `], fencingToken: 1 })).resolves.toBe(true);
  });

  test('the register stores neither token nor data when the task fails', async () => {
    const failure = new Error('the task failed');
    const failed = transaction(holder(9), async (client) => {
      await account.write('half', client);
      throw failure;
    });
    await expect(failed).rejects.toBe(failure);
    await expect(read()).resolves.toBe('initial');
    await expect(account.highestOf()).resolves.toBeUndefined();
  });

  test.each(['commit', 'rollback', 'commit and begin'])(
    'the register rejects when the task ends the transaction, and goes on: %s',
    async (statements) => {
      const unprotected = transaction(holder(3), async (client) => {
        for (const statement of statements.split(' and '))
          await account.database.query(statement, [], client);
        await account.write('unprotected', client);
      });
      await expect(unprotected).rejects.toThrow(/^The transaction for .* ended before its task/);
      await expect(account.isAccepted(holder(4))).resolves.toBe(true);
    },
  );

  describe('with two holders at the same time', () => {
    // The stale holder passes the check and pauses. Its successor must not write between the stale check and the stale
    // write.
    test('a newer holder waits for the transaction of a paused older holder, and writes last', async () => {
      const [checked, resume] = [new Step(), new Step()];
      const older = transaction(holder(1), async (client) => {
        checked.done();
        await resume.reached;
        await account.write('old', client);
      });
      await checked.reached;
      let seen: unknown;
      const newer = transaction(holder(2), async (client) => {
        seen = await read(client);
        await account.write('new', client);
      });
      await until(somebodyWaits);
      expect(seen).toBeUndefined();
      resume.done();
      await Promise.all([older, newer]);
      expect(seen).toBe('old');
      await expect(read()).resolves.toBe('new');
    });

    test('an older holder waits for the transaction of a paused newer holder, and is then refused', async () => {
      const [checked, resume] = [new Step(), new Step()];
      const newer = transaction(holder(2), async (client) => {
        checked.done();
        await resume.reached;
        await account.write('new', client);
      });
      await checked.reached;
      const older = transaction(holder(1), (client) => account.write('old', client));
      await until(somebodyWaits);
      resume.done();
      const [refused] = await Promise.allSettled([older, newer]);
      expect(refused).toMatchObject({ status: 'rejected', reason: expect.any(StaleTokenError) });
      await expect(read()).resolves.toBe('new');
    });

    // Negative control: the check runs in one transaction, and the write comes after this transaction.
    test('the register does not prevent a stale write that follows the transaction (control)', async () => {
      await expect(account.isAccepted(holder(1))).resolves.toBe(true);
      await transaction(holder(2), (client) => account.write('new', client));
      await account.write('old');
      await expect(read()).resolves.toBe('old');
    });

    test('the register refuses a write whose token is lower than the token of an earlier read', async () => {
      const seen = await transaction(holder(2), read);
      const stale = transaction(holder(1), (client) => account.write('old', client));
      await expect(stale).rejects.toThrow(StaleTokenError);
      await transaction(holder(2), (client) => account.write(`${String(seen)}, changed`, client));
      await expect(read()).resolves.toBe('initial, changed');
    });

    test('the register accepts only increasing tokens from 120 concurrent holders with keys in any order', async () => {
      const { database, key } = account;
      const other = randomUUID();
      await database.query(
        `create table accepted (place ${database.serial} primary key, name varchar(50), token bigint)`,
      );
      const tokens = Array.from({ length: 120 }, (_, index) => index + 1).toSorted(() => Math.random() - 0.5);
      const results = await Promise.allSettled(
        tokens.map((fencingToken) => {
          // The highest token has both keys, so each key has a holder who is accepted.
          const keys = [[key, other], [other, key], [key]][fencingToken % 3] ?? [];
          return transaction({ keys, fencingToken }, async (client) => {
            for (const each of keys)
              await database.query(
                'insert into accepted (name, token) values (?, ?)',
                [each, fencingToken],
                client,
              );
          });
        }),
      );
      // Every transaction is accepted or refused. None ends with a deadlock or a serialization failure.
      const errors = results.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []));
      expect(errors.filter((error) => !(error instanceof StaleTokenError))).toEqual([]);
      for (const each of [key, other]) {
        const rows = await database.query('select token from accepted where name = ? order by place', [each]);
        const accepted = rows.map(({ token }) => Number(token));
        expect(accepted.length).toBeGreaterThan(0);
        expect(accepted).toEqual(accepted.toSorted((a, b) => a - b));
      }
      await expect(account.highestOf()).resolves.toBe(120);
    });

    test('a fenced transaction ends after its idle timeout, writes nothing, and unblocks its successor', async () => {
      const [checked, resume] = [new Step(), new Step()];
      const begun = performance.now();
      const older = account.database
        .newRegister({ idleTimeout: 2_000 })
        .transaction(holder(1), async (client) => {
          checked.done();
          await resume.reached;
          await account.write('old', client);
        })
        .catch(account.database.isLost);
      await checked.reached;
      await transaction(holder(2), (client) => account.write('new', client));
      expect(performance.now() - begun).toBeGreaterThan(1_900);
      resume.done();
      await expect(older).resolves.toBe(true);
      await expect(read()).resolves.toBe('new');
    });
  });

  describe('with locks of several holders', () => {
    test('the register compares the tokens of each slot separately', async () => {
      const locks = [
        ...[permit(0, 40), permit(3, 35), permit(0, 39), permit(3, 35), permit(3, 36), permit(3, 35)],
        permit(0, 40),
      ];
      await expect(account.accepts(locks)).resolves.toEqual([true, true, false, true, true, false, true]);
      await expect(transaction(permit(0, 39), read)).rejects.toMatchObject({
        keys: [account.key],
        token: 39,
        highest: 40,
      });
    });

    test('the register compares the token of a reader with writers, and the token of a writer with all holders', async () => {
      const locks = [...[reader(40), reader(38), holder(39), holder(40), reader(39), reader(41)], holder(41)];
      await expect(account.accepts(locks)).resolves.toEqual([true, true, false, true, false, true, true]);
      await expect(transaction(reader(40), read)).rejects.toMatchObject({ highest: 41 });
    });

    test('the register compares the tokens of permits with the tokens of readers and of writers', async () => {
      const locks = [
        ...[permit(1, 30), holder(29), reader(29), holder(30), permit(0, 29), permit(0, 31), reader(32)],
        ...[permit(0, 31), permit(0, 32), holder(31)],
      ];
      await expect(account.accepts(locks)).resolves.toEqual([
        ...[true, false, false, true, false, true, true],
        ...[false, true, false],
      ]);
      await expect(transaction(holder(31), read)).rejects.toMatchObject({ highest: 32 });
    });

    test('the register assigns each slot to its key, whatever the order of the keys', async () => {
      const [first, second] = [`${account.key}:a`, `${account.key}:b`];
      const both = (keys: string[], slots: number[], fencingToken: number): TokenHolder => ({
        keys,
        slots,
        fencingToken,
        mode: 'permits',
      });
      const accepted = [both([first, second], [0, 7], 40), both([second, first], [0, 7], 39)];
      await expect(account.accepts(accepted)).resolves.toEqual([true, true]);
      const refused = transaction(both([second, first], [7, 1], 39), read);
      await expect(refused).rejects.toMatchObject({ keys: [second], token: 39, highest: 40 });
    });

    test('a write waits for a concurrent read, and is then refused if the read has the higher token', async () => {
      const [checked, resume] = [new Step(), new Step()];
      const reading = transaction(reader(41), () => {
        checked.done();
        return resume.reached;
      });
      await checked.reached;
      const writing = account.isAccepted(holder(40));
      await until(somebodyWaits);
      resume.done();
      await reading;
      await expect(writing).resolves.toBe(false);
    });
  });

  describe('`advance`', () => {
    test('`advance` accepts a first token, and refuses a lower token', async () => {
      await account.database.inTransaction(async (client) => {
        await account.register.advance(client, holder(2));
        await account.write('new', client);
      });
      const stale = account.database.inTransaction(async (client) => {
        await account.register.advance(client, holder(1));
        await account.write('old', client);
      });
      await expect(stale).rejects.toMatchObject({ code: 'TOKEN_STALE', token: 1, highest: 2 });
      await expect(read()).resolves.toBe('new');
    });

    test('`advance` rejects with the error of the server when the table is missing', async () => {
      const elsewhere = account.database.newRegister({ table: 'nowhere' });
      await expect(
        account.database.inTransaction((client) => elsewhere.advance(client, holder(1))),
      ).rejects.toMatchObject({ code: account.database.noSuchTable });
    });
  });

  test('a register works with any plain name of a table, also in another schema', async () => {
    await account.database.query('create schema apart');
    for (const table of ['Tokens', 'user', 'apart.order', 'x'.repeat(account.database.longestName)]) {
      const other = account.database.newRegister({ table });
      await account.database.query(other.createTableSql);
      await account.database.query(other.createTableSql);
      await other.transaction(holder(2), async () => undefined);
      await expect(other.transaction(holder(1), async () => undefined)).rejects.toThrow(StaleTokenError);
      await expect(account.highestOf()).resolves.toBeUndefined();
    }
  });

  return account;
}
