import type { Contention } from '../../faults/contend.js';

/**
 * Smallest number of acquisitions for a meaningful test: with it, one of the two keys has had three holders. It is low in
 * the short runs: holds may be long, and servers are down for half of the time.
 */
export const LEAST = process.env['FAULTS'] === 'long' ? 20 : 4;

const TTL = 2_000;

/**
 * Milliseconds in which a call must settle (rule J6 of docs/fault-tests.md). The short runs get more time, because other
 * tests on the same machine delay them.
 */
const BUDGET =
  process.env['FAULTS'] === 'long'
    ? { acquire: 2_000, release: 1_500 }
    : { acquire: 10_000, release: 10_000 };

/**
 * Terms of a contention on ZooKeeper.
 *
 * @param duration - milliseconds
 */
export function contentionFor(duration: number): Contention {
  return {
    duration,
    ttl: TTL,
    timeout: 1_500,
    budget: BUDGET,
    // One hold of twenty is longer than the ttl: the lock is renewed, or another process takes it over.
    hold: () => (Math.random() < 0.05 ? 2 * TTL : Math.random() * 60),
    renews: (attempt) => attempt % 3 !== 0,
  };
}
