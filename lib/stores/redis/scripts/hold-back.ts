import type { WaiterId } from '../../../core/waiter-id.js';
import { markKey } from '../lock-key.js';
import { MARK, waiterName } from '../record.js';
import type { Packed } from '../connection/command-channel.js';
import { FOREIGN } from './lua.js';
import { script } from './script.js';

/** The life of a mark, in milliseconds. Its waiter renews it every second. */
export const MARK_MS = 2_000;

/**
 * Sets the mark of a waiter for each of its keys: the node then refuses later callers for a shared lock or a permit,
 * unless they have the mode of this waiter (S22). A key with the mark of an earlier waiter keeps that mark.
 *
 * KEYS     the marks
 * ARGV[1]  the name of the waiter
 * ARGV[2]  milliseconds that the waiter has waited
 * Returns  1 if the mark of this waiter is now set for all its keys, else 0
 */
export const HOLD_BACK = script(`
local time = redis.call('TIME')
local stands = 1
local came = math.floor(time[1] * 1000 + time[2] / 1000 - ARGV[2])
for i = 1, #KEYS do
  local mark = redis.call('GET', KEYS[i])
  if mark and (#mark < ${MARK.shortest} or string.byte(mark, ${MARK.name - 1}) ~= 58) then
    return ${FOREIGN}
  end
  if not mark or string.sub(mark, ${MARK.name}) == ARGV[1] or tonumber(string.sub(mark, ${MARK.came.join(', ')})) > came then
    redis.call('SET', KEYS[i], string.format('%013.0f:', came) .. ARGV[1], 'PX', ${MARK_MS})
  else
    stands = 0
  end
end
return stands
`);

/** The number of keys, the keys and the arguments of {@link HOLD_BACK}. */
export function packHoldBack(waiter: WaiterId, waited: number, keyPrefix: string): Packed {
  const marks = waiter.keys.map((key) => markKey(keyPrefix, key));
  return [marks.length, ...marks, waiterName(waiter), waited.toFixed(3)];
}
