import { LINGER_MS, RECORD } from '../record.js';
import { LEAVE_QUEUE, WAKE } from './queue.js';
import { script } from './script.js';

/**
 * Gives a place in the queues up; passes its turn on if the lock is free.
 *
 * KEYS     n records and their n queues
 * ARGV[1]  the waiter
 * ARGV[2]  what the names of channels begin with; empty on a Cluster
 */
export const LEAVE = script(`
local call, n = redis.call, #KEYS / 2
local waiter, base, after, released = ARGV[1], ARGV[2], 0, '-'
for i = 1, n do
  local queue = KEYS[n + i]
  ${LEAVE_QUEUE}
  if waiting and left == 1 then
    local record = call('GET', KEYS[i])
    local life = record and string.byte(record, 1) ~= ${RECORD.free} and call('PTTL', KEYS[i]) or 0
    if life ~= -1 and life <= ${LINGER_MS} then
      ${WAKE}
    end
  end
end
return 1
`);
