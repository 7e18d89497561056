import { LEAD_MS, STEPS_PER_SECOND } from '../../../core/fencing-token.js';
import type { Lease } from '../../../core/lease.js';
import { detailsKey, holdersKey, recordKey } from '../lock-key.js';
import { LINGER_MS, RECORD } from '../record.js';
import type { Packed } from '../connection/command-channel.js';
import { script } from './script.js';

/**
 * Raises the tokens of a reader's lease to the token on which the nodes agree. Does so only if the lease holds all its
 * keys and has no larger token. The lease has a larger token if it was granted again meanwhile. A larger token of the
 * phase is no obstacle, and stays as it is. Otherwise readers could prevent each other's agreement (S21, test/model).
 *
 * A token that is ahead of this node's clock is first stored in the marker, as in {@link RAISE}.
 *
 * KEYS     n records, their n sets of holders and n hashes of their details, and the marker, if the node has one
 * ARGV[1]  n
 * ARGV[2]  the id of the lease
 * ARGV[3]  the token
 * Returns  1 when all tokens of the lease have at least this value now, else 0. Also 0 for a token ahead of the clock if the
 *          node has no marker to store it
 */
export const RAISE_SHARED = script(`
local call = redis.call
local n, id, token = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local time = call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local records, own = {}, {}
for i = 1, n do
  local record = call('GET', KEYS[i])
  local left = record and string.byte(record, 1) == ${RECORD.shared} and call('PTTL', KEYS[i]) or 0
  local held = left > ${LINGER_MS} or left == -1
  local last = held and string.sub(record, ${RECORD.token.join(', ')})
  if held then
    own[i] = string.byte(record, ${RECORD.beside}) == ${RECORD.others} and call('HGET', KEYS[2 * n + i], id)
    if string.sub(record, ${RECORD.id.join(', ')}) ~= id then
      local ends = call('ZSCORE', KEYS[n + i], id)
      held = own[i] and ends and tonumber(ends) > now
    end
  end
  if not held or tonumber(string.sub(own[i] or last, 1, 16)) > token then
    return 0
  end
  records[i] = record
end
if token > (time[1] + ${LEAD_MS / 1_000}) * ${STEPS_PER_SECOND} + math.floor(time[2] * ${STEPS_PER_SECOND / 1_000_000}) then
  local marker = KEYS[3 * n + 1]
  local mark = marker and call('GET', marker)
  if not marker then
    return 0
  end
  if not mark or tonumber(string.sub(mark, 18, 33)) < token then
    local born = mark and string.sub(mark, 1, 16) or string.format('%016.0f', time[1] * 1000 + math.floor(time[2] / 1000))
    call('SET', marker, born .. string.format(':%016.0f', token))
  end
end
local digits = string.format('%016.0f', token)
for i = 1, n do
  local record, hash = records[i], KEYS[2 * n + i]
  local named = string.sub(record, ${RECORD.id.join(', ')})
  if string.sub(record, ${RECORD.token.join(', ')}) < digits then
    if named ~= id then
      -- The reader that the record names keeps its token, in the hash.
      call('HSETNX', hash, named, string.sub(record, ${RECORD.token[0]}, ${RECORD.token[1] + 1}) .. string.sub(record, ${RECORD.beside + 1}))
    end
    call('SETRANGE', KEYS[i], ${RECORD.token[0] - 1}, digits)
  end
  if own[i] and string.sub(own[i], 1, 16) < digits then
    call('HSET', hash, id, digits .. string.sub(own[i], 17))
  end
end
return 1
`);

/** The number of keys, the keys and the arguments of {@link RAISE_SHARED}. */
export function packRaiseShared(
  { id, keys }: Lease,
  token: number,
  keyPrefix: string,
  marker: string | undefined,
): Packed {
  const names = [recordKey, holdersKey, detailsKey].flatMap((nameOf) =>
    keys.map((key) => nameOf(keyPrefix, key)),
  );
  const all = marker === undefined ? names : [...names, marker];
  return [all.length, ...all, keys.length, id, token];
}
