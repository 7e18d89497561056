/** Steps of a fencing token for each second of the clock that it follows. */
export const STEPS_PER_SECOND = 2 ** 20;

/**
 * How far a token may run ahead of a node's clock without the node's marker being lifted, in milliseconds. Tokens survive a
 * step back of a node's clock by less than the linger of a record less this.
 */
export const LEAD_MS = 2_000;

/** How far ahead of the latest clock a token is proposed, so that the nodes agree on it though messages take time. */
const AHEAD_MS = 50;

/** The fencing token for a time in milliseconds since 1970; below 2^53 until about the year 2242. */
export function tokenAt(time: number): number {
  return Math.floor((time * STEPS_PER_SECOND) / 1_000);
}

/** The token that all nodes are asked to give, given the latest of their clocks, in milliseconds since 1970. */
export function proposedToken(latest: number): number {
  return tokenAt(latest + AHEAD_MS);
}
