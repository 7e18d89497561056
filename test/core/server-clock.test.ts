import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { ServerClock } from '../../lib/core/server-clock.js';

const EPOCH = 1_700_000_000_000;
let clock: ServerClock;

beforeEach(() => {
  jest.useFakeTimers();
  clock = new ServerClock();
});
afterEach(() => {
  jest.useRealTimers();
});

/**
 * Gives the clock a reply that left the server `travel` ms ago. `difference` is the server's time minus
 * `performance.now()`, in milliseconds.
 */
function reply(travel: number, difference = EPOCH): void {
  clock.learn(performance.now() - travel + difference);
}

function serverTime(difference = EPOCH): number {
  return performance.now() + difference;
}

test('ServerClock has no time before the first reply or after a reset', () => {
  expect(clock.now()).toBeUndefined();
  reply(0);
  clock.forget();
  expect(clock.now()).toBeUndefined();
});

test('ServerClock advances with the local clock after a reply', () => {
  reply(0);
  jest.advanceTimersByTime(1_234);
  expect(clock.now()).toBeCloseTo(serverTime(), 1);
});

test('ServerClock trusts the quickest reply, and is never ahead of the server', () => {
  for (const travel of [40, 3, 200, 25]) reply(travel);
  expect(clock.now()).toBeCloseTo(serverTime() - 3, 1);
  jest.advanceTimersByTime(20_000);
  reply(90);
  expect(clock.now()).toBeCloseTo(serverTime() - 3, 1);
});

test("ServerClock follows at once when the server's clock is set forward", () => {
  reply(1);
  reply(1, EPOCH + 60_000);
  expect(clock.now()).toBeCloseTo(serverTime(EPOCH + 60_000) - 1, 1);
});

test("ServerClock follows within about a minute when the server's clock is set back", () => {
  reply(1);
  for (let second = 0; second <= 61; second++) {
    reply(1, EPOCH - 60_000);
    jest.advanceTimersByTime(1_000);
  }
  reply(1, EPOCH - 60_000);
  expect(clock.now()).toBeCloseTo(serverTime(EPOCH - 60_000) - 1, 1);
});
