import type { KeyWaiter } from '../../../core/ports.js';
import { queueKey } from '../lock-key.js';
import { parseWaiter } from '../record.js';
import { Fields } from './fields.js';
import { type Packed, pack, script } from './script.js';

/**
 * Largest number of waiters that are read from each queue, so that the command takes only a few milliseconds even for
 * long queues.
 */
const MOST_OF_QUEUE = 100;

/** The answer about a queue: its position among KEYS. */
const QUEUE = new Fields('position');

/** A waiter in a queue, and the time of its arrival, as Redis lists members with their scores. */
const WAITER = new Fields('name', 'arrival');

/**
 * Reads the waiters of locks, and changes nothing.
 *
 * KEYS     the queues
 * Returns  for each queue with waiters `QUEUE`, and then for each waiter `WAITER`, the earliest first. The members for the turn
 *          and for the standbys are left out: see queue.ts
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
  for (const found of answer as readonly (readonly unknown[])[]) {
    const queue = queues[Number(QUEUE.of(found).position) - 1];
    for (const { name, arrival } of WAITER.rows(found, QUEUE.size))
      queue?.push({ ...parseWaiter(String(name)), since: Math.round(Number(arrival)) });
  }
  return queues;
}
