import type { Contention } from '../../faults/contend.js';

/** Smallest number of acquisitions for a meaningful test. It is low: holds may be long, and servers are paused half of the time. */
export const LEAST = 5;

/** The shortest that etcd keeps, in milliseconds. */
const TTL = 2_000;

/** @param duration - milliseconds */
export function contentionFor(duration: number): Contention {
  return {
    duration,
    ttl: TTL,
    timeout: 1_500,
    budget: { acquire: 2_000, release: 1_500 },
    hold: () => (Math.random() < 0.05 ? 2 * TTL : Math.random() * 60),
    // Use both kinds of etcd lease: with and without renewal.
    renews: (attempt) => attempt % 3 !== 0,
  };
}
