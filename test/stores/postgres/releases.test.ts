import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Lease } from '../../../lib/core/lease.js';
import { Releases } from '../../../lib/stores/database/releases.js';

/** The releases that were sent: `first` stores the tick of the lease, `second` does not. */
let sent: ('first' | 'second')[];
let isAnswered: boolean;
let releases: Releases;

beforeEach(() => {
  jest.useFakeTimers();
  sent = [];
  isAnswered = true;
  releases = new Releases((lease, isSecond) => {
    sent.push(isSecond ? 'second' : 'first');
    if (isAnswered) releases.released(lease);
  });
});
afterEach(() => {
  releases.close();
  jest.useRealTimers();
});

const pass = (ms: number): Promise<void> => jest.advanceTimersByTimeAsync(ms);

function endedLease(ttl: number): Lease {
  const lease = new Lease(['k'], 'me', ttl);
  lease.ended = true;
  return lease;
}

test('no release is sent after `close`, also when a request fails or gets no answer then', async () => {
  const [failing, unanswered] = [endedLease(30_000), endedLease(30_000)];
  releases.close();
  releases.failed(failing);
  releases.mayComeLater(unanswered, 1_000);
  expect(jest.getTimerCount()).toBe(0);
  await pass(10_000);
  expect(sent).toEqual([]);
});

describe('the releases of a lease whose acquisition got no answer (S27)', () => {
  test('are repeated without the tick after the first was confirmed, until the deadline has passed', async () => {
    const lease = endedLease(30_000);
    releases.mayComeLater(lease, 1_000);
    releases.released(lease);
    await pass(10_000);
    expect(sent.length).toBeGreaterThan(1);
    expect(new Set(sent)).toEqual(new Set(['second']));
    expect(jest.getTimerCount()).toBe(0);
  });

  test('store the tick until the first is confirmed', async () => {
    releases.mayComeLater(endedLease(30_000), 1_000);
    isAnswered = false;
    await pass(600);
    isAnswered = true;
    await pass(10_000);
    expect(sent.slice(0, 2)).toEqual(['first', 'first']);
    expect(sent.at(-1)).toBe('second');
  });

  test('are sent after the deadline even if the ttl is shorter', async () => {
    const lease = endedLease(100);
    releases.mayComeLater(lease, 1_000);
    isAnswered = false;
    await pass(1_400);
    const before = sent.length;
    isAnswered = true;
    await pass(1_000);
    expect(sent.length).toBeGreaterThan(before);
    expect(jest.getTimerCount()).toBe(0);
  });
});
