import { expect, test } from '@jest/globals';
import { defineLocks, Leader, WithLock } from '../../lib/index.js';
import { fixedKeysOf, missingValueIn } from '../../lib/core/keys.js';

test.each([
  ['order:undefined', 'undefined'],
  ['undefined', 'undefined'],
  ['order:undefined:items', 'undefined'],
  ['order/null/items', 'null'],
  ['order-NaN', 'NaN'],
  ['order_undefined', 'undefined'],
  ['{order:NaN}:1', 'NaN'],
  ['order:[object Object]', '[object Object]'],
  ['order:[object Promise]:x', '[object Promise]'],
  ['order:${id}', '${'],
])('the key %s has a missing value', (key, text) => {
  expect(missingValueIn(key)).toEqual({ text, before: key.slice(0, key.indexOf(text)) });
});

test.each([
  'order:17',
  'annul:1',
  'nullable',
  'order:NaNcy',
  'mails:null-recipients',
  'report:undefined-behaviour',
  'order:$7',
  'order:{id}',
  'order:[objects]',
  'Bananas:NaNa',
])('the key %s has no missing value', (key) => {
  expect(missingValueIn(key)).toBeUndefined();
});

test('a fixed key with a missing value is refused, also in a list, with the remedy', () => {
  expect(() => fixedKeysOf(['a', 'order:NaN'])).toThrow(TypeError);
  expect(() => fixedKeysOf('order:NaN')).toThrow(
    /^Expected `key` to be a key without a missing value, got "order:NaN", .* Give the value in place of "NaN"/,
  );
  expect(() => fixedKeysOf('order:${id}')).toThrow('A template needs backticks');
  expect(fixedKeysOf(['b', 'a'])).toEqual(['a', 'b']);
});

test('@WithLock, `defineLocks` and @Leader refuse a fixed key with a missing value where it is defined', () => {
  const env: Record<string, string> = {};
  expect(() => {
    class Orders {
      @WithLock(`order:${env['REGION']}`)
      async settle(): Promise<void> {}
    }
    return Orders;
  }).toThrow(/^@WithLock of Orders\.settle: .* got "order:undefined"/);
  expect(() => defineLocks({ orders: { key: 'order:[object Object]' } })).toThrow(
    /^The lock "orders" in `defineLocks`: .* got "order:\[object Object\]"/,
  );
  expect(() => {
    class Jobs {
      @Leader('jobs:${region}')
      async lead(): Promise<void> {}
    }
    return Jobs;
  }).toThrow(/^@Leader of Jobs\.lead: .*"leader:jobs:\$\{region\}".*backticks/);
});
