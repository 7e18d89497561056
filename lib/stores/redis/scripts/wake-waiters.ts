import type { ReleaseRequest } from '../../../core/ports.js';
import { queueKey } from '../lock-key.js';
import type { Packed } from '../connection/command-channel.js';
import { WAKE } from './queue.js';
import { script } from './script.js';

/**
 * Begins the turn of the first waiter for a key on a Cluster, after a release that did not name the queue.
 *
 * KEYS     the queue
 * ARGV[1]  the id of the released lease
 * ARGV[2]  milliseconds after which the first waiter may try; 0 for no pause
 * Returns  the number of waiters that got a message
 */
export const WAKE_WAITERS = script(`
local call, queue, base, released, after = redis.call, KEYS[1], '', ARGV[1], tonumber(ARGV[2])
${WAKE}
return told
`);

/** The number of keys, the keys and the arguments of {@link WAKE_WAITERS}. */
export function packWakeWaiters(key: string, { lease, pause }: ReleaseRequest, keyPrefix: string): Packed {
  return [1, queueKey(keyPrefix, key), lease.id, Math.max(pause, lease.keepFor)];
}
