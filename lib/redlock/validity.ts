/**
 * Allowance for clocks that do not run at the same rate, from the algorithm of the Redis documentation: 1 % of the ttl.
 */
export const DEFAULT_DRIFT_FACTOR = 0.01;

/**
 * Milliseconds that are added to the drift, because the expiry of Redis is exact only to about a millisecond (Redis
 * documentation, "Distributed locks").
 */
const EXPIRY_GRANULARITY_MS = 2;

/**
 * The usable part of a ttl in milliseconds, counted from the first request (S2, S4): the ttl minus the largest drift
 * between two clocks during the ttl.
 */
export function usableTtl(ttl: number, driftFactor: number): number {
  return ttl - (ttl * driftFactor + EXPIRY_GRANULARITY_MS);
}

/** Default time limit in milliseconds for the first answer of an idle node, which may need a new connection. */
const IDLE_NODE_MS = 1_000;

/**
 * The time limit for the answer of one node, in milliseconds: the configured value, or else 5 % of the ttl, but at
 * least 50; for an idle node at least a second. It is never more than a fifth of the ttl, so that a node that does not
 * answer cannot use up the validity of the lock (S3).
 */
export function nodeTimeLimit(ttl: number, configured: number | undefined, isIdle = false): number {
  return Math.min(configured ?? Math.max(ttl * 0.05, isIdle ? IDLE_NODE_MS : 50), ttl * 0.2);
}
