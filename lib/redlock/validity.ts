/** Clock-rate allowance of the Redis documentation's algorithm: 1 % of the ttl. */
export const DEFAULT_DRIFT_FACTOR = 0.01;

/** Added to the drift for the millisecond granularity of Redis expiry on short ttls (Redis documentation, "Distributed locks"). */
const EXPIRY_GRANULARITY_MS = 2;

/**
 * The usable part of a ttl in milliseconds, counted from the first send (S2, S4): the ttl less the possible drift
 * between two clocks during it.
 */
export function usableTtl(ttl: number, driftFactor: number): number {
  return ttl - (ttl * driftFactor + EXPIRY_GRANULARITY_MS);
}

/**
 * The time limit for the answer of one node, in milliseconds: 5 % of the ttl and at least 50, unless configured. Never
 * more than a fifth of the ttl, whatever is configured, so that a hung node cannot use up the lease (S3).
 */
export function nodeTimeLimit(ttl: number, configured: number | undefined): number {
  return Math.min(configured ?? Math.max(ttl * 0.05, 50), ttl * 0.2);
}
