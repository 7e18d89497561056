import { expect, test } from '@jest/globals';
import { Fields } from '../../../lib/stores/redis/scripts/fields.js';

const fields = new Fields('id', 'left');

test('the Lua text of a reply has the values in the order of the declaration', () => {
  expect(fields.lua({ left: 'y', id: 'x' })).toBe('{x, y}');
  expect(fields.lua({ left: 'y', id: 'x' }, -1)).toBe('{-1, x, y}');
  expect(fields.at('left', 'answer')).toBe('answer[2]');
  expect(fields.append('list', 'size', { left: 'y', id: 'x' })).toBe('list[size + 1], list[size + 2] = x, y');
});

test('a reply is read by the names of the declaration, and a field that it lacks is undefined', () => {
  expect(fields.of(['a', 1])).toEqual({ id: 'a', left: 1 });
  expect(fields.of([-1, 'a'], 1)).toEqual({ id: 'a', left: undefined });
  expect(fields.rows([0, 'a', 1, 'b', 2], 1)).toEqual([
    { id: 'a', left: 1 },
    { id: 'b', left: 2 },
  ]);
  expect(fields.rows([])).toEqual([]);
});
