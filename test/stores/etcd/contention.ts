import type { Contention } from '../../faults/contend.js';

/** Smallest number of acquisitions for a meaningful test. It is low: holds may be long, and servers are paused half of the time. */
export const LEAST = 2;

/** The shortest ttl of a lock on etcd, in milliseconds. */
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
 * Terms of a contention on etcd.
 *
 * @param duration - milliseconds
 */
export function contentionFor(duration: number): Contention {
  return {
    duration,
    ttl: TTL,
    timeout: 1_500,
    budget: BUDGET,
    hold: () => (Math.random() < 0.05 ? 2 * TTL : Math.random() * 60),
    // Locks with renewal share an etcd lease, and each lock without renewal has its own: use both kinds.
    renews: (attempt) => attempt % 3 !== 0,
  };
}
