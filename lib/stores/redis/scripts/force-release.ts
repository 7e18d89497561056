import { LINGER_MS, RECORD } from '../record.js';
import { WAKE } from './queue.js';
import { script } from './script.js';

/**
 * Frees a lock that is held under one of the ids, whoever asks, and tells those who wait. The last token stays for the
 * linger.
 *
 * KEYS     the record and its queue
 * ARGV[1]  what the names of channels begin with; empty on a Cluster
 * ARGV     then the ids that were seen on any node
 * Returns  the position of the id that it was held under, or 0 when nothing was freed
 *
 * The ids, and not whatever is there, so that a request that is delayed or sent twice leaves the next holder alone. Where
 * memory is short PEXPIRE comes first: after the first write of a script no other fails for want of memory.
 */
export const FORCE_RELEASE = script(`
local call, base, queue = redis.call, ARGV[1], KEYS[2]
local record = call('GET', KEYS[1])
if not record or string.byte(record, 1) == ${RECORD.free} then
  return 0
end
for i = 2, #ARGV do
  if string.sub(record, ${RECORD.id.join(', ')}) == ARGV[i] then
    local freed = 'F' .. string.sub(record, 2)
    if redis.pcall('SET', KEYS[1], freed, 'PX', ${LINGER_MS}).err then
      call('PEXPIRE', KEYS[1], ${LINGER_MS})
      call('SET', KEYS[1], freed, 'PX', ${LINGER_MS})
    end
    local after, released = 0, ARGV[i]
    ${WAKE}
    return i - 1
  end
end
return 0
`);
