/**
 * The Redis keys of a lock. The braces make Redis Cluster put all that belongs to one lock into one slot (S19).
 */
export function lockKey(prefix: string, key: string): string {
  return `${prefix}{${key}}:l`;
}

/** The Redis key of a lock's fencing counter. */
export function fenceKey(prefix: string, key: string): string {
  return `${prefix}{${key}}:f`;
}

/** The Redis key that says which tick of a schedule has run last, beside the lock that its runs take. */
export function tickKey(prefix: string, key: string, schedule: string): string {
  return `${prefix}{${key}}:t:${schedule}`;
}

/** The Redis key of the queue of those who wait for a lock. */
export function queueKey(prefix: string, key: string): string {
  return `${prefix}{${key}}:q`;
}

/** What the names of channels begin with that wake those who wait. On a Cluster they begin with a queue's key, to lie in its slot. */
export function channelBase(prefix: string): string {
  return `${prefix}wake:`;
}

/**
 * The channel that wakes those of one process who wait for a lock: one for all keys; on a Cluster one for each key, beside
 * its queue, as a channel lies in a slot.
 */
export function wakeChannel(prefix: string, inCluster: boolean, key: string, process: string): string {
  return inCluster ? `${queueKey(prefix, key)}:${process}` : `${channelBase(prefix)}${process}`;
}

/** The Redis key that says since when a node has had its data (S12). */
export function bornKey(prefix: string): string {
  return `${prefix}redlock-born`;
}

/** A Redis key that is never written: whether it could be tells whether locks can. */
export function probeKey(prefix: string): string {
  return `${prefix}redlock-probe`;
}

/** The pattern, in the notation of Redis, of the Redis keys of all locks whose keys begin with `start`. */
export function lockPattern(prefix: string, start: string): string {
  return `${escapeGlob(`${prefix}{${start}`)}*}:l`;
}

/** The key of a lock, given its Redis key. */
export function keyOfLock(prefix: string, redisKey: string): string {
  return redisKey.slice(`${prefix}{`.length, -'}:l'.length);
}

/** Makes the characters that mean something in a pattern mean themselves. */
function escapeGlob(text: string): string {
  return text.replaceAll(/[\\*?[\]]/g, String.raw`\$&`);
}
