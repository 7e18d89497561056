import { expect, test } from '@jest/globals';
import { keysOf, type LockKey } from '../../lib/core/keys.js';

test.each<[string, LockKey, string[]]>([
  ['one key as a list', 'b', ['b']],
  ['several keys in a fixed order', ['b', 'a', 'C'], ['C', 'a', 'b']],
  ['each key once', ['b', 'a', 'b'], ['a', 'b']],
  ['a key with braces inside unchanged', 'a{b}c', ['a{b}c']],
])('`keysOf` returns %s', (_what, key, keys) => {
  expect(keysOf(key)).toEqual(keys);
});

test.each([[''], [[]], [['a', '']], [['a', 7]], [undefined], [null], [7], ['}a']])(
  '`keysOf` refuses the key %p',
  (key) => {
    expect(() => keysOf(key as never)).toThrow(TypeError);
    expect(() => keysOf(key as never)).toThrow(
      /^Expected `key` to be a string that is not empty and does not begin with "}", or an array of such strings, got /,
    );
  },
);
