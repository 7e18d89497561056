import type { Lease } from '../../core/lease.js';

/**
 * Largest number of keys in one command. The server needs a few microseconds for each key, and runs no other command
 * meanwhile.
 */
const MOST_KEYS = 100;

/**
 * Splits requests into parts, each for one command. On a Cluster each part has one request, because all keys of a
 * command must be in one hash slot.
 */
export function chunkByKeys<T>(
  items: readonly T[],
  leaseOf: (item: T) => Lease,
  isCluster: boolean,
): (readonly T[])[] {
  // Usually one command is enough, so do not copy the list.
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
