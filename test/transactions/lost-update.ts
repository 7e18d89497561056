import type { Connection } from 'mysql2/promise';
import type { Client } from 'pg';
import { startMysqlServer } from '../support/mysql-server.js';
import { startPostgresServer } from '../support/postgres-server.js';
import { until } from '../support/until.js';

/** Id of an advisory lock in PostgreSQL. While a test holds it, no transaction of the shop commits. */
const GATE = 1;

/** Key that a sale locks. A sale reads the stock, and writes one less. */
export const KEY = 'stock:1';

/** Result of a test for a lost update. */
export interface Sales {
  /** The stock that each of the two sales read. */
  readonly read: readonly number[];
  /** True if the lock was free while the first sale committed. */
  readonly freeWhileCommitting: boolean;
  /** The stock after two sales. The stock before them is 10. */
  readonly left: number;
}

export const LOST: Sales = { read: [10, 10], freeWhileCommitting: true, left: 9 };
export const CURED: Sales = { read: [10, 9], freeWhileCommitting: false, left: 8 };

/** A database with a table `stock`. Its transactions commit only when a test lets them. */
export abstract class ShopDatabase {
  constructor(
    readonly url: string,
    readonly stop: () => Promise<void>,
  ) {}

  /** Sets the stock to 10. */
  abstract stockUp(): Promise<void>;
  abstract left(): Promise<number>;
  /** Runs statements. */
  abstract run(sql: string): Promise<unknown>;

  /** Keeps transactions from committing until `letCommit`. */
  protected abstract holdCommits(): Promise<unknown>;
  protected abstract letCommit(): Promise<unknown>;
  protected abstract isCommitting(): Promise<boolean>;

  /**
   * Runs two sales. The second sale begins while the first commits, after the method of the first has returned.
   *
   * @param sell - makes one sale, and passes the stock that it has read to `read`
   * @param isFree - resolves to `true` if the lock of the sales is free
   */
  async sellTwice(
    sell: (read: (left: number) => void) => Promise<unknown>,
    isFree: () => Promise<boolean>,
  ): Promise<Sales> {
    const read: number[] = [];
    const note = (left: number): void => void read.push(left);
    await this.stockUp();
    await this.holdCommits();
    const first = sell(note);
    await until(() => this.isCommitting());
    const freeWhileCommitting = await isFree();
    const second = sell(note);
    // If the lock is free, the second sale reads now. Otherwise it waits for the lock.
    if (freeWhileCommitting) await until(() => read.length === 2);
    await this.letCommit();
    await Promise.all([first, second]);
    return { read, freeWhileCommitting, left: await this.left() };
  }
}

class PostgresShop extends ShopDatabase {
  constructor(
    private readonly client: Client,
    ...rest: ConstructorParameters<typeof ShopDatabase>
  ) {
    super(...rest);
  }

  run(sql: string): Promise<unknown> {
    return this.client.query(sql);
  }

  async stockUp(): Promise<void> {
    await this.client.query('truncate stock; insert into stock values (1, 10)');
  }

  async left(): Promise<number> {
    const { rows } = await this.client.query('select left_over from stock');
    return (rows[0] as { left_over: number }).left_over;
  }

  protected holdCommits(): Promise<unknown> {
    return this.client.query('select pg_advisory_lock($1)', [GATE]);
  }

  protected letCommit(): Promise<unknown> {
    return this.client.query('select pg_advisory_unlock($1)', [GATE]);
  }

  protected async isCommitting(): Promise<boolean> {
    const { rowCount } = await this.client.query(
      `select from pg_locks where locktype = 'advisory' and not granted`,
    );
    return rowCount === 1;
  }
}

export async function postgresShop(): Promise<ShopDatabase> {
  const server = await startPostgresServer();
  const client = await server.client();
  await client.query(`
    create table stock (id int primary key, left_over int not null);
    create function wait_for_gate() returns trigger language plpgsql as
      $$ begin perform pg_advisory_xact_lock_shared(${GATE}); return null; end $$;
    -- Deferred, so it runs as the first part of the commit.
    create constraint trigger gate after update on stock deferrable initially deferred
      for each row execute function wait_for_gate();
  `);
  return new PostgresShop(client, server.url, () => server.stop());
}

class MariadbShop extends ShopDatabase {
  constructor(
    private readonly client: Connection,
    ...rest: ConstructorParameters<typeof ShopDatabase>
  ) {
    super(...rest);
  }

  run(sql: string): Promise<unknown> {
    return this.client.query(sql);
  }

  async stockUp(): Promise<void> {
    await this.client.query('delete from stock; insert into stock values (1, 10)');
  }

  async left(): Promise<number> {
    const [rows] = await this.client.query('select left_over from stock');
    return (rows as { left_over: number }[])[0]!.left_over;
  }

  protected holdCommits(): Promise<unknown> {
    return this.client.query('backup stage start; backup stage block_commit');
  }

  protected letCommit(): Promise<unknown> {
    return this.client.query('backup stage end');
  }

  protected async isCommitting(): Promise<boolean> {
    const [rows] = await this.client.query(
      "select id from information_schema.processlist where state = 'Waiting for backup lock'",
    );
    return (rows as unknown[]).length === 1;
  }
}

export async function mariadbShop(): Promise<ShopDatabase> {
  const server = await startMysqlServer();
  const client = await server.client();
  await client.query('create table stock (id int primary key, left_over int not null)');
  return new MariadbShop(client, server.uri, () => server.stop());
}
