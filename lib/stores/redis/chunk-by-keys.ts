import type { Lease } from '../../core/lease.js';

/** The most keys that one command is for. A key takes the server a few microseconds, and others wait meanwhile. */
const MOST_KEYS = 100;

/**
 * Parts of what is asked of a server that one command each can carry. On a Cluster everything has a command of its own,
 * as the keys of one command must be in one slot.
 */
export function chunkByKeys<T>(
  items: readonly T[],
  leaseOf: (item: T) => Lease,
  isCluster: boolean,
): (readonly T[])[] {
  // Mostly all fit, and nothing is copied.
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
