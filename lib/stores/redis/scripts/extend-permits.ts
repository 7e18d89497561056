import type { Lease } from '../../../core/lease.js';
import { LINGER_MS } from '../../../core/store-times.js';
import { LeaseNames } from '../lease-names.js';
import { detailsKey, holdersKey, queueKey, recordKey } from '../lock-key.js';
import { RECORD } from '../record.js';
import { Arguments, number, text } from './arguments.js';
import { EXTENDED, outcomeOf } from './extend-command.js';
import { END_PERMIT, KEEP_BOTH, nameInstead, PERMIT, PERMITS } from './permits.js';
import { WAKE } from './queue.js';
import { type Packed, pack, script } from './script.js';

const NAMES = new LeaseNames({
  name: recordKey,
  holders: holdersKey,
  details: detailsKey,
  queue: queueKey,
});

/** The arguments before those of the leases: milliseconds; the prefix of channel names, empty on a Cluster. */
const BEGIN = new Arguments<{ readonly ttl: number; readonly base: string }>({
  ttl: number(({ ttl }) => ttl),
  base: text(({ base }) => base),
});

/**
 * Extends each lease that holds a slot of each of its keys: it then ends no earlier than one ttl from now. Other
 * holders keep their expiry (S23). The result for one lease does not affect the others.
 *
 * If the nodes have agreed on the slots of a lease, and the lease has another slot of a key on this node, the lease
 * does not hold the key here. The script then frees that slot, does not extend the lease, and wakes the first waiter.
 *
 * KEYS     for each lease its Redis keys (`NAMES`)
 * ARGV     `BEGIN`, then for each lease {@link EXTENDED} and the agreed slot of each key; all slots are empty if they
 *          are not known
 * Returns  a string with 1 for each lease that holds a slot of each of its keys, and 0 for each other
 *
 * PEXPIRE comes first: it works when memory is short, and after the first write of a script no other write fails
 * because of memory (S9). A longer life is not shortened: a delayed extension must not undo a later one.
 */
export const EXTEND_PERMITS = script(`
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + time[2] / 1000
${BEGIN.locals(1)}
local ends, life = math.floor(now) + ttl, ttl + ${LINGER_MS}
local records, lefts, owns, scores, livings = {}, {}, {}, {}, {}
local outcomes, key, at = {}, 0, ${BEGIN.size + 1}
while ARGV[at] do
  ${EXTENDED.locals('at')}
  local holds, wishes = true, at + ${EXTENDED.size - 1}
  for i = 1, n do
    ${NAMES.locals(['name', 'holders', 'details', 'queue'])}
    local record, wanted, own, held = redis.pcall('GET', name), tonumber(ARGV[wishes + i]), false, false
    if record and not record.err and string.byte(record, 1) == ${RECORD.permits} then
      local left, kind, slot = call('PTTL', name), string.byte(record, ${PERMITS.kind})
      if left > ${LINGER_MS} or left == -1 then
        if kind == ${PERMITS.several} then
          local told = redis.pcall('HMGET', details, id, 'e')
          own = not told.err and told[1]
          local score = own and string.byte(own, ${PERMIT.state}) ~= ${PERMITS.kept} and redis.pcall('ZSCORE', holders, id)
          score = score and not score.err and tonumber(score)
          if score and score > now then
            slot, scores[i], livings[i] = tonumber(string.sub(own, ${PERMIT.slot.join(', ')})), score, tonumber(told[2])
          end
        elseif kind == ${PERMITS.alone} and string.sub(record, ${RECORD.id.join(', ')}) == id then
          slot = tonumber(string.sub(record, ${PERMITS.slot.join(', ')}))
        end
      end
      if slot and wanted and slot ~= wanted then
        ${END_PERMIT}
        if string.byte(record, 2) == ${RECORD.waited} then
          local after, released = 0, id
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
    ${NAMES.locals(['name', 'holders', 'details'])}
    local own, left = owns[i], lefts[i]
    if not own then
      if left < life then
        call('PEXPIRE', name, life)
      end
    elseif scores[i] < ends then
      local record, lives = records[i], livings[i]
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
  outcomes[#outcomes + 1] = ${outcomeOf('holds')}
  key, at = key + ${NAMES.size} * n, at + ${EXTENDED.size} + n
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
  const names: string[] = [];
  const args: (string | number)[] = [];
  BEGIN.push(args, { ttl, base });
  for (const lease of leases) {
    NAMES.push(names, lease.keys, keyPrefix);
    EXTENDED.push(args, lease);
    for (const index of lease.keys.keys()) args.push(lease.slots?.[index] ?? '');
  }
  return pack(names, args);
}
