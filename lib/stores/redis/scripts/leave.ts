import type { WaiterId } from '../../../core/waiter-id.js';
import { holdersKey, markKey, queueKey, recordKey } from '../lock-key.js';
import { LINGER_MS, MARK, RECORD, WAITER, waiterName } from '../record.js';
import type { Packed } from '../connection/command-channel.js';
import { PERMITS } from './permits.js';
import { LEAVE_QUEUE, WAKE } from './queue.js';
import { script } from './script.js';
import { findFree, luaWidthOf } from './slot-map.js';

/**
 * Removes a waiter from the queues of its keys, and deletes its marks. Then begins the turn of the next waiter if the
 * lock is free, or if that waiter can join the holders. After the removal of a waiter in another mode, a waiting reader
 * can join the readers. A waiter for permits can join while a permit is free.
 *
 * KEYS     n records, their n queues, n marks and n sets of holders
 * ARGV[1]  the name of the waiter
 * ARGV[2]  the prefix of channel names; empty on a Cluster
 */
export const LEAVE = script(`
local call, n = redis.call, #KEYS / 4
local waiter, base, after, released = ARGV[1], ARGV[2], 0, '-'
for i = 1, n do
  local queue, mark = KEYS[n + i], redis.pcall('GET', KEYS[2 * n + i])
  if mark and not mark.err and string.sub(mark, ${MARK.name}) == waiter then
    call('DEL', KEYS[2 * n + i])
  end
  ${LEAVE_QUEUE}
  if waiting and left == 1 then
    local record = call('GET', KEYS[i])
    local state = record and string.byte(record, 1) or ${RECORD.free}
    local life = state ~= ${RECORD.free} and call('PTTL', KEYS[i]) or 0
    local isNext = life ~= -1 and life <= ${LINGER_MS}
    if not isNext and (state == ${RECORD.shared} or state == ${RECORD.permits}) then
      local front = call('ZRANGE', queue, 0, 0)[1]
      local mode = string.byte(front, ${WAITER.mode} + (string.byte(front, 1) == 33 and 17 or 0))
      if state == ${RECORD.shared} then
        isNext = mode == ${WAITER.shared} and string.byte(waiter, ${WAITER.mode}) ~= mode
      elseif mode == ${WAITER.permits} then
        -- Check if a slot is free, or if its holder has expired.
        local held, slot, taken = tonumber(string.sub(record, ${PERMITS.count.join(', ')})), nil, ''
        if string.byte(record, ${PERMITS.kind}) == ${PERMITS.several} then
          taken = string.sub(record, ${PERMITS.bits}, ${PERMITS.bits - 1} + ${luaWidthOf('held')})
          ${findFree('0')}
        else
          slot = 1
        end
        local time, first = call('TIME'), call('ZRANGE', KEYS[3 * n + i], 0, 0, 'WITHSCORES')
        isNext = slot < held or first[1] and tonumber(first[2]) <= time[1] * 1000 + time[2] / 1000
      end
    end
    if isNext then
      ${WAKE}
    end
  end
end
return 1
`);

/** The number of keys, the keys and the arguments of {@link LEAVE}. */
export function packLeave(waiter: WaiterId, keyPrefix: string, base: string): Packed {
  const names = [recordKey, queueKey, markKey, holdersKey].flatMap((nameOf) =>
    waiter.keys.map((key) => nameOf(keyPrefix, key)),
  );
  return [names.length, ...names, waiterName(waiter), base];
}
