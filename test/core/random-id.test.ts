import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';

// Every request for random bytes gets the same bytes, as in processes that were restored from one snapshot.
jest.unstable_mockModule('node:crypto', () => ({
  randomFillSync: (bytes: Uint8Array) => bytes.fill(0xa5),
}));
const { momentNumber, randomId } = await import('../../lib/core/random-id.js');

let monotonic = 1_000;
let wall = 0;
beforeEach(() => {
  wall = Date.now();
  jest.spyOn(performance, 'now').mockImplementation(() => monotonic);
  jest.spyOn(Date, 'now').mockImplementation(() => wall);
});
afterEach(() => void jest.restoreAllMocks());

test('an id differs from the id of a clone as soon as one of the clocks differs', () => {
  const id = randomId({ monotonic, wall });
  expect(randomId({ monotonic, wall })).toBe(id);
  const others = [randomId({ monotonic: monotonic + 1e-6, wall }), randomId({ monotonic, wall: wall + 1 })];
  expect(new Set([id, ...others]).size).toBe(3);
});

test('the number of a waiter differs from the number of a clone as soon as one of the clocks differs', () => {
  const number = momentNumber(0);
  expect(momentNumber(0)).toBe(number);
  monotonic += 0.001;
  const afterOneMicrosecond = momentNumber(0);
  monotonic -= 0.001;
  wall++;
  expect(new Set([number, afterOneMicrosecond, momentNumber(0)]).size).toBe(3);
});

test('the numbers of waiters increase, also when the wall clock is set back', () => {
  const number = momentNumber(0);
  expect(momentNumber(number)).toBe(number + 1);
  wall -= 86_400_000;
  expect(momentNumber(number)).toBe(number + 1);
  wall += 11 * 366 * 86_400_000;
  expect(momentNumber(number)).toBeGreaterThan(number);
  expect(Number.isSafeInteger(momentNumber(number))).toBe(true);
});
