import { AsyncLocalStorage } from 'node:async_hooks';
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { Lease } from '../../lib/core/lease.js';
import { PendingReleases, RELEASE_AGAIN_MS } from '../../lib/core/pending-releases.js';

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.restoreAllMocks();
  jest.useRealTimers();
});

function leaseOf(key: string): Lease {
  return new Lease([key], 'me', 1_000);
}

test('all pending releases are sent again together, some time after the first failure', () => {
  const sendAgain = jest.fn();
  const pending = new PendingReleases<number>(sendAgain);
  pending.set(leaseOf('a'), 1).later();
  jest.advanceTimersByTime(RELEASE_AGAIN_MS - 1);
  pending.set(leaseOf('b'), 2).later();
  expect(sendAgain).not.toHaveBeenCalled();
  jest.advanceTimersByTime(1);
  expect(sendAgain).toHaveBeenCalledTimes(1);
  expect(jest.getTimerCount()).toBe(0);
  pending.later();
  jest.advanceTimersByTime(RELEASE_AGAIN_MS);
  expect(sendAgain).toHaveBeenCalledTimes(2);
});

test('nothing is planned without a pending release', () => {
  new PendingReleases(() => undefined).later();
  expect(jest.getTimerCount()).toBe(0);
});

test('a release that fails after the store was closed is not sent again', () => {
  const sendAgain = jest.fn();
  const pending = new PendingReleases<number>(sendAgain);
  pending.set(leaseOf('a'), 1).later();
  pending.close();
  expect(pending.size).toBe(0);
  pending.set(leaseOf('b'), 2).later();
  jest.advanceTimersByTime(10 * RELEASE_AGAIN_MS);
  expect(sendAgain).not.toHaveBeenCalled();
});

test('the oldest releases are dropped beyond the largest number', () => {
  const pending = new PendingReleases<string>(() => undefined, 2);
  for (const key of ['a', 'b', 'c']) pending.set(leaseOf(key), key);
  expect([...pending.values()]).toEqual(['b', 'c']);
});

test('the timer runs in the context of no caller (S30)', () => {
  const caller = new AsyncLocalStorage<string>();
  const contexts: (string | undefined)[] = [];
  const { setTimeout } = globalThis;
  jest.spyOn(globalThis, 'setTimeout').mockImplementation(((...args: Parameters<typeof setTimeout>) => {
    contexts.push(caller.getStore());
    return setTimeout(...args);
  }) as typeof setTimeout);
  const pending = new PendingReleases<number>(() => undefined);
  caller.run('a caller', () => pending.set(leaseOf('a'), 1).later());
  expect(contexts).toEqual([undefined]);
});
