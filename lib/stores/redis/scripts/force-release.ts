import { LINGER_MS } from '../../../core/store-times.js';
import { LeaseNames } from '../lease-names.js';
import { detailsKey, holdersKey, queueKey, recordKey } from '../lock-key.js';
import { RECORD } from '../record.js';
import { Arguments, text } from './arguments.js';
import { storeEvenIfFull } from './lua.js';
import { END_PERMIT, PERMIT, PERMITS } from './permits.js';
import { WAKE } from './queue.js';
import { END_READER } from './readers.js';
import { type Packed, pack, script } from './script.js';

const NAMES = new LeaseNames({
  name: recordKey,
  queue: queueKey,
  holders: holdersKey,
  details: detailsKey,
});

/** The arguments before the ids: the prefix of channel names, empty on a Cluster. */
const BEGIN = new Arguments<string>({ base: text((base) => base) });

/**
 * Ends the leases with the given ids, all of one lock, and wakes the waiters. The caller need not own the lock. When no
 * holder is left, the record stays for {@link LINGER_MS}, with the last token of the key.
 *
 * KEYS     the Redis keys of the lock (`NAMES`)
 * ARGV     `BEGIN`, then the ids of the holders to end, which the caller has read from any node
 * Returns  the positions of the ids that were ended
 *
 * The ids prevent a delayed or repeated request from ending the next holder. Writes that need no memory come first:
 * after the first write of a script no other write fails because of memory.
 */
export const FORCE_RELEASE = script(`
local call = redis.call
${BEGIN.locals(1)}
${NAMES.locals(['name', 'queue', 'holders', 'details'], 1)}
local record = call('GET', name)
local state = record and string.byte(record, 1) or ${RECORD.free}
if state == ${RECORD.free} then
  return {}
end
local found, wakes = {}, false
for i = ${BEGIN.size + 1}, #ARGV do
  local id, position = ARGV[i], i - ${BEGIN.size}
  local named = string.sub(record, ${RECORD.id.join(', ')}) == id
  if state == ${RECORD.shared} then
    ${END_READER}
    if type(ended) == 'table' then
      return ended
    elseif ended == 1 then
      found[#found + 1], wakes = position, over
    end
  elseif state == ${RECORD.permits} then
    local slot
    if string.byte(record, ${PERMITS.kind}) == ${PERMITS.several} then
      slot = tonumber(string.sub(call('HGET', details, id) or '', ${PERMIT.slot.join(', ')}))
    elseif named then
      slot = tonumber(string.sub(record, ${PERMITS.slot.join(', ')}))
    end
    if slot then
      ${END_PERMIT}
      if failed then
        return failed
      end
      found[#found + 1], wakes = position, true
    end
  elseif named then
    record = 'F' .. string.sub(record, 2)
    ${storeEvenIfFull('name', 'record', `'${LINGER_MS}'`)}
    if stored.err then
      return stored
    end
    found[#found + 1], wakes = position, true
  end
  if string.byte(record, 1) == ${RECORD.free} then
    break
  end
end
if wakes then
  local after, released = 0, ARGV[found[#found] + ${BEGIN.size}]
  ${WAKE}
end
return found
`);

/** Reads the answer of {@link FORCE_RELEASE}: which of the ids were ended. */
export function endedOf(ids: readonly string[], answer: unknown): readonly string[] {
  return (answer as readonly unknown[]).map((position) => ids[Number(position) - 1] as string);
}

/** The number of keys, the keys and the arguments of {@link FORCE_RELEASE}. */
export function packForceRelease(
  key: string,
  ids: readonly string[],
  keyPrefix: string,
  base: string,
): Packed {
  const names: string[] = [];
  NAMES.push(names, [key], keyPrefix);
  const args: string[] = [];
  BEGIN.push(args, base);
  return pack(names, [...args, ...ids]);
}
