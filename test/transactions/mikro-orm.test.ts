import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import {
  EntitySchema,
  type Knex,
  MikroORM,
  RequestContext,
  Transactional,
  TransactionPropagation,
} from '@mikro-orm/postgresql';
import { type INestApplication, Injectable } from '@nestjs/common';
import { LockService, type RedlockModuleOptions, WithLock } from '../../lib/index.js';
import { LogLines } from '../support/log-lines.js';
import { startApp } from '../support/nest-app.js';
import { until } from '../support/until.js';
import { CURED, KEY, LOST, ShopDatabase } from './lost-update.js';

interface Stock {
  id: number;
  left: number;
}

const stocks = new EntitySchema<Stock>({
  name: 'Stock',
  tableName: 'stock',
  properties: { id: { type: 'number', primary: true }, left: { type: 'number', fieldName: 'left_over' } },
});

type Read = (left: number) => void;

let database: ShopDatabase;
let orm: MikroORM;
beforeAll(async () => {
  database = await ShopDatabase.start();
  orm = await MikroORM.init({ clientUrl: database.server.url, entities: [stocks], pool: { max: 5 } });
});
afterAll(async () => {
  await orm.close(true);
  await database.server.stop();
});

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

let app: INestApplication;
let shop: Shop;
let locks: LockService;
let lines: LogLines;
beforeEach(async () => {
  lines = new LogLines();
  app = await startApp({ providers: [Shop] }, { nodes: 'memory', ...hooks }, { logger: lines });
  shop = app.get(Shop);
  locks = app.get(LockService);
});
afterEach(() => app.close());

const warnings = (): string[] => lines.of('warn').filter((line) => line.includes('transaction'));
const isFree = async (): Promise<boolean> => !(await locks.inspect(KEY)).held;

describe('with MikroORM and two concurrent sales', () => {
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
    const rolledBack = orm.em.transactional(async () => {
      await shop.kept(() => undefined);
      expect(await isFree()).toBe(false);
      throw new Error('rolled back');
    });
    await expect(rolledBack).rejects.toThrow('rolled back');
    await until(isFree);
    await expect(database.left()).resolves.toBe(10);
  });

  test("`release: 'afterCommit'` keeps the lock until the outermost transaction has committed, even if a savepoint acquired the lock", async () => {
    await orm.em.transactional(async () => {
      await orm.em.transactional(() => shop.kept(() => undefined));
      expect(await isFree()).toBe(false);
    });
    await until(isFree);
  });

  test("`release: 'afterCommit'` keeps the lock of an independent inner transaction only until that transaction has committed", async () => {
    const options = { propagation: TransactionPropagation.REQUIRES_NEW };
    await orm.em.transactional(async () => {
      await orm.em.transactional(() => shop.kept(() => undefined), options);
      await expect(until(isFree)).resolves.toBeUndefined();
    });
  });

  test("`release: 'afterCommit'` keeps the lock only until its task ends, if the task runs outside of the transaction", async () => {
    const options = { propagation: TransactionPropagation.NOT_SUPPORTED };
    await orm.em.transactional(() =>
      orm.em.transactional(async () => {
        await locks.withLock(KEY, { release: 'afterCommit' }, () => undefined);
        expect(await isFree()).toBe(true);
      }, options),
    );
  });

  test("with `release: 'afterCommit'`, later reentrant calls in the same transaction join the lock", async () => {
    const options = { release: 'afterCommit', reentrant: true } as const;
    await orm.em.transactional(async () => {
      const take = (): Promise<number> => locks.withLock(KEY, options, (lock) => lock.fencingToken);
      const token = await take();
      await expect(orm.em.transactional(take)).resolves.toBe(token);
      expect(await isFree()).toBe(false);
    });
    await until(isFree);
  });
});

test('`isInTransaction()` of MikroORM is sufficient for the warning about an open transaction', async () => {
  const own = new LogLines();
  const inTransaction = (): boolean => orm.em.isInTransaction();
  const plain = await startApp({}, { nodes: 'memory', inTransaction }, { logger: own });
  const take = (): Promise<void> => plain.get(LockService).withLock(KEY, () => undefined);
  await take();
  await RequestContext.create(orm.em, take);
  expect(own.of('warn').join()).not.toContain('transaction');
  await RequestContext.create(orm.em, () => orm.em.transactional(take));
  expect(own.of('warn').join()).toContain(
    'LockService (label "other") locks "stock:1" inside an open transaction.',
  );
  await plain.close();
});
