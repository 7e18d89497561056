import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { Beats, BlockedTime } from '../../../lib/redlock/thread/liveness.js';

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.useRealTimers();
});

test('a thread without a sign of life is blocked since the last look at which there was one', () => {
  const beats = new Beats();
  const blocked = new BlockedTime(beats);
  jest.advanceTimersByTime(250);
  beats.add();
  expect(blocked.look()).toBe(0);
  jest.advanceTimersByTime(250);
  expect(blocked.look()).toBe(250);
  jest.advanceTimersByTime(250);
  expect(blocked.look()).toBe(500);
  beats.add();
  expect(blocked.look()).toBe(0);
});

test('the blocked time is counted in full if the thread that measures it seldom runs', () => {
  const blocked = new BlockedTime(new Beats());
  jest.advanceTimersByTime(4_000);
  expect(blocked.look()).toBe(4_000);
});

test('signs of life are seen by another instance over the same memory', () => {
  const beats = new Beats();
  const other = new Beats(beats.memory);
  const blocked = new BlockedTime(other);
  jest.advanceTimersByTime(1_000);
  beats.add();
  expect(blocked.look()).toBe(0);
});
