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

test('ends a connection that has not answered for five seconds', () => {
  silence.asked();
  jest.advanceTimersByTime(4_990);
  expect(ended).toBe(0);
  jest.advanceTimersByTime(20);
  expect(ended).toBe(1);
});

test('counts from the oldest unanswered command, not from an earlier one', () => {
  silence.asked();
  jest.advanceTimersByTime(4_000);
  silence.answered();
  silence.asked();
  jest.advanceTimersByTime(4_990);
  expect(ended).toBe(0);
  jest.advanceTimersByTime(20);
  expect(ended).toBe(1);
});

test('gives the first command no more time when a later one follows', () => {
  silence.asked();
  jest.advanceTimersByTime(4_000);
  silence.asked();
  jest.advanceTimersByTime(1_010);
  expect(ended).toBe(1);
});

test('ignores an idle connection, and leaves no timer for it', () => {
  silence.asked();
  silence.answered();
  jest.advanceTimersByTime(60_000);
  expect(ended).toBe(0);
  expect(jest.getTimerCount()).toBe(0);
});

test('ends a connection whose handshake hangs, but not one that has closed', () => {
  client.emit('connect');
  client.emit('close');
  jest.advanceTimersByTime(10_000);
  expect(ended).toBe(0);
  client.emit('connect');
  jest.advanceTimersByTime(5_010);
  expect(ended).toBe(1);
});

test('reports that there has been no answer for a second, until one arrives', () => {
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

test('counts no failed command as an answer, and no connection without commands as silent', () => {
  silence.asked();
  silence.asked();
  jest.advanceTimersByTime(1_010);
  silence.failed();
  expect(silence.isSilent).toBe(true);
  silence.failed();
  expect(silence.isSilent).toBe(false);
});

test('ends a dead connection though its commands time out in the client', () => {
  for (let second = 0; second < 5; second++) {
    silence.asked();
    jest.advanceTimersByTime(500);
    silence.failed();
    jest.advanceTimersByTime(510);
  }
  expect(ended).toBe(1);
});

test('reads a pending answer first after the thread was blocked', () => {
  silence.asked();
  // The timer is late: the loop runs timers before it reads sockets.
  jest.advanceTimersByTime(1_000);
  jest.runOnlyPendingTimers();
  silence.answered();
  jest.runOnlyPendingTimers();
  expect(silence.isSilent).toBe(false);
});

test('does not end connections of other clients, however long they are silent', () => {
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
  ['a server', false, 1],
  ['a Cluster, of whose masters only some may be silent,', true, 1_001],
])(
  'counts %s as silent when enough of its connections have not answered for a second',
  (_what, isCluster, enough) => {
    silence = new StallDetector(Object.assign(client, { isCluster }) as unknown as Redis, false);
    for (let asked = 1; asked < enough; asked++) silence.asked();
    jest.advanceTimersByTime(1_010);
    expect(silence.isSilent).toBe(false);
    silence.asked();
    jest.advanceTimersByTime(1_010);
    expect(silence.isSilent).toBe(true);
    silence.answered();
    expect(silence.isSilent).toBe(false);
  },
);
