import { expect, test } from '@jest/globals';
import { hasMysql } from '../support/mysql-server.js';
import { until } from '../support/until.js';
import { mariadbShop } from './lost-update.js';
import { sellLate, typeormContract } from './typeorm-contract.js';

if (hasMysql()) {
  const scene = typeormContract('mysql', mariadbShop);

  test('MariaDB stores the write of a transaction whose snapshot is older than its lock, and an update is lost', async () => {
    await scene.database.stockUp();
    const read: number[] = [];
    await sellLate(scene, (left) => read.push(left));
    expect(read).toEqual([10, 10]);
    await expect(scene.database.left()).resolves.toBe(9);
    await until(scene.isFree);
  });
} else test.todo('a lock and transactions of TypeORM on MariaDB');
