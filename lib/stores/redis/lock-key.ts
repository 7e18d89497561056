import type { Tick } from '../../core/tick.js';

/**
 * The Redis key of a lock's record. The braces make Redis Cluster put all that belongs to one lock into one slot (S19).
 */
export function recordKey(prefix: string, key: string): string {
  return `${prefix}{${key}}`;
}

/**
 * The Redis key that says which tick of a schedule has run last, beside the first of the keys that its runs lock: all keys
 * of a lock are in one slot.
 */
export function tickKey(
  prefix: string,
  [key = '']: readonly string[],
  { schedule }: Pick<Tick, 'schedule'>,
): string {
  return `${prefix}{${key}}:t:${schedule}`;
}

/** The Redis key of the queue of those who wait for a lock. */
export function queueKey(prefix: string, key: string): string {
  return `${prefix}{${key}}:q`;
}

/** The Redis key of those who hold a lock that several can hold, by when their leases end. */
export function holdersKey(prefix: string, key: string): string {
  return `${prefix}{${key}}:h`;
}

/** The Redis key of what is told of each of them. */
export function detailsKey(prefix: string, key: string): string {
  return `${prefix}{${key}}:s`;
}

/** The Redis key of the mark of one who waits, and holds back those in another mode who come later (S22). */
export function markKey(prefix: string, key: string): string {
  return `${prefix}{${key}}:w`;
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

/**
 * The Redis key of a node's marker: since when it has had its data (S12), and the largest token that was ahead of its clock.
 */
export function markerKey(prefix: string): string {
  return `${prefix}redlock-node`;
}

/** A Redis key that is never written: whether it could be tells whether locks can. */
export function probeKey(prefix: string): string {
  return `${prefix}redlock-probe`;
}

/** The pattern, in the notation of Redis, of the Redis keys of all locks whose keys begin with `start`. */
export function lockPattern(prefix: string, start: string): string {
  return `${escapeGlob(`${prefix}{${start}`)}*}`;
}

/** The key of a lock, given its Redis key. */
export function keyOfLock(prefix: string, redisKey: string): string {
  return redisKey.slice(`${prefix}{`.length, -'}'.length);
}

/** Makes the characters that mean something in a pattern mean themselves. */
function escapeGlob(text: string): string {
  return text.replaceAll(/[\\*?[\]]/g, String.raw`\$&`);
}
