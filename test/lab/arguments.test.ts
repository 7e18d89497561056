import { expect, test } from '@jest/globals';
import { readArguments } from '../../lab/arguments.js';

const numbers = (...args: string[]): number[] => readArguments(args).scenarios.map(({ number }) => number);

test('the lab runs all scenarios if its arguments name none', () => {
  expect(numbers()).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
});

test('the lab runs the given scenarios in the given order', () => {
  expect(numbers('8', '5')).toEqual([8, 5]);
});

test.each(['0', '99', 'five', '5.5', '', '-1'])(
  'the lab refuses the scenario "%s", and lists the scenarios',
  (given) => {
    expect(() => numbers(given)).toThrow(/There is no scenario|option/);
    expect(() => numbers(given)).toThrow(/ 1 {2}No lock/);
  },
);

test('the lab refuses an unknown option, and lists the scenarios', () => {
  expect(() => numbers('--opne')).toThrow(/--opne[^]* 1 {2}No lock/);
});

test('the lab runs no scenario if `--open` is the only argument', () => {
  expect(numbers('--open')).toEqual([]);
  expect(numbers('--open', '5')).toEqual([5]);
});

test.each(['x', '-1', '70000', '1.5'])('the lab refuses --port=%s', (port) => {
  expect(() => readArguments([`--port=${port}`])).toThrow(/--port must be a whole number up to 65535/);
});

test('the lab refuses `--store` without `--open`, and refuses an unknown store', () => {
  expect(readArguments(['--open', '--store', 'postgres']).store).toBe('postgres');
  expect(readArguments(['--open']).store).toBeUndefined();
  expect(() => readArguments(['--store', 'postgres'])).toThrow(/--store is for the playground.*add --open/);
  expect(() => readArguments(['--open', '--store', 'oracle'])).toThrow(
    /--store must be one of redis, postgres, mysql, etcd, zookeeper, not "oracle"/,
  );
});
