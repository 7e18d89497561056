import { expect, test } from '@jest/globals';
import { printable, printableJson, printableText, quoted, shortened } from '../../lib/core/printable.js';

/** Texts that differ, but look the same, or nearly the same, when they are printed as they are. */
const LOOKALIKES = [
  'spoof:1',
  'spoof:\u001b[0m1',
  'spoof:\u009b31m1',
  'spoof:\u009d0;title\u00071',
  'spoof:\u007f1',
  'spoof:\u00001',
  'spoof:\r1',
  'spoof:\u200b1',
  'spoof:\u200d1',
  'spoof:\ufeff1',
  'spoof:\u00ad1',
  'spoof:\u202e1',
  'spoof:\u2066\u20691',
  'spoof:\u200e1',
  'spoof:\ud8001',
  'spoof:\udc001',
  'spoof:\u31641',
  'spoof:\ufe0f1',
  'spoof:\u{e0041}1',
  'spoof:\u{e0100}1',
  'spoof:1 ',
  ' spoof:1',
  'spoof: 1',
  'spoof:  1',
  'spoof:\u00a01',
  'spoof:\u20031',
  'spoof:\u28001',
  'spoof:\\u200b1',
  'spoof:\\\u200b1',
  'spoof:\\\\u200b1',
  'spoof:\u20281',
];

/** Everything that must not reach a terminal or a log as it is. */
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029\u00a0\u3164]|\p{VS}/u;

test('printable() makes names that differ look different, and prints no invisible character', () => {
  const shown = LOOKALIKES.map(printable);
  expect(new Set(shown).size).toBe(LOOKALIKES.length);
  for (const text of shown) expect(text).not.toMatch(HIDDEN);
});

test.each([
  ['plain:1', 'plain:1'],
  ['', ''],
  ['two words', 'two words'],
  ['日本語 🔑 ключ', '日本語 🔑 ключ'],
  ['caf\u00e9', 'caf\u00e9'],
  ['cafe\u0301', 'cafe\\u0301'],
  ['\u0301abc', '\\u0301abc'],
  ['a\nb', 'a\\u000ab'],
  ['a\\b', 'a\\\\b'],
  ['a  b ', 'a\\u0020 b\\u0020'],
  ['\ud83d', '\\ud83d'],
  ['\u{e0041}', '\\u{e0041}'],
])('printable(%j) is %j', (name, shown) => {
  expect(printable(name)).toBe(shown);
});

test('printableText() leaves names that are already printable as they are', () => {
  const sentence = `Could not lock "${printable('a\u200b\\b')}":  no answer`;
  expect(printableText(sentence)).toBe(sentence);
  expect(printableText('a\u009b31m\nb\u202e')).toBe('a\\u009b31m\\u000ab\\u202e');
});

test('printableJson() prints no invisible character, and changes no value', () => {
  const json = printableJson(JSON.stringify(LOOKALIKES));
  expect(json).not.toMatch(HIDDEN);
  expect(JSON.parse(json)).toEqual(LOOKALIKES);
});

test('quoted() shortens long keys and long lists', () => {
  expect(quoted(['a', 'b"c'])).toBe('"a", "b\\"c"');
  expect(quoted(Array.from({ length: 70 }, (_, index) => `k${index}`))).toBe(
    '"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", and 62 more',
  );
  const long = quoted([`begin${'\u0000'.repeat(60_000_000)}end`]);
  expect(long).toMatch(/^"begin.*\u2026.*end"$/);
  expect(long.length).toBeLessThan(1_000);
});

test('shortened() splits no character in two', () => {
  expect(shortened('🔑'.repeat(9), 5)).toBe('🔑\u2026🔑');
  expect(shortened('abcdef', 6)).toBe('abcdef');
});
