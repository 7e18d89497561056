/** Fencing tokens per second of the clock that they follow. */
export const STEPS_PER_SECOND = 2 ** 20;

/**
 * Milliseconds by which a token may run ahead of a node's clock before the node's marker is raised. Tokens keep
 * increasing if a node's clock steps back by less than a record's linger minus this lead.
 */
export const LEAD_MS = 2_000;

/**
 * Milliseconds by which a proposed token is ahead of the latest clock, so that nodes agree on it although messages take
 * time.
 */
const AHEAD_MS = 50;

/** The fencing token for a time in milliseconds since 1970. It stays below 2^53 until about the year 2242. */
export function tokenAt(time: number): number {
  return Math.floor((time * STEPS_PER_SECOND) / 1_000);
}

/** The token that the client proposes to all nodes, from the latest of their clocks in milliseconds since 1970. */
export function proposedToken(latest: number): number {
  return tokenAt(latest + AHEAD_MS);
}
