import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Lease } from '../../../lib/core/lease.js';
import type { RedisNode } from '../../../lib/stores/redis/redis-node.js';
import { SecondReleases } from '../../../lib/stores/redis/second-releases.js';

// late-acquire.test.ts shows the same rule on real servers.

const TTL = 30_000;

/** Milliseconds that the clock of the node is ahead of the clock of this process. */
const AHEAD = 1_000_000;

let canSend: boolean;
let isClockKnown: boolean;
let isConfirmed: boolean;
let released: Lease[];
let second: SecondReleases;

const time = (): number => performance.now() + AHEAD;

beforeEach(() => {
  jest.useFakeTimers();
  canSend = isClockKnown = isConfirmed = true;
  released = [];
  const node = {
    channel: {
      get canSend() {
        return canSend;
      },
    },
    probe: { clock: { now: () => (isClockKnown ? time() : undefined) } },
  } as unknown as RedisNode;
  second = new SecondReleases(node, async (lease) => {
    released.push(lease);
    return isConfirmed;
  });
});
afterEach(() => {
  second.close();
  jest.useRealTimers();
});

function leaseThatEnded(): Lease {
  const lease = new Lease(['k'], 'me', TTL);
  lease.ended = true;
  return lease;
}

const pass = (ms: number): Promise<void> => jest.advanceTimersByTimeAsync(ms);

describe('SecondReleases', () => {
  test('releases an ended lease once, after its deadline, and leaves no timer', async () => {
    const lease = leaseThatEnded();
    second.mayComeLater(lease, time() + 1_000);
    await pass(1_000);
    expect(released).toEqual([]);
    await pass(300);
    expect(released).toEqual([lease]);
    expect(jest.getTimerCount()).toBe(0);
  });

  test('waits for the later deadline if two acquisitions of a lease got no answer', async () => {
    const lease = leaseThatEnded();
    second.mayComeLater(lease, time() + 3_000);
    second.mayComeLater(lease, time() + 1_000);
    await pass(3_000);
    expect(released).toEqual([]);
    await pass(300);
    expect(released).toEqual([lease]);
  });

  test('does not release a lease that is held after the deadline', async () => {
    second.mayComeLater(new Lease(['k'], 'me', TTL), time() + 1_000);
    await pass(2 * TTL);
    expect(released).toEqual([]);
    expect(jest.getTimerCount()).toBe(0);
  });

  test('waits for a connection whose clock is known', async () => {
    canSend = false;
    const lease = leaseThatEnded();
    second.mayComeLater(lease, time() + 1_000);
    await pass(2_000);
    canSend = true;
    isClockKnown = false;
    await pass(2_000);
    expect(released).toEqual([]);
    isClockKnown = true;
    await pass(200);
    expect(released).toEqual([lease]);
  });

  test('sends a release again until the node has confirmed it', async () => {
    isConfirmed = false;
    const lease = leaseThatEnded();
    second.mayComeLater(lease, time() + 1_000);
    await pass(1_300);
    expect(released).toEqual([lease]);
    isConfirmed = true;
    await pass(1_000);
    expect(released).toEqual([lease, lease]);
    expect(jest.getTimerCount()).toBe(0);
  });

  test('forgets a lease when the node has been away for longer than a late acquisition could last', async () => {
    canSend = false;
    second.mayComeLater(leaseThatEnded(), time() + 1_000);
    await pass(TTL + 11_000);
    expect(jest.getTimerCount()).toBe(0);
  });

  test('keeps at most 10,000 leases', async () => {
    for (let count = 0; count < 10_050; count++) second.mayComeLater(leaseThatEnded(), time() + 1_000);
    await pass(1_300);
    expect(released).toHaveLength(10_000);
  });

  test('sends nothing and keeps no timer after `close`', async () => {
    second.mayComeLater(leaseThatEnded(), time() + 1_000);
    second.close();
    second.mayComeLater(leaseThatEnded(), time() + 1_000);
    expect(jest.getTimerCount()).toBe(0);
    await pass(2_000);
    expect(released).toEqual([]);
  });
});
