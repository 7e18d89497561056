import type { Lease } from '../../core/lease.js';

/** The most keys of one command. A key takes the server a few microseconds, and other commands wait meanwhile. */
const MOST_KEYS = 100;

/**
 * Splits requests into parts of one command each. On a Cluster each request has a command of its own, because the keys
 * of one command must be in one slot.
 */
export function chunkByKeys<T>(
  items: readonly T[],
  leaseOf: (item: T) => Lease,
  isCluster: boolean,
): (readonly T[])[] {
  // Usually one command is enough, and nothing is copied.
  if (!isCluster && countKeys(items, leaseOf) <= MOST_KEYS) return [items];
  const parts: T[][] = [];
  let count = Infinity;
  for (const item of items) {
    const { length } = leaseOf(item).keys;
    count += length;
    if (count > MOST_KEYS || isCluster) {
      count = length;
      parts.push([]);
    }
    parts.at(-1)?.push(item);
  }
  return parts;
}

function countKeys<T>(items: readonly T[], leaseOf: (item: T) => Lease): number {
  let count = 0;
  for (const item of items) count += leaseOf(item).keys.length;
  return count;
}
