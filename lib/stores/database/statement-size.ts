import type { Lease } from '../../core/lease.js';

/**
 * Largest number of releases in one statement, and likewise of extensions and of acquisitions. The statement locks the
 * rows of all their keys until it ends, so a larger statement makes others wait longer.
 */
export const MOST_LEASES = 500;

/**
 * Largest number of characters in the keys of these leases, unless one lease alone has more. MySQL refuses a statement
 * that is longer than `max_allowed_packet`, by default 16 MB or more. A statement has each key twice, in JSON and UTF-8.
 */
const MOST_KEY_CHARACTERS = 250_000;

/** Finds how many items from the first one on fit into one statement: at least one, if there is one. */
export function fitting<Item>(
  items: Iterable<Item>,
  most: number,
  leaseOf: (item: Item) => Pick<Lease, 'keys'>,
): number {
  let count = 0;
  let characters = 0;
  for (const item of items) {
    for (const key of leaseOf(item).keys) characters += key.length;
    if (count === most || (count > 0 && characters > MOST_KEY_CHARACTERS)) break;
    count++;
  }
  return count;
}
