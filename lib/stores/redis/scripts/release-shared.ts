import type { ReleaseRequest } from '../../../core/ports.js';
import { detailsKey, holdersKey, queueKey, recordKey } from '../lock-key.js';
import { LINGER_MS, RECORD } from '../record.js';
import type { Packed } from '../connection/command-channel.js';
import { CODE_FIRST } from './lua.js';
import { WAKE } from './queue.js';
import { script } from './script.js';

/**
 * Lua text that ends one reader's lease of a key. If the record names it, the last of the others is named in its place.
 *
 * Needs the locals `call`, `name` and `record` (the Redis key of the record, and the record, which says that readers hold the
 * lock or held it last), `holders` and `details` (the Redis keys beside it) and `id`. Sets the locals `ended` (1 when the reader was
 * there, else 0, or an error), `over` (whether nobody is left) and `record` (as it is now).
 *
 * Where memory is short, what needs none comes first: after the first write of a script no other fails for want of memory (S9).
 */
export const END_READER = `
local ended, over = 0, false
if string.sub(record, ${RECORD.id.join(', ')}) == id then
  local last, own, left = redis.pcall('ZRANGE', holders, -1, -1, 'WITHSCORES'), false, 0
  if last.err then
    ended = last
  elseif last[1] then
    local time = call('TIME')
    left = math.ceil(last[2] - time[1] * 1000 - time[2] / 1000)
    own = redis.pcall('HGET', details, last[1])
    if own and own.err then
      ended = own
    end
  end
  if ended == 0 then
    over = left <= 0
    if over then
      record = 'F' .. string.sub(record, 2)
    else
      record = string.sub(record, 1, ${RECORD.id[0] - 1}) .. last[1]
        .. (own and string.sub(own, 17) or string.sub(record, ${RECORD.id[1] + 1}))
    end
    left = over and ${LINGER_MS} or left + ${LINGER_MS}
    ended = redis.pcall('SET', name, record, 'PX', left)
    if ended.err and string.find(ended.err, 'OOM', 1, true) then
      call('PEXPIRE', name, left)
      ended = redis.pcall('SET', name, record, 'PX', left)
    end
    if not ended.err then
      ended = 1
      if not over then
        call('ZREM', holders, last[1])
        local same = own and string.sub(own, 1, 16) == string.sub(record, ${RECORD.token.join(', ')})
        call('HDEL', details, id, same and last[1] or id)
        call('PEXPIRE', holders, left)
        call('PEXPIRE', details, left)
      elseif last[1] then
        call('DEL', holders, details)
      else
        redis.pcall('HDEL', details, id)
      end
    end
  end
else
  ended = redis.pcall('HDEL', details, id)
  if type(ended) == 'number' then
    ended = redis.pcall('ZREM', holders, id)
  end
end
`;

/**
 * Ends readers' leases, and no others (S7). The last reader of a lock frees it and tells those who wait when they can try.
 *
 * KEYS     for each lease: its n records, their n sets of holders, n hashes of what is told of them, and n queues
 * ARGV[1]  what the names of channels begin with; empty on a Cluster
 * ARGV     for each lease its id, n, and the milliseconds after which the first in line shall try; 0 for at once
 * Returns  as {@link RELEASE}
 */
export const RELEASE_SHARED = script(`
local call, base = redis.call, ARGV[1]
local answers, key = {}, 0
for at = 2, #ARGV, 3 do
  local id, n, after = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local answer, woken, released = nil, 0, id
  for i = key + 1, key + n do
    local name, holders, details, queue = KEYS[i], KEYS[n + i], KEYS[2 * n + i], KEYS[3 * n + i]
    local record = redis.pcall('GET', name)
    if record and record.err then
      answer = record
    elseif record and string.byte(record, 1) == ${RECORD.shared} then
      ${END_READER}
      if type(ended) == 'table' then
        answer = ended
      elseif over and string.byte(record, 2) == ${RECORD.waited} then
        ${WAKE}
        woken = woken + told
      end
    end
  end
  if answer then
    ${CODE_FIRST}
    if string.sub(answer.err, 1, 8) == 'READONLY' then
      -- The answer for all: clients look for that error (\`reconnectOnError\`).
      return answer
    end
  end
  answers[#answers + 1] = answer or woken
  key = key + 4 * n
end
return answers
`);

/** The number of keys, the keys and the arguments of {@link RELEASE_SHARED}. */
export function packReleaseShared(
  requests: readonly ReleaseRequest[],
  keyPrefix: string,
  base: string,
): Packed {
  const packed: [number, ...(string | number)[]] = [0];
  for (const { lease } of requests)
    for (const nameOf of KEYS) for (const key of lease.keys) packed.push(nameOf(keyPrefix, key));
  packed[0] = packed.length - 1;
  packed.push(base);
  for (const { lease, pause } of requests) packed.push(lease.id, lease.keys.length, pause);
  return packed;
}

const KEYS = [recordKey, holdersKey, detailsKey, queueKey];
