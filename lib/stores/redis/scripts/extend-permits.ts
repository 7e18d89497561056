import type { Lease } from '../../../core/lease.js';
import { detailsKey, holdersKey, queueKey, recordKey } from '../lock-key.js';
import { LINGER_MS, RECORD } from '../record.js';
import type { Packed } from '../connection/command-channel.js';
import { END_PERMIT, KEEP_BOTH, nameInstead, PERMITS } from './permits.js';
import { WAKE } from './queue.js';
import { script } from './script.js';

/**
 * Extends each lease that holds a slot of each of its keys: it then ends no earlier than one ttl from now. Other
 * holders keep their expiry (S23). The result for one lease does not affect the others.
 *
 * If the nodes have agreed on the slots of a lease, and the lease has another slot of a key on this node, the lease
 * does not hold the key here. The script then frees that slot, does not extend the lease, and wakes the first waiter.
 *
 * KEYS     for each lease its n records, their n sets of holders, n hashes of their details, and n queues
 * ARGV[1]  ttl in milliseconds
 * ARGV[2]  the prefix of channel names; empty on a Cluster
 * ARGV     for each lease its id, n, and the agreed slot of each key, all of them empty if the slots are not known
 * Returns  a string with 1 for each lease that holds a slot of each of its keys, and 0 for each other
 *
 * PEXPIRE comes first: it works when memory is short, and after the first write of a script no other write fails
 * because of memory (S9). A longer life is not shortened: a delayed extension must not undo a later one.
 */
export const EXTEND_PERMITS = script(`
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local ttl, base = tonumber(ARGV[1]), ARGV[2]
local ends, life = math.floor(now) + ttl, ttl + ${LINGER_MS}
local records, lefts, owns, scores, livings = {}, {}, {}, {}, {}
local outcomes, key, at = {}, 0, 3
while ARGV[at] do
  local id, n, holds = ARGV[at], tonumber(ARGV[at + 1]), true
  for i = 1, n do
    local name, holders, details = KEYS[key + i], KEYS[key + n + i], KEYS[key + 2 * n + i]
    local record, wanted, own, held = redis.pcall('GET', name), tonumber(ARGV[at + 1 + i]), false, false
    if record and not record.err and string.byte(record, 1) == ${RECORD.permits} then
      local left, kind, slot = call('PTTL', name), string.byte(record, ${PERMITS.kind})
      if left > ${LINGER_MS} or left == -1 then
        if kind == ${PERMITS.several} then
          local found = redis.pcall('HMGET', details, id, 'e')
          own = not found.err and found[1]
          local score = own and string.byte(own, 17) ~= ${PERMITS.kept} and redis.pcall('ZSCORE', holders, id)
          score = score and not score.err and tonumber(score)
          if score and score > now then
            slot, scores[i], livings[i] = tonumber(string.sub(own, 18, 21)), score, tonumber(found[2])
          end
        elseif kind == ${PERMITS.alone} and string.sub(record, ${RECORD.id.join(', ')}) == id then
          slot = tonumber(string.sub(record, ${PERMITS.slot.join(', ')}))
        end
      end
      if slot and wanted and slot ~= wanted then
        ${END_PERMIT}
        if string.byte(record, 2) == ${RECORD.waited} then
          local queue, after, released = KEYS[key + 3 * n + i], 0, id
          ${WAKE}
        end
      else
        held = slot
      end
      records[i], lefts[i], owns[i] = record, left, own
    end
    holds = holds and held
  end
  for i = 1, holds and n or 0 do
    local name, own, left = KEYS[key + i], owns[i], lefts[i]
    if not own then
      if left < life then
        call('PEXPIRE', name, life)
      end
    elseif scores[i] < ends then
      local holders, details, record, lives = KEYS[key + n + i], KEYS[key + 2 * n + i], records[i], livings[i]
      ${KEEP_BOTH}
      call('ZADD', holders, ends, id)
      if left == -1 then
        -- Give an expiry to a record without one, which would be held for ever.
        left = call('ZRANGE', holders, -1, -1, 'WITHSCORES')[2] - math.floor(now) + ${LINGER_MS}
        call('PEXPIRE', name, left)
      end
      if left <= life then
        ${nameInstead('id')}
        call('SET', name, record, 'PX', life)
      end
    end
  end
  outcomes[#outcomes + 1] = holds and '1' or '0'
  key, at = key + 4 * n, at + 2 + n
end
return table.concat(outcomes)
`);

/** The number of keys, the keys and the arguments of {@link EXTEND_PERMITS}. */
export function packExtendPermits(
  leases: readonly Lease[],
  ttl: number,
  keyPrefix: string,
  base: string,
): Packed {
  const packed: [number, ...(string | number)[]] = [0];
  for (const { keys } of leases)
    for (const nameOf of KEYS) for (const key of keys) packed.push(nameOf(keyPrefix, key));
  packed[0] = packed.length - 1;
  packed.push(ttl, base);
  for (const { id, keys, slots } of leases) {
    packed.push(id, keys.length);
    for (const index of keys.keys()) packed.push(slots?.[index] ?? '');
  }
  return packed;
}

const KEYS = [recordKey, holdersKey, detailsKey, queueKey];
