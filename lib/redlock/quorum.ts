/** The number of votes that acquires a lock: floor(N/2)+1, so that any two quorums have a node in common (S1). */
export function quorumOf(nodeCount: number): number {
  return Math.floor(nodeCount / 2) + 1;
}

/**
 * Milliseconds until a quorum can be free. With a quorum of 2, that is the second smallest of the remaining times (0
 * for a free node, `Infinity` for a key without expiry).
 */
export function freeAfter(remainingTimes: readonly number[], quorum: number): number {
  return remainingTimes.toSorted((a, b) => a - b)[quorum - 1] ?? Infinity;
}
