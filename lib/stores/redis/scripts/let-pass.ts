import type { WaiterId } from '../../../core/waiter-id.js';
import { markKey } from '../lock-key.js';
import { MARK, waiterName } from '../record.js';
import type { Packed } from '../connection/command-channel.js';
import { script } from './script.js';

/**
 * Deletes the marks that HOLD_BACK set for a waiter, and no marks of other waiters.
 *
 * KEYS     the marks
 * ARGV[1]  the name of the waiter
 */
export const LET_PASS = script(`
for i = 1, #KEYS do
  local mark = redis.call('GET', KEYS[i])
  if mark and string.sub(mark, ${MARK.name}) == ARGV[1] then
    redis.call('DEL', KEYS[i])
  end
end
return 1
`);

/** The number of keys, the keys and the arguments of {@link LET_PASS}. */
export function packLetPass(waiter: WaiterId, keyPrefix: string): Packed {
  const marks = waiter.keys.map((key) => markKey(keyPrefix, key));
  return [marks.length, ...marks, waiterName(waiter)];
}
