import { LEAD_MS, STEPS_PER_SECOND } from '../../../core/fencing-token.js';
import type { Lease } from '../../../core/lease.js';
import { recordKey } from '../lock-key.js';
import { LINGER_MS, RECORD } from '../record.js';
import type { Packed } from '../connection/command-channel.js';
import { script } from './script.js';

/**
 * Raises the tokens of a lease to the token on which the nodes agree, on two conditions: the lease holds all its
 * records, and none of them has a larger token. A token that a quorum of nodes has stored must be larger than every
 * earlier token. Without either condition, a command that runs twice could break this rule (test/model).
 *
 * The marker is a key of the node, which outlives the record. If the token is ahead of the node's clock, the marker
 * stores it first, so that tokens granted after the record has expired are still larger.
 *
 * KEYS     n records, and the marker, if the node has one
 * ARGV[1]  n
 * ARGV[2]  the id of the lease
 * ARGV[3]  the token
 * Returns  1 when all records have the token now, else 0. Also 0 for a token ahead of the clock if the node has no marker to
 *          store it
 */
export const RAISE = script(`
local call = redis.call
local n, token = tonumber(ARGV[1]), tonumber(ARGV[3])
for i = 1, n do
  local record = call('GET', KEYS[i])
  if not record or string.byte(record, 1) ~= ${RECORD.held} or string.sub(record, ${RECORD.id.join(', ')}) ~= ARGV[2]
    or tonumber(string.sub(record, ${RECORD.token.join(', ')})) > token then
    return 0
  end
  local left = call('PTTL', KEYS[i])
  if left <= ${LINGER_MS} and left ~= -1 then
    return 0
  end
end
local time = call('TIME')
if token > (time[1] + ${LEAD_MS / 1_000}) * ${STEPS_PER_SECOND} + math.floor(time[2] * ${STEPS_PER_SECOND / 1_000_000}) then
  local marker = KEYS[n + 1]
  local mark = marker and call('GET', marker)
  if not marker then
    return 0
  end
  if not mark or tonumber(string.sub(mark, 18, 33)) < token then
    local born = mark and string.sub(mark, 1, 16) or string.format('%016.0f', time[1] * 1000 + math.floor(time[2] / 1000))
    call('SET', marker, born .. string.format(':%016.0f', token))
  end
end
for i = 1, n do
  call('SETRANGE', KEYS[i], ${RECORD.token[0] - 1}, string.format('%016.0f', token))
end
return 1
`);

/** The number of keys, the keys and the arguments of {@link RAISE}. */
export function packRaise(
  { id, keys }: Lease,
  token: number,
  keyPrefix: string,
  marker: string | undefined,
): Packed {
  const records = keys.map((key) => recordKey(keyPrefix, key));
  const all = marker === undefined ? records : [...records, marker];
  return [all.length, ...all, keys.length, id, token];
}
