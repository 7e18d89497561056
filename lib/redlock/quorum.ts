/** The number of votes that wins: floor(N/2)+1, so that any two quorums share a node (S1). */
export function quorumOf(nodeCount: number): number {
  return Math.floor(nodeCount / 2) + 1;
}

/**
 * Milliseconds until a quorum can be free: the quorum-th smallest remaining time among the nodes that answered (0 for a
 * node that is free already, `Infinity` for a key without expiry).
 */
export function freeAfter(remainingTimes: readonly number[], quorum: number): number {
  return remainingTimes.toSorted((a, b) => a - b)[quorum - 1] ?? Infinity;
}
