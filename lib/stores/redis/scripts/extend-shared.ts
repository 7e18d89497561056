import type { Lease } from '../../../core/lease.js';
import { detailsKey, holdersKey, recordKey } from '../lock-key.js';
import { LINGER_MS, RECORD } from '../record.js';
import type { Packed } from '../connection/command-channel.js';
import { script } from './script.js';

/**
 * Makes readers' leases end no sooner than the ttl from now, each if all its keys are held by it; nobody else's end changes
 * (S23). The record names the one who ends last, and so one who does by that takes the place of the one before.
 *
 * KEYS     for each lease its n records, their n sets of holders and n hashes of what is told of them
 * ARGV[1]  ttl and linger in milliseconds
 * ARGV     for each lease its id and n
 * Returns  as {@link EXTEND}
 *
 * PEXPIRE comes first: it works when memory is short, and after the first write of a script no other fails for want of memory
 * (S9). A record without expiry is held for ever, and gets one from the reader that it names.
 */
export const EXTEND_SHARED = script(`
local call, try = redis.call, redis.pcall
local time = call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local life = tonumber(ARGV[1])
local ends = math.floor(now) + life - ${LINGER_MS}
local outcomes, key = {}, 0
for at = 2, #ARGV, 2 do
  local id, n, held, records, lefts, scores = ARGV[at], tonumber(ARGV[at + 1]), true, {}, {}, {}
  local holders, details = key + n, key + 2 * n
  for i = 1, n do
    local record = held and try('GET', KEYS[key + i])
    held = record and not record.err and string.byte(record, 1) == ${RECORD.shared}
    if held then
      local left = call('PTTL', KEYS[key + i])
      held = left > ${LINGER_MS} or left == -1
      records[i], lefts[i] = record, left
      if held and string.sub(record, ${RECORD.id.join(', ')}) ~= id then
        local score = try('ZSCORE', KEYS[holders + i], id)
        held = score and not score.err and tonumber(score) > now
        scores[i] = held and tonumber(score)
      end
    end
  end
  for i = 1, held and n or 0 do
    local name, set, hash, record, left = KEYS[key + i], KEYS[holders + i], KEYS[details + i], records[i], lefts[i]
    if not scores[i] then
      local kept = life
      if left == -1 then
        local last = call('ZRANGE', set, -1, -1, 'WITHSCORES')
        kept = math.max(life, last[1] and math.ceil(last[2] - now) + ${LINGER_MS} or 0)
      end
      if left < life then
        call('PEXPIRE', name, kept)
      end
    elseif scores[i] < ends then
      local isLast = left < life and left ~= -1
      local kept = left < life and life or left
      call('PEXPIRE', set, kept)
      call('PEXPIRE', hash, kept)
      local own = isLast and call('HGET', hash, id)
      if own then
        -- They change places: the record names the one who ends last.
        local other = string.sub(record, ${RECORD.id.join(', ')})
        call('ZADD', set, math.floor(now) + left - ${LINGER_MS}, other)
        call('HSETNX', hash, other, string.sub(record, ${RECORD.token.join(', ')}) .. string.sub(record, ${RECORD.id[1] + 1}))
        call('ZREM', set, id)
        if string.sub(own, 1, 16) == string.sub(record, ${RECORD.token.join(', ')}) then
          call('HDEL', hash, id)
        end
        call('SET', name, string.sub(record, 1, ${RECORD.id[0] - 1}) .. id .. string.sub(own, 17), 'PX', life)
      else
        call('ZADD', set, ends, id)
        if isLast then
          -- What is told of it is gone, and the record outlives it all the same.
          call('PEXPIRE', name, life)
        end
      end
    end
  end
  outcomes[#outcomes + 1] = held and '1' or '0'
  key = key + 3 * n
end
return table.concat(outcomes)
`);

/** The number of keys, the keys and the arguments of {@link EXTEND_SHARED}. */
export function packExtendShared(leases: readonly Lease[], ttl: number, keyPrefix: string): Packed {
  const packed: [number, ...(string | number)[]] = [0];
  for (const { keys } of leases)
    for (const nameOf of KEYS) for (const key of keys) packed.push(nameOf(keyPrefix, key));
  packed[0] = packed.length - 1;
  packed.push(ttl + LINGER_MS);
  for (const { id, keys } of leases) packed.push(id, keys.length);
  return packed;
}

const KEYS = [recordKey, holdersKey, detailsKey];
