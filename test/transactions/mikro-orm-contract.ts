import { EntitySchema, type MikroORM, Transactional, TransactionPropagation } from '@mikro-orm/core';
import type { Knex } from '@mikro-orm/knex';
import { Injectable } from '@nestjs/common';
import { LockService, type RedlockModuleOptions, WithLock } from '../../lib/index.js';
import { KEY, type ShopDatabase } from './lost-update.js';
import { ormContract, type OrmScene, type Read } from './orm-contract.js';

interface Stock {
  id: number;
  left: number;
}

const stocks = new EntitySchema<Stock>({
  name: 'Stock',
  tableName: 'stock',
  properties: { id: { type: 'number', primary: true }, left: { type: 'number', fieldName: 'left_over' } },
});

let orm: MikroORM;

@Injectable()
class Shop {
  readonly orm = orm;

  constructor(private readonly locks: LockService) {}

  async #sell(read: Read): Promise<void> {
    const stock = await orm.em.findOneOrFail(stocks, 1);
    read(stock.left);
    stock.left--;
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
    return this.locks.withLock(KEY, () => orm.em.transactional(() => this.#sell(read)));
  }
}

// docs/transactions.md shows these lines.
function transaction(): Knex.Transaction | undefined {
  let found = orm.em.getTransactionContext<Knex.Transaction>();
  while (found?.parentTransaction) found = found.parentTransaction;
  return found;
}

const hooks: Partial<RedlockModuleOptions> = {
  inTransaction: transaction,
  afterTransaction: (callback) => void transaction()?.executionPromise.then(callback, callback),
};

/**
 * The contract with MikroORM and its package for a database.
 *
 * @param init - connects to the database
 */
export function mikroOrmContract(
  init: (options: {
    clientUrl: string;
    entities: [typeof stocks];
    pool: { max: number };
  }) => Promise<MikroORM>,
  start: () => Promise<ShopDatabase>,
): OrmScene {
  return ormContract(
    'MikroORM',
    {
      async connect({ url }: ShopDatabase) {
        orm = await init({ clientUrl: url, entities: [stocks], pool: { max: 5 } });
      },
      close: () => orm.close(true),
      shop: Shop,
      hooks: () => hooks,
      run: (task, inner) =>
        orm.em.transactional(
          task,
          inner && {
            propagation: {
              independent: TransactionPropagation.REQUIRES_NEW,
              none: TransactionPropagation.NOT_SUPPORTED,
            }[inner],
          },
        ),
    },
    start,
  );
}

/** The connected MikroORM. */
export function connected(): MikroORM {
  return orm;
}
