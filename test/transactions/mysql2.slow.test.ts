import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { AsyncLocalStorage } from 'node:async_hooks';
import type { INestApplication } from '@nestjs/common';
import { createPool, type Pool, type PoolConnection } from 'mysql2/promise';
import { LockService } from '../../lib/index.js';
import { LogLines } from '../support/log-lines.js';
import { hasMysql } from '../support/mysql-server.js';
import { startApp } from '../support/nest-app.js';
import { until } from '../support/until.js';
import { CURED, KEY, LOST, mariadbShop, type ShopDatabase } from './lost-update.js';

type Read = (left: number) => void;

(hasMysql() ? describe : describe.skip)('transactions of mysql2, without a mapper of objects', () => {
  let database: ShopDatabase;
  let pool: Pool;
  let app: INestApplication;
  let locks: LockService;
  let lines: LogLines;

  beforeAll(async () => {
    database = await mariadbShop();
    pool = createPool(database.url);
  });
  afterAll(async () => {
    await pool.end();
    await database.stop();
  });
  beforeEach(async () => {
    lines = new LogLines();
    app = await startApp(
      {},
      { nodes: 'memory', inTransaction: () => transactions.getStore() },
      { logger: lines },
    );
    locks = app.get(LockService);
  });
  afterEach(() => app.close());

  const transactions = new AsyncLocalStorage<object>();

  async function transaction<T>(task: (connection: PoolConnection) => Promise<T>): Promise<T> {
    const connection = await pool.getConnection();
    try {
      await connection.beginTransaction();
      const result = await transactions.run({}, () => task(connection));
      await connection.commit();
      return result;
    } catch (error) {
      await connection.rollback();
      throw error;
    } finally {
      connection.release();
    }
  }

  async function sell(connection: PoolConnection, read: Read): Promise<void> {
    const [rows] = await connection.query('select left_over from stock where id = 1');
    const left = (rows as { left_over: number }[])[0]!.left_over;
    read(left);
    await connection.query('update stock set left_over = ? where id = 1', [left - 1]);
  }

  const warnings = (): string[] => lines.of('warn').filter((line) => line.includes('transaction'));
  const isFree = async (): Promise<boolean> => !(await locks.inspect(KEY)).held;

  test('with a lock in the transaction, one of two concurrent sales is lost, and one warning is logged', async () => {
    const inside = (read: Read): Promise<void> =>
      transaction((connection) => locks.withLock(KEY, { label: 'sale' }, () => sell(connection, read)));
    await expect(database.sellTwice(inside, isFree)).resolves.toEqual(LOST);
    expect(warnings()).toEqual([
      expect.stringMatching(/\(label "sale"\) locks "stock:1" inside an open transaction\./),
    ]);
  });

  test('with the lock around the transaction, no update of two concurrent sales is lost', async () => {
    const around = (read: Read): Promise<void> =>
      locks.withLock(KEY, () => transaction((connection) => sell(connection, read)));
    await expect(database.sellTwice(around, isFree)).resolves.toEqual(CURED);
    expect(warnings()).toEqual([]);
    await until(isFree);
  });
});
