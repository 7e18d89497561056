import type { Lease } from '../../../core/lease.js';
import { LINGER_MS } from '../../../core/store-times.js';
import { LeaseNames } from '../lease-names.js';
import { detailsKey, holdersKey, recordKey } from '../lock-key.js';
import { READER, RECORD } from '../record.js';
import { STORE_AHEAD } from './marker.js';
import { markerAfter, packRaiseWith, RAISE_ARGUMENTS } from './raise-command.js';
import { type Packed, script } from './script.js';

const NAMES = new LeaseNames({ name: recordKey, holders: holdersKey, details: detailsKey });

/**
 * Raises the tokens of a reader's lease to the token on which the nodes agree. Does so only if the lease holds all its
 * keys and has no larger token. The lease has a larger token if it was granted again meanwhile. A larger token of the
 * phase is no obstacle, and stays as it is. Otherwise readers could prevent each other's agreement (S21, test/model).
 *
 * A token that is ahead of this node's clock is first stored in the marker, as in {@link RAISE}.
 *
 * KEYS     the lease's Redis keys (`NAMES`), and the marker, if the node has one
 * ARGV     {@link RAISE_ARGUMENTS}
 * Returns  1 when all tokens of the lease have at least this value now, else 0. Also 0 for a token ahead of the clock if the
 *          node has no marker to store it
 */
export const RAISE_SHARED = script(`
local call = redis.call
${RAISE_ARGUMENTS.locals(1)}
local time = call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local records, own = {}, {}
for i = 1, n do
  ${NAMES.locals(['name', 'holders', 'details'], 'i')}
  local record = call('GET', name)
  local left = record and string.byte(record, 1) == ${RECORD.shared} and call('PTTL', name) or 0
  local held = left > ${LINGER_MS} or left == -1
  local last = held and string.sub(record, ${RECORD.token.join(', ')})
  if held then
    own[i] = string.byte(record, ${RECORD.beside}) == ${RECORD.others} and call('HGET', details, id)
    if string.sub(record, ${RECORD.id.join(', ')}) ~= id then
      local ends = call('ZSCORE', holders, id)
      held = own[i] and ends and tonumber(ends) > now
    end
  end
  if not held or tonumber(string.sub(own[i] or last, ${READER.token.join(', ')})) > token then
    return 0
  end
  records[i] = record
end
local marker = ${markerAfter(NAMES)}
${STORE_AHEAD}
local digits = string.format('%016.0f', token)
for i = 1, n do
  local record, hash = records[i], ${NAMES.at('details', 'i')}
  local named = string.sub(record, ${RECORD.id.join(', ')})
  if string.sub(record, ${RECORD.token.join(', ')}) < digits then
    if named ~= id then
      -- The reader that the record names keeps its token, in the hash.
      call('HSETNX', hash, named, string.sub(record, ${RECORD.token[0]}, ${RECORD.token[1] + 1}) .. string.sub(record, ${RECORD.beside + 1}))
    end
    call('SETRANGE', ${NAMES.at('name', 'i')}, ${RECORD.token[0] - 1}, digits)
  end
  if own[i] and string.sub(own[i], ${READER.token.join(', ')}) < digits then
    call('HSET', hash, id, digits .. string.sub(own[i], ${READER.token[1] + 1}))
  end
end
return 1
`);

/** The number of keys, the keys and the arguments of {@link RAISE_SHARED}. */
export function packRaiseShared(
  lease: Lease,
  token: number,
  keyPrefix: string,
  marker: string | undefined,
): Packed {
  return packRaiseWith(NAMES, lease, token, keyPrefix, marker);
}
