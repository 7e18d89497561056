import type { ReleaseRequest } from '../../../core/ports.js';
import { queueKey } from '../lock-key.js';
import { WAKE } from './queue.js';
import { Arguments, number, text } from './arguments.js';
import { type Packed, pack, script } from './script.js';

const RELEASED = new Arguments<ReleaseRequest>({
  /** The id of the released lease. */
  released: text(({ lease }) => lease.id),
  /** Milliseconds after which the first waiter may try; 0 for no pause. */
  after: number(({ lease, pause }) => Math.max(pause, lease.keepFor)),
});

/**
 * Begins the turn of the first waiter for a key on a Cluster, after a release that did not name the queue.
 *
 * KEYS     the queue
 * ARGV     `RELEASED`
 * Returns  the number of waiters that got a message
 */
export const WAKE_WAITERS = script(`
local call, queue, base = redis.call, KEYS[1], ''
${RELEASED.locals(1)}
${WAKE}
return told
`);

/** The number of keys, the keys and the arguments of {@link WAKE_WAITERS}. */
export function packWakeWaiters(key: string, request: ReleaseRequest, keyPrefix: string): Packed {
  const args: (string | number)[] = [];
  RELEASED.push(args, request);
  return pack([queueKey(keyPrefix, key)], args);
}
