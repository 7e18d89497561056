import type { Lease } from '../../../core/lease.js';
import { LINGER_MS } from '../../../core/store-times.js';
import { LeaseNames } from '../lease-names.js';
import { detailsKey, holdersKey, recordKey } from '../lock-key.js';
import { READER, RECORD } from '../record.js';
import { EXTENDED, LIFE, outcomeOf, packExtendWith } from './extend-command.js';
import { expiryOf, KEEP_READERS } from './readers.js';
import { type Packed, script } from './script.js';

const NAMES = new LeaseNames({ name: recordKey, holders: holdersKey, details: detailsKey });

/**
 * Extends each lease of readers that still holds all its keys, so that it ends no earlier than one ttl from now. The
 * leases of other readers keep their expiry (S23). The record names the reader whose lease ends last. The
 * extension may make the extended reader the last one.
 *
 * KEYS     for each lease its Redis keys (`NAMES`)
 * ARGV     {@link LIFE}, then for each lease {@link EXTENDED}
 * Returns  as {@link EXTEND}
 *
 * PEXPIRE comes first: it works when memory is short, and after the first write of a script no other write fails
 * because of memory (S9). A record without an expiry would be held for ever, so it gets the end of the reader that it
 * names.
 */
export const EXTEND_SHARED = script(`
local call, pcall, sub, byte = redis.call, redis.pcall, string.sub, string.byte
local time, now, ends
${LIFE.locals(1)}
life = tonumber(life)
local outcomes, key = {}, 0
for at = ${LIFE.size + 1}, #ARGV, ${EXTENDED.size} do
  ${EXTENDED.locals('at')}
  local held, records, lefts, scores = true, {}, {}, {}
  for i = 1, n do
    ${NAMES.locals(['name', 'holders'])}
    local record = held and pcall('GET', name)
    held = record and not record.err and byte(record, 1) == ${RECORD.shared}
    if held then
      local left, named = call('PTTL', name), sub(record, ${RECORD.id.join(', ')}) == id
      local beside = byte(record, ${RECORD.beside}) == ${RECORD.others}
      held = (left > ${LINGER_MS} or left == -1) and (named or beside)
      records[i], lefts[i] = record, left
      if beside and not now then
        time = call('TIME')
        now = time[1] * 1000 + time[2] / 1000
        ends = math.floor(now) + life - ${LINGER_MS}
      end
      if held and not named then
        local score = pcall('ZSCORE', holders, id)
        held = score and not score.err and tonumber(score) > now
        scores[i] = held and tonumber(score)
      end
    end
  end
  for i = 1, held and n or 0 do
    ${NAMES.locals(['name', 'holders', 'details'])}
    local record, left = records[i], lefts[i]
    local beside, score = byte(record, ${RECORD.beside}) == ${RECORD.others}, scores[i]
    local longer = left < life and left ~= -1
    if not score then
      local kept = life
      if left == -1 and beside then
        local last = call('ZRANGE', holders, -1, -1, 'WITHSCORES')
        kept = math.max(life, last[1] and math.ceil(last[2] - now) + ${LINGER_MS} or 0)
      end
      if left < life then
        call('PEXPIRE', name, kept)
      end
    elseif score < ends then
      local own
      if longer then
        call('PEXPIRE', name, life)
        own = call('HGET', details, id)
      else
        call('PEXPIREAT', holders, ${expiryOf('now + math.max(left, life)')})
      end
      if own then
        -- Exchange the two readers: the record names the reader that ends last.
        local other = sub(record, ${RECORD.id.join(', ')})
        call('ZADD', holders, math.floor(now) + left - ${LINGER_MS}, other)
        call('HSETNX', details, other, sub(record, ${RECORD.token.join(', ')}) .. ':' .. sub(record, ${RECORD.beside + 1}))
        call('ZREM', holders, id)
        if sub(own, ${READER.token.join(', ')}) == sub(record, ${RECORD.token.join(', ')}) then
          call('HDEL', details, id)
        end
        call('SET', name, sub(record, 1, ${RECORD.id[0] - 1}) .. id .. '+' .. sub(own, ${READER.since[0]}), 'PX', life)
      else
        call('ZADD', holders, ends, id)
      end
    end
    if beside and (longer or left == -1) then
      local ended, ends = longer and now + left or 0, now + life
      ${KEEP_READERS}
    end
  end
  outcomes[#outcomes + 1] = ${outcomeOf('held')}
  key = key + ${NAMES.size} * n
end
return table.concat(outcomes)
`);

/** The number of keys, the keys and the arguments of {@link EXTEND_SHARED}. */
export function packExtendShared(leases: readonly Lease[], ttl: number, keyPrefix: string): Packed {
  return packExtendWith(NAMES, leases, ttl, keyPrefix);
}
