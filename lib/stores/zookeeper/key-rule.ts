import type { LockMode } from '../../core/lock-mode.js';
import { MOST_HOLDERS } from './acquisitions.js';

/**
 * Largest sum of the lengths of the keys' names in ZooKeeper. A lock of several keys is one transaction, with each name
 * in it up to three times, and a server takes about a million bytes (`jute.maxbuffer`).
 */
const MOST_CHARACTERS = 200_000;

/** The largest number of keys of a lock: each key adds its holders to the transaction. */
const MOST_KEYS = 250;

/**
 * The reason why the store can never store a lock, with the remedy; `undefined` if it can.
 *
 * @param nodes - the names of the keys' nodes
 */
export function whyNot(
  nodes: readonly string[],
  mode: LockMode,
  permits: number | undefined,
): string | undefined {
  if (mode === 'permits' && permits !== undefined && permits > MOST_HOLDERS)
    return (
      `ZooKeeper keeps all holders of a key in one node, so there are at most ${MOST_HOLDERS} permits, not ${permits}; ` +
      'give fewer, or another store'
    );
  if (nodes.length > MOST_KEYS)
    return `a transaction in ZooKeeper has room for ${MOST_KEYS} keys, not ${nodes.length}; lock fewer`;
  if (nodes.reduce((sum, { length }) => sum + length, 0) > MOST_CHARACTERS)
    return 'the keys together are too long for a transaction in ZooKeeper; lock fewer, or shorter ones';
  return undefined;
}
