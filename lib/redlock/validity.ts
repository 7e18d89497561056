/** Clock-rate allowance of the Redis documentation's algorithm: 1 % of the ttl. */
export const DEFAULT_DRIFT_FACTOR = 0.01;

/** Added to the drift for the millisecond granularity of Redis expiry on short ttls (Redis documentation, "Distributed locks"). */
const EXPIRY_GRANULARITY_MS = 2;

/**
 * How much of a ttl may be relied upon, in milliseconds, counted from the first send (S2, S4):
 * the ttl less what two clocks may drift apart while it runs.
 */
export function usableTtl(ttl: number, driftFactor: number): number {
  return ttl - (ttl * driftFactor + EXPIRY_GRANULARITY_MS);
}

/**
 * How long one node may take to answer, in milliseconds: 5 % of the ttl and at least 50, unless configured.
 * Never more than a fifth of the ttl, whatever is configured, so that a hung node cannot use up the lease (S3).
 */
export function nodeTimeLimit(ttl: number, configured: number | undefined): number {
  return Math.min(configured ?? Math.max(ttl * 0.05, 50), ttl * 0.2);
}
