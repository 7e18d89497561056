import type { Tick } from '../../core/tick.js';

/** The Redis key of a lock's record. The braces make Redis Cluster put all keys of one lock into one slot (S19). */
export function recordKey(prefix: string, key: string): string {
  return `${prefix}{${key}}`;
}

/**
 * The Redis key of the last tick of a schedule that has run. The name contains the first key of the lock, because on a
 * Cluster it must be in the slot of the lock's keys.
 */
export function tickKey(
  prefix: string,
  [key = '']: readonly string[],
  { schedule }: Pick<Tick, 'schedule'>,
): string {
  return `${prefix}{${key}}:t:${schedule}`;
}

/** The Redis key of the queue of waiters for a lock. */
export function queueKey(prefix: string, key: string): string {
  return `${prefix}{${key}}:q`;
}

/**
 * The Redis key of the sorted set of holders, for a lock that admits several. The scores are the ends of their leases.
 */
export function holdersKey(prefix: string, key: string): string {
  return `${prefix}{${key}}:h`;
}

/** The Redis key of the hash with the details of each holder. */
export function detailsKey(prefix: string, key: string): string {
  return `${prefix}{${key}}:s`;
}

/** The Redis key of the mark of a waiter, which makes the node refuse later callers of another mode (S22). */
export function markKey(prefix: string, key: string): string {
  return `${prefix}{${key}}:w`;
}

/**
 * The prefix of the channels that wake waiters. On a Cluster a channel's name begins with a queue's key, to be in the
 * same slot.
 */
export function channelBase(prefix: string): string {
  return `${prefix}wake:`;
}

/**
 * The channel that wakes the waiters of a process. One channel serves all keys. On a Cluster each key has its own
 * channel, in the slot of the key's queue.
 */
export function wakeChannel(prefix: string, inCluster: boolean, key: string, process: string): string {
  return inCluster ? `${queueKey(prefix, key)}:${process}` : `${channelBase(prefix)}${process}`;
}

/**
 * The Redis key of a node's marker. The marker contains the birth of the node's data (S12), and the largest token that
 * was ahead of the node's clock.
 */
export function markerKey(prefix: string): string {
  return `${prefix}redlock-node`;
}

/** A Redis key that is never written. It serves to check if the user has the right to write locks. */
export function probeKey(prefix: string): string {
  return `${prefix}redlock-probe`;
}

/** The pattern for SCAN of the Redis keys of all locks whose keys begin with `start`. */
export function lockPattern(prefix: string, start: string): string {
  return `${escapeGlob(`${prefix}{${start}`)}*}`;
}

/** The key of a lock, from its Redis key. */
export function keyOfLock(prefix: string, redisKey: string): string {
  return redisKey.slice(`${prefix}{`.length, -'}'.length);
}

/** Escapes the special characters of a pattern. */
function escapeGlob(text: string): string {
  return text.replaceAll(/[\\*?[\]]/g, String.raw`\$&`);
}
