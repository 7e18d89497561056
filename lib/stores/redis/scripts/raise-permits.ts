import { LEAD_MS, STEPS_PER_SECOND } from '../../../core/fencing-token.js';
import type { Lease } from '../../../core/lease.js';
import { detailsKey, holdersKey, recordKey } from '../lock-key.js';
import { LINGER_MS, RECORD } from '../record.js';
import type { Packed } from '../connection/command-channel.js';
import { PERMITS } from './permits.js';
import { script } from './script.js';

/**
 * Raises the tokens of the slots of a lease to the token on which the nodes agree, if the lease holds a slot of each of
 * its keys. It raises nothing if one of these slots has a larger token. This script works as RAISE does, but each slot
 * has its own token (S20). The tokens of other slots do not matter and do not change. The record has the largest token.
 *
 * KEYS     n records, their n sets of holders and n hashes of their details, and the marker, if the node has one
 * ARGV[1]  n
 * ARGV[2]  the id of the lease
 * ARGV[3]  the token
 * ARGV     then the slot of each key, or empty if it is not known
 * Returns  1 when all these slots have the token now, else 0. Also 0 for a token ahead of the clock if the node has no marker
 *          to store it
 */
export const RAISE_PERMITS = script(`
local call = redis.call
local n, id, token = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local time = call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local owns, lasts = {}, {}
for i = 1, n do
  local record = call('GET', KEYS[i])
  local left = record and string.byte(record, 1) == ${RECORD.permits} and call('PTTL', KEYS[i]) or 0
  if left <= ${LINGER_MS} and left ~= -1 then
    return 0
  end
  local kind, last, slot = string.byte(record, ${PERMITS.kind})
  if kind == ${PERMITS.several} then
    local own, ends = call('HGET', KEYS[2 * n + i], id), call('ZSCORE', KEYS[n + i], id)
    if not own or not ends or tonumber(ends) <= now or string.byte(own, 17) == ${PERMITS.kept} then
      return 0
    end
    last, slot, owns[i] = tonumber(string.sub(own, 1, 16)), string.sub(own, 18, 21), own
  elseif kind == ${PERMITS.alone} and string.sub(record, ${RECORD.id.join(', ')}) == id then
    last = tonumber(string.sub(record, ${RECORD.token.join(', ')}))
    slot = string.sub(record, ${PERMITS.slot.join(', ')})
  end
  lasts[i] = string.sub(record, ${RECORD.token.join(', ')})
  local wanted = tonumber(ARGV[3 + i])
  if not last or last > token or (wanted and wanted ~= tonumber(slot)) then
    return 0
  end
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
  local own = owns[i]
  if own then
    local slot = tonumber(string.sub(own, 18, 21))
    call('HSET', KEYS[2 * n + i], id, digits .. string.sub(own, 17), slot, digits .. ':' .. id)
  end
  if lasts[i] < digits then
    call('SETRANGE', KEYS[i], ${RECORD.token[0] - 1}, digits)
  end
end
return 1
`);

/** The number of keys, the keys and the arguments of {@link RAISE_PERMITS}. */
export function packRaisePermits(
  { id, keys, slots }: Lease,
  token: number,
  keyPrefix: string,
  marker: string | undefined,
): Packed {
  const names = KEYS.flatMap((nameOf) => keys.map((key) => nameOf(keyPrefix, key)));
  const all = marker === undefined ? names : [...names, marker];
  const wanted = keys.map((_, index) => slots?.[index] ?? '');
  return [all.length, ...all, keys.length, id, token, ...wanted];
}

const KEYS = [recordKey, holdersKey, detailsKey];
