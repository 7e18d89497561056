import { detailsKey, holdersKey, queueKey, recordKey } from '../lock-key.js';
import { LINGER_MS, RECORD } from '../record.js';
import type { Packed } from '../connection/command-channel.js';
import { WAKE } from './queue.js';
import { END_READER } from './release-shared.js';
import { script } from './script.js';

/**
 * Ends those holders of a lock that have one of the ids, whoever asks, and tells those who wait. The last token stays for the
 * linger.
 *
 * KEYS     the record, its queue, the set of its holders, and the hash of what is told of them
 * ARGV[1]  what the names of channels begin with; empty on a Cluster
 * ARGV     then the ids that were seen on any node
 * Returns  the positions of the ids that it ended
 *
 * The ids, and not whatever is there, so that a request that is delayed or sent twice leaves the next holder alone. Where
 * memory is short what needs none comes first: after the first write of a script no other fails for want of memory.
 */
export const FORCE_RELEASE = script(`
local call, base, name, queue, set, hash = redis.call, ARGV[1], KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local record = call('GET', name)
local state = record and string.byte(record, 1) or ${RECORD.free}
if state == ${RECORD.free} then
  return {}
end
local found, isFree = {}, false
for i = 2, #ARGV do
  local id = ARGV[i]
  if state == ${RECORD.shared} and not isFree then
    ${END_READER}
    if type(ended) == 'table' then
      return ended
    elseif ended == 1 then
      found[#found + 1], isFree = i - 1, isFree or over
    end
  elseif state == ${RECORD.permits} then
    local own = call('HGET', hash, id)
    if own and call('ZREM', set, id) == 1 then
      call('HDEL', hash, id)
      local slot = tonumber(string.sub(own, 18, 21))
      call('ZADD', set, -1 - slot, '#' .. slot)
      found[#found + 1], isFree = i - 1, true
    end
  elseif not isFree and string.sub(record, ${RECORD.id.join(', ')}) == id then
    local freed = 'F' .. string.sub(record, 2)
    if redis.pcall('SET', name, freed, 'PX', ${LINGER_MS}).err then
      call('PEXPIRE', name, ${LINGER_MS})
      call('SET', name, freed, 'PX', ${LINGER_MS})
    end
    found[1], isFree = i - 1, true
  end
end
if state == ${RECORD.permits} and isFree then
  local time, last = call('TIME'), call('ZRANGE', set, -1, -1, 'WITHSCORES')
  local left = math.max(0, math.ceil(last[2] - time[1] * 1000 - time[2] / 1000))
  local own = left > 0 and call('HGET', hash, last[1])
  if own then
    record = string.sub(record, 1, ${RECORD.id[0] - 1}) .. last[1] .. string.sub(own, 22)
  elseif left == 0 then
    record = 'F' .. string.sub(record, 2)
  end
  left = left + ${LINGER_MS}
  call('SET', name, record, 'PX', left)
  call('PEXPIRE', set, left)
  call('PEXPIRE', hash, left)
end
if isFree then
  local after, released = 0, ARGV[found[#found] + 1]
  ${WAKE}
end
return found
`);

/** The number of keys, the keys and the arguments of {@link FORCE_RELEASE}. */
export function packForceRelease(
  key: string,
  ids: readonly string[],
  keyPrefix: string,
  base: string,
): Packed {
  const names = [recordKey, queueKey, holdersKey, detailsKey].map((nameOf) => nameOf(keyPrefix, key));
  return [names.length, ...names, base, ...ids];
}
