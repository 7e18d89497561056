import type { WaiterId } from '../../../core/waiter-id.js';
import { markKey, recordKey } from '../lock-key.js';
import { LINGER_MS, MARK, RECORD, waiterName } from '../record.js';
import type { Packed } from '../connection/command-channel.js';
import { FOREIGN } from './lua.js';
import { script } from './script.js';

/** The life of a mark, in milliseconds. Its waiter renews it every second. */
export const MARK_MS = 2_000;

/**
 * Sets the mark of a waiter: the node then refuses later callers for a shared lock or a permit, unless they have the
 * mode of this waiter (S22). A key with the mark of an earlier waiter keeps that mark.
 *
 * Of several keys, only the first held key gets the mark, because an attempt finds this key held. The other marks of the
 * waiter are renewed. A mark on a free key would shut out its readers although they are not in the way of the waiter.
 *
 * KEYS     the n marks, then the n records
 * ARGV[1]  the name of the waiter
 * ARGV[2]  milliseconds that the waiter has waited
 * Returns  0 if the first held key has the mark of an earlier waiter, else 1
 */
export const HOLD_BACK = script(`
local time = redis.call('TIME')
local stands = 1
local came = math.floor(time[1] * 1000 + time[2] / 1000 - ARGV[2])
local n = #KEYS / 2
local found = n == 1
for i = 1, n do
  local mark = redis.call('GET', KEYS[i])
  if mark and (#mark < ${MARK.shortest} or string.byte(mark, ${MARK.name - 1}) ~= 58) then
    return ${FOREIGN}
  end
  local mine = mark and string.sub(mark, ${MARK.name}) == ARGV[1]
  local first = n == 1
  if not found then
    local record = redis.pcall('GET', KEYS[n + i])
    if record and not record.err and string.byte(record, 1) ~= ${RECORD.free} then
      local left = redis.call('PTTL', KEYS[n + i])
      first = left < 0 or left > ${LINGER_MS}
      found = first
    end
  end
  if mine or first and (not mark or tonumber(string.sub(mark, ${MARK.came.join(', ')})) > came) then
    redis.call('SET', KEYS[i], string.format('%013.0f:', came) .. ARGV[1], 'PX', ${MARK_MS})
  elseif first then
    stands = 0
  end
end
return stands
`);

/** The number of keys, the keys and the arguments of {@link HOLD_BACK}. */
export function packHoldBack(waiter: WaiterId, waited: number, keyPrefix: string): Packed {
  const marks = waiter.keys.map((key) => markKey(keyPrefix, key));
  const records = waiter.keys.map((key) => recordKey(keyPrefix, key));
  return [marks.length * 2, ...marks, ...records, waiterName(waiter), waited.toFixed(3)];
}
