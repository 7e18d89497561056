import { expect, test } from '@jest/globals';
import { keysOf, type LockKey, oneKey } from '../../lib/core/keys.js';

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

test('a key has at most 2,000 bytes in UTF-8, and the error shortens a longer key', () => {
  const longest = ['x'.repeat(2_000), '\u00e9'.repeat(1_000), '\u4e2d'.repeat(666), '\u{1F511}'.repeat(500)];
  for (const key of longest) {
    expect(keysOf(key)).toEqual([key]);
    expect(oneKey(key)).toBe(key);
    for (const refused of [`${key}yyy`, ['a', `${key}yyy`]])
      expect(() => keysOf(refused)).toThrow(
        /^Expected `key` to be at most 2000 bytes long in UTF-8, got 200\d bytes: /,
      );
    expect(() => oneKey(`${key}yyy`)).toThrow(RangeError);
  }
  const huge = caught(() => keysOf('x'.repeat(60_000_000)));
  expect(huge).toBeInstanceOf(RangeError);
  expect(huge.message).toMatch(/got 60000000 bytes: "x+\u2026x+"\. Lock a hash of a long value/);
  expect(huge.message.length).toBeLessThan(300);
  const notAKey = caught(() => keysOf(['', 'y'.repeat(1_000_000)]));
  expect(notAKey.message.length).toBeLessThan(500);
});

function caught(act: () => unknown): Error {
  try {
    act();
  } catch (error) {
    return error as Error;
  }
  throw new Error('nothing was thrown');
}
