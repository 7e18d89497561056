import { expect, test } from '@jest/globals';
import { readArguments } from '../../lab/arguments.js';

const numbers = (...args: string[]): number[] => readArguments(args).scenarios.map(({ number }) => number);

test('without a number, all scenarios', () => {
  expect(numbers()).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
});

test('with numbers, these, in this order', () => {
  expect(numbers('8', '5')).toEqual([8, 5]);
});

test.each(['0', '99', 'five', '5.5', '', '-1'])('"%s" is refused with what there is', (given) => {
  expect(() => numbers(given)).toThrow(/There is no scenario|option/);
  expect(() => numbers(given)).toThrow(/ 1 {2}No lock/);
});

test('an unknown option is refused with what there is', () => {
  expect(() => numbers('--opne')).toThrow(/--opne[^]* 1 {2}No lock/);
});

test('--open alone starts no scenario: that is done on the page', () => {
  expect(numbers('--open')).toEqual([]);
  expect(numbers('--open', '5')).toEqual([5]);
});

test.each(['x', '-1', '70000', '1.5'])('--port=%s is refused', (port) => {
  expect(() => readArguments([`--port=${port}`])).toThrow(/--port must be a whole number up to 65535/);
});

test('--store is for the page, and is refused without it or with what there is not', () => {
  expect(readArguments(['--open', '--store', 'postgres']).store).toBe('postgres');
  expect(readArguments(['--open']).store).toBeUndefined();
  expect(() => readArguments(['--store', 'postgres'])).toThrow(/--store is for the playground.*add --open/);
  expect(() => readArguments(['--open', '--store', 'mysql'])).toThrow(
    /--store must be one of redis, postgres, etcd, not "mysql"/,
  );
});
