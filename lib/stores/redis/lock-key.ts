import type { Tick } from '../../core/tick.js';

/**
 * The Redis key of a lock's record. The braces make Redis Cluster put all Redis keys of one lock into one hash slot
 * (S19).
 */
export function recordKey(prefix: string, key: string): string {
  return `${prefix}{${key}}`;
}

/** The part of a Redis key from which a Cluster computes the key's hash slot. */
function hashTagOf(redisKey: string): string {
  const [, tag = redisKey] = /^[^{]*\{([^}]+)\}/s.exec(redisKey) ?? [];
  return tag;
}

/**
 * The reason why a Cluster can never store one lock of these keys (S19); `undefined` if it can. Keys with different hash
 * tags are refused even if their tags happen to have the same slot.
 *
 * @param prefix - everything that is put before the key, also by the client
 */
export function whyNotInCluster(prefix: string, keys: readonly string[]): string | undefined {
  const tags = new Set(keys.map((key) => hashTagOf(recordKey(prefix, key))));
  if (tags.size <= 1) return undefined;
  return 'the keys of one lock must be in one slot of the Cluster; give them a common hash tag, such as {orders}:1 and {orders}:2';
}

/**
 * The Redis key for a schedule, which stores the last tick that has run. Its name contains the first key of the lock,
 * so that on a Cluster this Redis key and the record of the lock are in one hash slot.
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
 * The Redis key of the sorted set of holders, for a lock that admits several holders. The score of a holder is the end
 * of its lease.
 */
export function holdersKey(prefix: string, key: string): string {
  return `${prefix}{${key}}:h`;
}

/** The Redis key of the hash with the details of each holder, for a lock that admits several holders. */
export function detailsKey(prefix: string, key: string): string {
  return `${prefix}{${key}}:s`;
}

/**
 * The Redis key of a mark. A mark is set for a waiter: the node then refuses later callers for a shared lock or a
 * permit, unless they have the mode of this waiter (S22).
 */
export function markKey(prefix: string, key: string): string {
  return `${prefix}{${key}}:w`;
}

/**
 * The prefix of the channels that wake waiters. A Cluster does not use this prefix: there the name of a channel begins
 * with the Redis key of a queue, so that the channel and the queue are in one hash slot.
 */
export function channelBase(prefix: string): string {
  return `${prefix}wake:`;
}

/**
 * The channel that wakes the waiters of a process. Without a Cluster one channel serves all keys. On a Cluster each key
 * has its own channel, in the hash slot of the key's queue.
 */
export function wakeChannel(prefix: string, inCluster: boolean, key: string, process: string): string {
  return inCluster ? `${queueKey(prefix, key)}:${process}` : `${channelBase(prefix)}${process}`;
}

/**
 * The Redis key of a node's marker. The marker contains the time since which the node has kept its data (S12), and the
 * largest token that was ahead of the node's clock.
 */
export function markerKey(prefix: string): string {
  return `${prefix}redlock-node`;
}

/**
 * The Redis key of a node's identity: the run of the server and the history of replication that wrote the node's data
 * (S28). It is not in the marker, because the former version of this package rewrites the marker.
 */
export function identityKey(prefix: string): string {
  return `${prefix}redlock-server`;
}

/**
 * A Redis key that is never written. With this key the library checks whether the user may run the commands of a lock.
 */
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
