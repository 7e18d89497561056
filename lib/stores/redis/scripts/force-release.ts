import { detailsKey, holdersKey, queueKey, recordKey } from '../lock-key.js';
import { LINGER_MS, RECORD } from '../record.js';
import type { Packed } from '../connection/command-channel.js';
import { END_PERMIT, PERMITS } from './permits.js';
import { WAKE } from './queue.js';
import { END_READER } from './readers.js';
import { script } from './script.js';

/**
 * Ends the leases with the given ids, all of one lock, and wakes the waiters. The caller need not own the lock. When no
 * holder is left, the record stays for {@link LINGER_MS}, with the last token of the key.
 *
 * KEYS     the record, its queue, the set of its holders, and the hash of their details
 * ARGV[1]  the prefix of channel names; empty on a Cluster
 * ARGV     then the ids of the holders to end, which the caller has read from any node
 * Returns  the positions of the ids that were ended
 *
 * The ids prevent a delayed or repeated request from ending the next holder. Writes that need no memory come first:
 * after the first write of a script no other write fails because of memory.
 */
export const FORCE_RELEASE = script(`
local call, base, name, queue, holders, details = redis.call, ARGV[1], KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local record = call('GET', name)
local state = record and string.byte(record, 1) or ${RECORD.free}
if state == ${RECORD.free} then
  return {}
end
local found, wakes = {}, false
for i = 2, #ARGV do
  local id = ARGV[i]
  local named = string.sub(record, ${RECORD.id.join(', ')}) == id
  if state == ${RECORD.shared} then
    ${END_READER}
    if type(ended) == 'table' then
      return ended
    elseif ended == 1 then
      found[#found + 1], wakes = i - 1, over
    end
  elseif state == ${RECORD.permits} then
    local slot
    if string.byte(record, ${PERMITS.kind}) == ${PERMITS.several} then
      slot = tonumber(string.sub(call('HGET', details, id) or '', 18, 21))
    elseif named then
      slot = tonumber(string.sub(record, ${PERMITS.slot.join(', ')}))
    end
    if slot then
      ${END_PERMIT}
      if failed then
        return failed
      end
      found[#found + 1], wakes = i - 1, true
    end
  elseif named then
    record = 'F' .. string.sub(record, 2)
    if redis.pcall('SET', name, record, 'PX', ${LINGER_MS}).err then
      call('PEXPIRE', name, ${LINGER_MS})
      call('SET', name, record, 'PX', ${LINGER_MS})
    end
    found[1], wakes = i - 1, true
  end
  if string.byte(record, 1) == ${RECORD.free} then
    break
  end
end
if wakes then
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
