import { expect, test } from '@jest/globals';
import { Injectable } from '@nestjs/common';
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
import { Step } from '../support/transactions.js';
import { until } from '../support/until.js';
import { KEY, type ShopDatabase } from './lost-update.js';
import { ormContract, type Read } from './orm-contract.js';

interface Stock {
  id: number;
  left: number;
}

const stocks = new EntitySchema<Stock>({
  name: 'stock',
  columns: { id: { type: 'int', primary: true }, left: { type: 'int', name: 'left_over' } },
});

let dataSource: DataSource;

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

const scene = ormContract('typeorm-transactional', {
  async connect({ server }: ShopDatabase) {
    initializeTransactionalContext({ storageDriver: StorageDriver.ASYNC_LOCAL_STORAGE });
    dataSource = new DataSource({ type: 'postgres', url: server.url, entities: [stocks] });
    addTransactionalDataSource(await dataSource.initialize());
  },
  async close() {
    deleteDataSourceByName('default');
    await dataSource.destroy();
  },
  shop: Shop,
  hooks,
  run: (task, inner) =>
    runInTransaction(
      task,
      inner && {
        propagation: { independent: Propagation.REQUIRES_NEW, none: Propagation.NOT_SUPPORTED }[inner],
      },
    ),
});

test('a transaction whose snapshot is older than its lock reads old data', async () => {
  const { database, shop, isFree } = scene;
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
