import { expect, test } from '@jest/globals';
import { ShortLivedMap } from '../../lib/redlock/short-lived-map.js';

test('ShortLivedMap keeps every entry that is not deleted while many others are added and deleted', () => {
  const map = new ShortLivedMap<string, number>();
  for (let index = 0; index < 3_000; index++) {
    map.set(`k${index}`, index);
    if (index % 10 !== 0) map.delete(`k${index}`);
  }

  const kept = Array.from({ length: 3_000 }, (_, index) => index).filter((index) => map.has(`k${index}`));

  expect(kept).toEqual(Array.from({ length: 300 }, (_, index) => index * 10));
  expect(kept.every((index) => map.get(`k${index}`) === index)).toBe(true);
});

test('ShortLivedMap returns the value that was set last', () => {
  const map = new ShortLivedMap<string, number>();
  for (let index = 0; index <= 1_000; index++) map.set('k', index);

  expect(map.get('k')).toBe(1_000);
});
