import type { Lease } from '../../../core/lease.js';
import { LINGER_MS } from '../../../core/store-times.js';
import { LeaseNames } from '../lease-names.js';
import { recordKey } from '../lock-key.js';
import { RECORD } from '../record.js';
import { STORE_AHEAD } from './marker.js';
import { markerAfter, packRaiseWith, RAISE_ARGUMENTS } from './raise-command.js';
import { type Packed, script } from './script.js';

const NAMES = new LeaseNames({ name: recordKey });

/**
 * Raises the tokens of a lease to the token on which the nodes agree, on two conditions: the lease holds all its
 * records, and none of them has a larger token. A token that a quorum of nodes has stored must be larger than every
 * earlier token. Without either condition, a command that runs twice could break this rule (test/model).
 *
 * The marker is a key of the node, which outlives the record. If the token is ahead of the node's clock, the marker
 * stores it first, so that tokens granted after the record has expired are still larger.
 *
 * KEYS     the lease's Redis keys (`NAMES`), and the marker, if the node has one
 * ARGV     {@link RAISE_ARGUMENTS}
 * Returns  1 when all records have the token now, else 0. Also 0 for a token ahead of the clock if the node has no marker to
 *          store it
 */
export const RAISE = script(`
local call = redis.call
${RAISE_ARGUMENTS.locals(1)}
for i = 1, n do
  local name = ${NAMES.at('name', 'i')}
  local record = call('GET', name)
  if not record or string.byte(record, 1) ~= ${RECORD.held} or string.sub(record, ${RECORD.id.join(', ')}) ~= id
    or tonumber(string.sub(record, ${RECORD.token.join(', ')})) > token then
    return 0
  end
  local left = call('PTTL', name)
  if left <= ${LINGER_MS} and left ~= -1 then
    return 0
  end
end
local time = call('TIME')
local marker = ${markerAfter(NAMES)}
${STORE_AHEAD}
for i = 1, n do
  call('SETRANGE', ${NAMES.at('name', 'i')}, ${RECORD.token[0] - 1}, string.format('%016.0f', token))
end
return 1
`);

/** The number of keys, the keys and the arguments of {@link RAISE}. */
export function packRaise(
  lease: Lease,
  token: number,
  keyPrefix: string,
  marker: string | undefined,
): Packed {
  return packRaiseWith(NAMES, lease, token, keyPrefix, marker);
}
