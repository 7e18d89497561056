import { expect, test } from '@jest/globals';
import { MikroORM, RequestContext } from '@mikro-orm/postgresql';
import { LockService } from '../../lib/index.js';
import { LogLines } from '../support/log-lines.js';
import { startApp } from '../support/nest-app.js';
import { KEY, postgresShop } from './lost-update.js';
import { connected, mikroOrmContract } from './mikro-orm-contract.js';

mikroOrmContract((options) => MikroORM.init(options), postgresShop);

test('`isInTransaction()` of MikroORM is sufficient for the warning about an open transaction', async () => {
  const own = new LogLines();
  const { em } = connected();
  const inTransaction = (): boolean => em.isInTransaction();
  const plain = await startApp({}, { nodes: 'memory', inTransaction }, { logger: own });
  const take = (): Promise<void> => plain.get(LockService).withLock(KEY, () => undefined);
  await take();
  await RequestContext.create(em, take);
  expect(own.of('warn').join()).not.toContain('transaction');
  await RequestContext.create(em, () => em.transactional(take));
  expect(own.of('warn').join()).toContain(
    'LockService (label "other") locks "stock:1" inside an open transaction.',
  );
  await plain.close();
});
