import { afterEach, expect, jest, test } from '@jest/globals';
import { counterAt, seedFor, tokenOf } from '../../lib/core/fencing-token.js';

afterEach(() => {
  jest.useRealTimers();
});

test('counters follow the clock, 2^20 steps a second, and stay below 2^53 until about the year 2242', () => {
  expect(counterAt(1_000)).toBe(1_048_576);
  expect(counterAt(1_500)).toBe(1_572_864);
  expect(counterAt(Date.UTC(2242, 0))).toBeLessThan(Number.MAX_SAFE_INTEGER);
});

test('new counters start a little ahead of the latest clock that is known', () => {
  expect(seedFor([10_000, undefined, 12_000])).toBe(counterAt(12_050));
});

test('new counters start by our own clock when no other is known', () => {
  jest.useFakeTimers({ now: 20_000 });
  expect(seedFor([undefined])).toBe(counterAt(20_050));
});

test.each([
  [[5, 5, 5], 5, 3],
  [[5, 6, 6], 6, 2],
  [[7, 5, 6], 7, 1],
])('of the counters %j the token is %d, and %d agree', (counters, token, agreeing) => {
  expect(tokenOf(counters)).toEqual({ token, agreeing });
});
