import { expect, test } from '@jest/globals';
import { proposedToken, tokenAt } from '../../lib/core/fencing-token.js';

test('tokens follow the clock, grow by 2^20 each second, and stay below 2^53 until the year 2242', () => {
  expect(tokenAt(1_000)).toBe(1_048_576);
  expect(tokenAt(1_500)).toBe(1_572_864);
  expect(tokenAt(Date.UTC(2242, 0))).toBeLessThan(Number.MAX_SAFE_INTEGER);
});

test('the proposed token belongs to the time 50 ms after the latest clock of all nodes', () => {
  expect(proposedToken(12_000)).toBe(tokenAt(12_050));
});
