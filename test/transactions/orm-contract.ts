import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { INestApplication, Type } from '@nestjs/common';
import { LockService, type RedlockModuleOptions } from '../../lib/index.js';
import { LogLines } from '../support/log-lines.js';
import { startApp } from '../support/nest-app.js';
import { until } from '../support/until.js';
import { CURED, KEY, LOST, postgresShop, type ShopDatabase } from './lost-update.js';

/** Notes the stock that a sale has read. */
export type Read = (left: number) => void;

/** A shop whose methods sell one piece under the lock of {@link KEY}, each with another order of lock and transaction. */
export interface Shop {
  /** `@Transactional()` above `@WithLock`. */
  transactionAbove(read: Read): Promise<void>;
  /** `@WithLock` above `@Transactional()`. */
  lockAbove(read: Read): Promise<void>;
  /** `@Transactional()` above `@WithLock` with `release: 'afterCommit'`. */
  kept(read: Read): Promise<void>;
  /** `withLock` around the transaction. */
  around(read: Read): Promise<void>;
}

/** An inner transaction that is independent of the outer one, or no transaction; by default `run` joins the outer one. */
export type Inner = 'independent' | 'none';

export interface Orm {
  connect(database: ShopDatabase): Promise<unknown>;
  close(): Promise<unknown>;
  readonly shop: Type<Shop>;
  readonly hooks: () => Pick<RedlockModuleOptions, 'inTransaction' | 'afterTransaction'>;
  /** Runs a task in a transaction. */
  run<T>(task: () => Promise<T>, inner?: Inner): Promise<T>;
}

/** The objects of a test. They are defined while tests run. */
export interface OrmScene {
  readonly database: ShopDatabase;
  readonly shop: Shop;
  readonly isFree: () => Promise<boolean>;
}

/**
 * Tests locks and transactions of a mapper of objects, with the hooks that docs/transactions.md shows for it.
 *
 * @param start - starts the database, by default PostgreSQL
 */
export function ormContract(name: string, orm: Orm, start = postgresShop): OrmScene {
  let database: ShopDatabase;
  let app: INestApplication;
  let shop: Shop;
  let locks: LockService;
  let lines: LogLines;

  beforeAll(async () => {
    database = await start();
    await orm.connect(database);
  });
  afterAll(async () => {
    await orm.close();
    await database.stop();
  });
  beforeEach(async () => {
    lines = new LogLines();
    app = await startApp({ providers: [orm.shop] }, { nodes: 'memory', ...orm.hooks() }, { logger: lines });
    shop = app.get(orm.shop);
    locks = app.get(LockService);
  });
  afterEach(() => app.close());

  const warnings = (): string[] => lines.of('warn').filter((line) => line.includes('transaction'));
  const isFree = async (): Promise<boolean> => !(await locks.inspect(KEY)).held;

  describe(`with ${name} and two concurrent sales`, () => {
    test('with @Transactional() above @WithLock, one of two concurrent sales is lost, and one warning is logged', async () => {
      await expect(database.sellTwice((read) => shop.transactionAbove(read), isFree)).resolves.toEqual(LOST);
      expect(warnings()).toEqual([
        expect.stringMatching(/^Shop\.transactionAbove locks "stock:1" inside an open transaction\./),
      ]);
    });

    test.each([
      ['@WithLock above @Transactional()', 'lockAbove'],
      ["release: 'afterCommit'", 'kept'],
      ['withLock around the transaction', 'around'],
    ] as const)('no update of two concurrent sales is lost with %s', async (_, way) => {
      await expect(database.sellTwice((read) => shop[way](read), isFree)).resolves.toEqual(CURED);
      expect(warnings()).toEqual([]);
      await until(isFree);
    });
  });

  describe(`release: 'afterCommit' with ${name}`, () => {
    test("`release: 'afterCommit'` keeps the lock until the transaction is rolled back", async () => {
      await database.stockUp();
      const rolledBack = orm.run(async () => {
        await shop.kept(() => undefined);
        expect(await isFree()).toBe(false);
        throw new Error('rolled back');
      });
      await expect(rolledBack).rejects.toThrow('rolled back');
      await until(isFree);
      await expect(database.left()).resolves.toBe(10);
    });

    test("`release: 'afterCommit'` keeps the lock until the outermost transaction has committed, even if an inner transaction or savepoint acquired the lock", async () => {
      await orm.run(async () => {
        await orm.run(() => shop.kept(() => undefined));
        expect(await isFree()).toBe(false);
      });
      await until(isFree);
    });

    test("`release: 'afterCommit'` keeps the lock of an independent inner transaction only until that transaction has committed", async () => {
      await orm.run(async () => {
        await orm.run(() => shop.kept(() => undefined), 'independent');
        await expect(until(isFree)).resolves.toBeUndefined();
      });
    });

    test("`release: 'afterCommit'` keeps the lock only until its task ends, if the task runs outside of the transaction", async () => {
      await orm.run(() =>
        orm.run(async () => {
          await locks.withLock(KEY, { release: 'afterCommit' }, () => undefined);
          expect(await isFree()).toBe(true);
        }, 'none'),
      );
    });

    test("with `release: 'afterCommit'`, later reentrant calls in the same transaction join the lock", async () => {
      const options = { release: 'afterCommit', reentrant: true } as const;
      await orm.run(async () => {
        const take = (): Promise<number> => locks.withLock(KEY, options, (lock) => lock.fencingToken);
        const token = await take();
        await expect(take()).resolves.toBe(token);
        // The inner transaction joins the outer one, or is a savepoint of it.
        await expect(orm.run(take)).resolves.toBe(token);
        expect(await isFree()).toBe(false);
      });
      await until(isFree);
    });
  });

  return {
    isFree,
    get database() {
      return database;
    },
    get shop() {
      return shop;
    },
  };
}
