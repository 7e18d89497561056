import { expect, test } from '@jest/globals';
import { until } from '../support/until.js';
import { postgresShop } from './lost-update.js';
import { sellLate, typeormContract } from './typeorm-contract.js';

const scene = typeormContract('postgres', postgresShop);

test('a transaction whose snapshot is older than its lock reads old data', async () => {
  await scene.database.stockUp();
  const read: number[] = [];
  // PostgreSQL refuses the write. Other databases may store it.
  await expect(sellLate(scene, (left) => read.push(left))).rejects.toThrow(
    'could not serialize access due to concurrent update',
  );
  expect(read).toEqual([10, 10]);
  await until(scene.isFree);
});
