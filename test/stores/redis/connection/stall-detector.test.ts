import { EventEmitter } from 'node:events';
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { StallDetector } from '../../../../lib/stores/redis/connection/stall-detector.js';

let ended: number;
let client: EventEmitter;
let silence: StallDetector;

beforeEach(() => {
  jest.useFakeTimers();
  ended = 0;
  client = Object.assign(new EventEmitter(), { stream: { destroy: () => ended++ } });
  silence = new StallDetector(client as unknown as Redis, true);
});
afterEach(() => {
  jest.useRealTimers();
});

test('a StallDetector ends a connection that has not answered for five seconds', () => {
  silence.asked();
  jest.advanceTimersByTime(4_990);
  expect(ended).toBe(0);
  jest.advanceTimersByTime(20);
  expect(ended).toBe(1);
});

test('a StallDetector counts from the oldest command that has no answer yet', () => {
  silence.asked();
  jest.advanceTimersByTime(4_000);
  silence.answered();
  silence.asked();
  jest.advanceTimersByTime(4_990);
  expect(ended).toBe(0);
  jest.advanceTimersByTime(20);
  expect(ended).toBe(1);
});

test('a StallDetector does not extend the time of the first command when another command follows', () => {
  silence.asked();
  jest.advanceTimersByTime(4_000);
  silence.asked();
  jest.advanceTimersByTime(1_010);
  expect(ended).toBe(1);
});

test('a StallDetector ignores an idle connection, and leaves no timer for it', () => {
  silence.asked();
  silence.answered();
  jest.advanceTimersByTime(60_000);
  expect(ended).toBe(0);
  expect(jest.getTimerCount()).toBe(0);
});

test('a closed StallDetector leaves no timer, although commands have no answer', () => {
  const borrowed = new StallDetector(client as unknown as Redis, false);
  for (let command = 0; command < 3; command++) borrowed.asked();
  borrowed.close();
  expect(jest.getTimerCount()).toBe(0);
  borrowed.answered();
  borrowed.asked();
  expect(jest.getTimerCount()).toBe(0);
});

test('a StallDetector ends a connection whose handshake hangs, but not a closed connection', () => {
  client.emit('connect');
  client.emit('close');
  jest.advanceTimersByTime(10_000);
  expect(ended).toBe(0);
  client.emit('connect');
  jest.advanceTimersByTime(5_010);
  expect(ended).toBe(1);
});

test('a StallDetector reports silence after a second without an answer, until an answer arrives', () => {
  silence.asked();
  silence.asked();
  jest.advanceTimersByTime(990);
  expect(silence.isSilent).toBe(false);
  jest.advanceTimersByTime(20);
  expect(silence.isSilent).toBe(true);
  silence.answered();
  expect(silence.isSilent).toBe(false);
  // The connection is checked once a second.
  jest.advanceTimersByTime(2_010);
  expect(silence.isSilent).toBe(true);
});

test('a StallDetector reports silence after one of two commands has failed, but not after both commands have failed', () => {
  silence.asked();
  silence.asked();
  jest.advanceTimersByTime(1_010);
  silence.failed();
  expect(silence.isSilent).toBe(true);
  silence.failed();
  expect(silence.isSilent).toBe(false);
});

test('a StallDetector ends a dead connection even if its commands time out in the client', () => {
  for (let second = 0; second < 5; second++) {
    silence.asked();
    jest.advanceTimersByTime(500);
    silence.failed();
    jest.advanceTimersByTime(510);
  }
  expect(ended).toBe(1);
});

test('a StallDetector reports no silence if an answer arrived while the thread was blocked, but is read only after the timer has fired', () => {
  silence.asked();
  // The timer is late: the event loop runs timers before it reads sockets.
  jest.advanceTimersByTime(1_000);
  jest.runOnlyPendingTimers();
  silence.answered();
  jest.runOnlyPendingTimers();
  expect(silence.isSilent).toBe(false);
});

test('a StallDetector never ends the connection of a passed-in client', () => {
  const borrowed = new StallDetector(client as unknown as Redis, false);
  borrowed.asked();
  const timers = jest.spyOn(globalThis, 'setTimeout');
  jest.advanceTimersByTime(60_000);
  expect(timers.mock.calls.length).toBeLessThan(100);
  expect(borrowed.isSilent).toBe(true);
  expect(ended).toBe(0);
  expect(client.eventNames()).toEqual(['connect', 'ready', 'close']);
  expect(client.listenerCount('ready')).toBe(1);
});

test.each([
  ['one server, after one unanswered command', false, 1],
  ['a Cluster, after 1,001 unanswered commands', true, 1_001],
])('a StallDetector reports silence of %s', (_what, isCluster, enough) => {
  silence = new StallDetector(Object.assign(client, { isCluster }) as unknown as Redis, false);
  for (let asked = 1; asked < enough; asked++) silence.asked();
  jest.advanceTimersByTime(1_010);
  expect(silence.isSilent).toBe(false);
  silence.asked();
  jest.advanceTimersByTime(1_010);
  expect(silence.isSilent).toBe(true);
  silence.answered();
  expect(silence.isSilent).toBe(false);
});
