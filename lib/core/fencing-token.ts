/** Amount by which the result of {@link tokenAt} grows when its argument grows by one second. */
export const STEPS_PER_SECOND = 2 ** 20;

/**
 * Limit in milliseconds for how far a token may be ahead of a node's clock. A node that stores a token beyond this
 * limit also stores the token in its marker. The marker is a key without an expiry, which records when the node's data
 * began.
 *
 * The last token of a key stays on a node for some time after the lock has ended. Tokens therefore keep increasing if
 * the node's clock is set back by less than that time minus `LEAD_MS`.
 */
export const LEAD_MS = 2_000;

/**
 * Milliseconds that a proposed token is ahead of the latest known clock, so that the token is still high enough on
 * every node when the request arrives.
 */
const AHEAD_MS = 50;

/** The fencing token for a time in milliseconds since 1970. The token stays below 2^53 until about the year 2242. */
export function tokenAt(time: number): number {
  return Math.floor((time * STEPS_PER_SECOND) / 1_000);
}

/**
 * The token that the client proposes to all nodes. `latest` is the latest clock of the nodes, in milliseconds since
 * 1970.
 */
export function proposedToken(latest: number): number {
  return tokenAt(latest + AHEAD_MS);
}
