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
import { KEY, type ShopDatabase } from './lost-update.js';
import { ormContract, type OrmScene, type Read } from './orm-contract.js';

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

/** The contract with TypeORM and the driver of a database. */
export function typeormContract(type: 'postgres' | 'mysql', start: () => Promise<ShopDatabase>): OrmScene {
  return ormContract(
    'typeorm-transactional',
    {
      async connect({ url }: ShopDatabase) {
        initializeTransactionalContext({ storageDriver: StorageDriver.ASYNC_LOCAL_STORAGE });
        dataSource = new DataSource({ type, url, entities: [stocks] });
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
    },
    start,
  );
}

/**
 * Sells in a transaction whose snapshot is older than its lock, after another sale.
 *
 * @param read - notes the stock that the two sales read
 */
export async function sellLate({ shop }: OrmScene, read: Read): Promise<void> {
  const [looked, sold] = [new Step(), new Step()];
  const late = runInTransaction(
    async () => {
      await dataSource.getRepository(stocks).count();
      looked.done();
      await sold.reached;
      await shop.kept(read);
    },
    { isolationLevel: IsolationLevel.REPEATABLE_READ },
  );
  await looked.reached;
  await shop.lockAbove(read);
  sold.done();
  await late;
}
