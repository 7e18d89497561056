import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { elapsedSince, now } from '../../lib/core/clock.js';

let monotonic = 1_000;
let wall = 1_700_000_000_000;

beforeEach(() => {
  jest.spyOn(performance, 'now').mockImplementation(() => monotonic);
  jest.spyOn(Date, 'now').mockImplementation(() => wall);
});
afterEach(() => {
  jest.restoreAllMocks();
});

test.each([
  ['both clocks run', 250, 250, 250],
  ['the machine is suspended, which stops the monotonic clock', 10, 60_000, 60_000],
  ['the wall clock is set back', 250, -3_600_000, 250],
  ['the wall clock is set forward', 250, 3_600_000, 3_600_000],
])(
  '`elapsedSince` returns the larger of the elapsed times of the two clocks when %s (S11)',
  (_case, ticks, steps, elapsed) => {
    const start = now();
    monotonic += ticks;
    wall += steps;
    expect(elapsedSince(start)).toBe(elapsed);
  },
);
