import type { Lease } from '../../../core/lease.js';
import { LINGER_MS } from '../../../core/store-times.js';
import { LeaseNames } from '../lease-names.js';
import { detailsKey, holdersKey, recordKey } from '../lock-key.js';
import { RECORD } from '../record.js';
import { STORE_AHEAD } from './marker.js';
import { PERMIT, PERMITS } from './permits.js';
import { markerAfter, packRaiseWith, RAISE_ARGUMENTS } from './raise-command.js';
import { type Packed, script } from './script.js';

const NAMES = new LeaseNames({ name: recordKey, holders: holdersKey, details: detailsKey });

/**
 * Raises the tokens of the slots of a lease to the token on which the nodes agree, if the lease holds a slot of each of
 * its keys. It raises nothing if one of these slots has a larger token. This script works as RAISE does, but each slot
 * has its own token (S20). The tokens of other slots do not matter and do not change. The record has the largest token.
 *
 * KEYS     the lease's Redis keys (`NAMES`), and the marker, if the node has one
 * ARGV     {@link RAISE_ARGUMENTS}, then the slot of each key, or empty if it is not known
 * Returns  1 when all these slots have the token now, else 0. Also 0 for a token ahead of the clock if the node has no marker
 *          to store it
 */
export const RAISE_PERMITS = script(`
local call = redis.call
${RAISE_ARGUMENTS.locals(1)}
local time = call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local owns, lasts = {}, {}
for i = 1, n do
  ${NAMES.locals(['name', 'holders', 'details'], 'i')}
  local record = call('GET', name)
  local left = record and string.byte(record, 1) == ${RECORD.permits} and call('PTTL', name) or 0
  if left <= ${LINGER_MS} and left ~= -1 then
    return 0
  end
  local kind, last, slot = string.byte(record, ${PERMITS.kind})
  if kind == ${PERMITS.several} then
    local own, ends = call('HGET', details, id), call('ZSCORE', holders, id)
    if not own or not ends or tonumber(ends) <= now or string.byte(own, ${PERMIT.state}) == ${PERMITS.kept} then
      return 0
    end
    last, slot, owns[i] = tonumber(string.sub(own, ${PERMIT.token.join(', ')})), string.sub(own, ${PERMIT.slot.join(', ')}), own
  elseif kind == ${PERMITS.alone} and string.sub(record, ${RECORD.id.join(', ')}) == id then
    last = tonumber(string.sub(record, ${RECORD.token.join(', ')}))
    slot = string.sub(record, ${PERMITS.slot.join(', ')})
  end
  lasts[i] = string.sub(record, ${RECORD.token.join(', ')})
  local wanted = tonumber(ARGV[${RAISE_ARGUMENTS.size} + i])
  if not last or last > token or (wanted and wanted ~= tonumber(slot)) then
    return 0
  end
end
local marker = ${markerAfter(NAMES)}
${STORE_AHEAD}
local digits = string.format('%016.0f', token)
for i = 1, n do
  local own = owns[i]
  if own then
    local slot = tonumber(string.sub(own, ${PERMIT.slot.join(', ')}))
    call('HSET', ${NAMES.at('details', 'i')}, id, digits .. string.sub(own, ${PERMIT.state}), slot, digits .. ':' .. id)
  end
  if lasts[i] < digits then
    call('SETRANGE', ${NAMES.at('name', 'i')}, ${RECORD.token[0] - 1}, digits)
  end
end
return 1
`);

/** The number of keys, the keys and the arguments of {@link RAISE_PERMITS}. */
export function packRaisePermits(
  lease: Lease,
  token: number,
  keyPrefix: string,
  marker: string | undefined,
): Packed {
  const wanted = lease.keys.map((_, index) => lease.slots?.[index] ?? '');
  return packRaiseWith(NAMES, lease, token, keyPrefix, marker, wanted);
}
