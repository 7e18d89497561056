import { expect, test } from '@jest/globals';
import { type DeclaredKey, type DeclaredLock, defineLocks } from '../../lib/core/declared-lock.js';
import { keyPatterns } from '../../lib/core/key-pattern.js';

const lockOf = (key: DeclaredKey): DeclaredLock => defineLocks({ lock: { key } })['lock']!;
const textsOf = (key: DeclaredKey): string[] => keyPatterns(lockOf(key)).map(({ text }) => text);

test.each<[DeclaredKey, string[]]>([
  ['report', ['report']],
  [
    ['b', 'a'],
    ['a', 'b'],
  ],
  [(id: number) => `order:${id}`, ['order:*']],
  [(id: number) => `order:${id}:lines`, ['order:*:lines']],
  [(order: { id: { tenant: string } }) => `order:${order.id.tenant}`, ['order:*']],
  [(name: string) => `user:${name.trim().toLowerCase()}`, ['user:*']],
  [(id: number) => 'order:' + String(id) + id.toString(), ['order:**']],
  [(from: string, to: string) => [`account:${from}`, `account:${to}`], ['account:*']],
  [(...ids: string[]) => ids.map((id) => `account:${id}`), ['account:*']],
  [(tenant: string, id = 'all') => `${tenant}:${id}`, ['*:*']],
  [(tenant: string, id?: string) => (id ? `${tenant}/${id}` : `all:${tenant}`), ['*/*', 'all:*']],
  [(...path: string[]) => `path:${path.join('/')}`, ['path:*']],
  [(tenant?: string) => (tenant ? `report:${tenant}` : 'report-of-all'), ['report:*', 'report-of-all']],
])('the key pattern of %s is %j', (key, texts) => {
  expect(textsOf(key)).toEqual(texts);
});

test.each<[string, DeclaredKey]>([
  ['computes with a number', (id: number) => `shard:${id % 16}`],
  ['returns an argument unchanged', (id: string) => id],
  ['maps over a list argument', (ids: string[]) => ids.map((id) => `id:${id}`)],
  [
    'loops until an object has no parent',
    (node: { parent: never; id: string }) => {
      let id = '';
      for (let at = node; at; at = at.parent) id = at.id;
      return `node:${id}`;
    },
  ],
  [
    'loops until a method returns nothing',
    (node: { next: () => never }) => {
      for (let at = node; at; at = at.next());
      return `node:${String(node)}`;
    },
  ],
  ['ignores its arguments', (_id: number) => 'same'],
  [
    'throws',
    (id: number) => {
      throw new Error(String(id));
    },
  ],
])('there is no key pattern for a function that %s', (_what, key) => {
  expect(textsOf(key)).toEqual([]);
});

test.each([
  ['order:42', false],
  ['order:42:7:lines', true],
  ['order::lines', true],
  ['order:lines', false],
  ['order:42:line', false],
  ['orders:42:lines', false],
])('matching the key %s with the pattern order:*:lines gives %s', (key, fits) => {
  const [pattern] = keyPatterns(lockOf((id: number) => `order:${id}:lines`));
  expect(pattern?.fits(key)).toBe(fits);
});
