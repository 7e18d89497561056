import type { Contention } from '../../faults/contend.js';

/** With fewer acquisitions nothing was tested: both keys may be held for long, and the servers stand still for half of the time. */
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
    // Both kinds of what a lock ends with.
    renews: (attempt) => attempt % 3 !== 0,
  };
}
