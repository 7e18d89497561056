import type { KeyWaiter } from '../../../core/ports.js';
import { queueKey } from '../lock-key.js';
import { parseWaiter } from '../record.js';
import { type Packed, pack, script } from './script.js';

/**
 * Largest number of waiters that are read from each queue, so that the command takes only a few milliseconds even for
 * long queues.
 */
const MOST_OF_QUEUE = 100;

/**
 * Reads the waiters of locks, and changes nothing.
 *
 * KEYS     the queues
 * Returns  for each queue with waiters {position among KEYS, waiter, time of its arrival, ...}, the earliest first. The
 *          members for the turn and for the standbys are left out: see queue.ts
 */
export const WAITING = script(`
local found = {}
for i = 1, #KEYS do
  local waiting = redis.pcall('ZRANGEBYSCORE', KEYS[i], 0, '(1e13', 'WITHSCORES', 'LIMIT', 0, ${MOST_OF_QUEUE})
  if not waiting.err and #waiting > 0 then
    table.insert(waiting, 1, i)
    found[#found + 1] = waiting
  end
end
return found
`);

/** The number of keys and the keys of {@link WAITING}. */
export function packWaiting(keys: readonly string[], keyPrefix: string): Packed {
  return pack(keys.map((key) => queueKey(keyPrefix, key)));
}

/** Reads the waiters of each of `count` keys from an answer of {@link WAITING}. */
export function waitersOf(count: number, answer: unknown): KeyWaiter[][] {
  const queues = Array.from({ length: count }, (): KeyWaiter[] => []);
  for (const [position, ...found] of answer as readonly (readonly unknown[])[]) {
    const queue = queues[Number(position) - 1];
    for (let at = 0; at < found.length; at += 2)
      queue?.push({ ...parseWaiter(String(found[at])), since: Math.round(Number(found[at + 1])) });
  }
  return queues;
}
