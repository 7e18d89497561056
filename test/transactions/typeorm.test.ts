import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { type INestApplication, Injectable } from '@nestjs/common';
import { DataSource, EntitySchema } from 'typeorm';
import {
  addTransactionalDataSource,
  deleteDataSourceByName,
  initializeTransactionalContext,
  IsolationLevel,
  Propagation,
  runInTransaction,
  runOnTransactionComplete,
  StorageDriver,
  Transactional,
} from 'typeorm-transactional';
import { LockService, type RedlockModuleOptions, WithLock } from '../../lib/index.js';
import { LogLines } from '../support/log-lines.js';
import { startApp } from '../support/nest-app.js';
import { Step } from '../support/transactions.js';
import { until } from '../support/until.js';
import { CURED, KEY, LOST, ShopDatabase } from './lost-update.js';

interface Stock {
  id: number;
  left: number;
}

const stocks = new EntitySchema<Stock>({
  name: 'stock',
  columns: { id: { type: 'int', primary: true }, left: { type: 'int', name: 'left_over' } },
});

type Read = (left: number) => void;

let database: ShopDatabase;
let dataSource: DataSource;
beforeAll(async () => {
  database = await ShopDatabase.start();
  initializeTransactionalContext({ storageDriver: StorageDriver.ASYNC_LOCAL_STORAGE });
  dataSource = new DataSource({ type: 'postgres', url: database.server.url, entities: [stocks] });
  addTransactionalDataSource(await dataSource.initialize());
});
afterAll(async () => {
  deleteDataSourceByName('default');
  await dataSource.destroy();
  await database.server.stop();
});

@Injectable()
class Shop {
  constructor(private readonly locks: LockService) {}

  async #sell(read: Read): Promise<void> {
    const stock = await dataSource.getRepository(stocks).findOneByOrFail({ id: 1 });
    read(stock.left);
    await dataSource.getRepository(stocks).update(1, { left: stock.left - 1 });
  }

  @Transactional()
  @WithLock(KEY)
  async transactionAbove(read: Read): Promise<void> {
    await this.#sell(read);
  }

  @WithLock(KEY)
  @Transactional()
  async lockAbove(read: Read): Promise<void> {
    await this.#sell(read);
  }

  @Transactional()
  @WithLock(KEY, { release: 'afterCommit' })
  async kept(read: Read): Promise<void> {
    await this.#sell(read);
  }

  around(read: Read): Promise<void> {
    return this.locks.withLock(KEY, () => runInTransaction(() => this.#sell(read)));
  }
}

// docs/transactions.md shows these lines.
const hooks = (): Pick<RedlockModuleOptions, 'inTransaction' | 'afterTransaction'> => ({
  inTransaction: () => dataSource.manager.queryRunner,
  afterTransaction: runOnTransactionComplete,
});

let app: INestApplication;
let shop: Shop;
let locks: LockService;
let lines: LogLines;
beforeEach(async () => {
  lines = new LogLines();
  app = await startApp({ providers: [Shop] }, { nodes: 'memory', ...hooks() }, { logger: lines });
  shop = app.get(Shop);
  locks = app.get(LockService);
});
afterEach(() => app.close());

const warnings = (): string[] => lines.of('warn').filter((line) => line.includes('transaction'));
const isFree = async (): Promise<boolean> => !(await locks.inspect(KEY)).held;

describe('with typeorm-transactional and two concurrent sales', () => {
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

describe("release: 'afterCommit'", () => {
  test("`release: 'afterCommit'` keeps the lock until the transaction is rolled back", async () => {
    await database.stockUp();
    const rolledBack = runInTransaction(async () => {
      await shop.kept(() => undefined);
      expect(await isFree()).toBe(false);
      throw new Error('rolled back');
    });
    await expect(rolledBack).rejects.toThrow('rolled back');
    await until(isFree);
    await expect(database.left()).resolves.toBe(10);
  });

  test("`release: 'afterCommit'` keeps the lock until the outermost transaction has committed", async () => {
    await runInTransaction(async () => {
      await runInTransaction(() => shop.kept(() => undefined));
      expect(await isFree()).toBe(false);
    });
    await until(isFree);
  });

  test("`release: 'afterCommit'` keeps the lock of an independent inner transaction only until that transaction has committed", async () => {
    const options = { propagation: Propagation.REQUIRES_NEW };
    await runInTransaction(async () => {
      await runInTransaction(() => shop.kept(() => undefined), options);
      await expect(until(isFree)).resolves.toBeUndefined();
    });
  });

  test("`release: 'afterCommit'` keeps the lock only until its task ends, if the task runs outside of the transaction", async () => {
    const options = { propagation: Propagation.NOT_SUPPORTED };
    await runInTransaction(() =>
      runInTransaction(async () => {
        await locks.withLock(KEY, { release: 'afterCommit' }, () => undefined);
        expect(await isFree()).toBe(true);
      }, options),
    );
  });

  test("with `release: 'afterCommit'`, later reentrant calls in the same transaction join the lock", async () => {
    const options = { release: 'afterCommit', reentrant: true } as const;
    await runInTransaction(async () => {
      const take = (): Promise<number> => locks.withLock(KEY, options, (lock) => lock.fencingToken);
      const token = await take();
      await expect(take()).resolves.toBe(token);
      expect(await isFree()).toBe(false);
    });
    await until(isFree);
  });
});

test('a transaction whose snapshot is older than its lock reads old data', async () => {
  await database.stockUp();
  const [looked, sold] = [new Step(), new Step()];
  const read: number[] = [];
  const late = runInTransaction(
    async () => {
      await dataSource.getRepository(stocks).count();
      looked.done();
      await sold.reached;
      await shop.kept((left) => read.push(left));
    },
    { isolationLevel: IsolationLevel.REPEATABLE_READ },
  );
  await looked.reached;
  await shop.lockAbove((left) => read.push(left));
  sold.done();
  // PostgreSQL refuses the write. Other databases may store it.
  await expect(late).rejects.toThrow('could not serialize access due to concurrent update');
  expect(read).toEqual([10, 10]);
  await until(isFree);
});
