import { LINGER_MS } from '../../../core/store-times.js';
import type { WaiterId } from '../../../core/waiter-id.js';
import { LeaseNames } from '../lease-names.js';
import { holdersKey, markKey, queueKey, recordKey } from '../lock-key.js';
import { RECORD, TURN, WAITER, waiterName } from '../record.js';
import { Arguments, text } from './arguments.js';
import { PERMITS } from './permits.js';
import { DROP_MARK, LEAVE_QUEUE, WAKE } from './queue.js';
import { type Packed, pack, script } from './script.js';
import { findFree, luaWidthOf } from './slot-map.js';

const NAMES = new LeaseNames({ name: recordKey, queue: queueKey, mark: markKey, holders: holdersKey });

/** The name of the waiter, and the prefix of channel names, empty on a Cluster. */
const LEAVING = new Arguments<{ readonly waiter: WaiterId; readonly base: string }>({
  waiter: text(({ waiter }) => waiterName(waiter)),
  base: text(({ base }) => base),
});

/**
 * Removes a waiter from the queues of its keys, and deletes its marks. Then begins the turn of the next waiter if the
 * lock is free, or if that waiter can join the holders. After the removal of a waiter in another mode, a waiting reader
 * can join the readers. A waiter for permits can join while a permit is free.
 *
 * KEYS     the Redis keys of the n keys (`NAMES`)
 * ARGV     `LEAVING`
 */
export const LEAVE = script(`
local call, n = redis.call, #KEYS / ${NAMES.size}
${LEAVING.locals(1)}
local after, released = 0, '-'
for i = 1, n do
  ${NAMES.locals(['name', 'queue', 'mark', 'holders'], 'i')}
  ${DROP_MARK}
  ${LEAVE_QUEUE}
  if waiting and left == 1 then
    local record = call('GET', name)
    local state = record and string.byte(record, 1) or ${RECORD.free}
    local life = state ~= ${RECORD.free} and call('PTTL', name) or 0
    local isNext = life ~= -1 and life <= ${LINGER_MS}
    if not isNext and (state == ${RECORD.shared} or state == ${RECORD.permits}) then
      local front = call('ZRANGE', queue, 0, 0)[1]
      local mode = string.byte(front, ${WAITER.mode} + (string.byte(front, 1) == ${TURN.letter} and ${TURN.waiter - 1} or 0))
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
        local time, first = call('TIME'), call('ZRANGE', holders, 0, 0, 'WITHSCORES')
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
  const names: string[] = [];
  NAMES.push(names, waiter.keys, keyPrefix);
  const args: string[] = [];
  LEAVING.push(args, { waiter, base });
  return pack(names, args);
}
