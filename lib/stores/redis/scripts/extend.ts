import type { Lease } from '../../../core/lease.js';
import { recordKey } from '../lock-key.js';
import { LINGER_MS, RECORD } from '../record.js';
import type { Packed } from '../connection/command-channel.js';
import { script } from './script.js';

/**
 * Extends each lease that holds all its keys: its records then live for at least the ttl plus {@link LINGER_MS}. The
 * result for one lease does not affect the other leases. A key of another type counts as not held.
 *
 * KEYS     for each lease its n records
 * ARGV[1]  ttl plus LINGER_MS in milliseconds
 * ARGV     for each lease its id and n
 * Returns  a string with 1 for each lease whose records all hold it, and 0 for each other
 *
 * Only a held record is extended: a late extension must not restore a released or expired record. The script uses
 * PEXPIRE and not SET, because PEXPIRE works when memory is short (S9). A longer life is not shortened: a delayed
 * extension must not undo a later one. A record without an expiry would be held for ever, so it gets an expiry.
 */
export const EXTEND = script(`
local life = tonumber(ARGV[1])
local outcomes, key = {}, 0
for at = 2, #ARGV, 2 do
  local n, held, short = tonumber(ARGV[at + 1]), true, false
  for i = key + 1, key + n do
    local record = held and redis.pcall('GET', KEYS[i])
    held = record and not record.err and string.byte(record, 1) == ${RECORD.held}
      and string.sub(record, ${RECORD.id.join(', ')}) == ARGV[at]
    if held then
      local left = redis.call('PTTL', KEYS[i])
      held = left > ${LINGER_MS} or left == -1
      short = short or left < life
    end
  end
  for i = key + 1, held and short and key + n or key do
    if n == 1 or redis.call('PTTL', KEYS[i]) < life then
      redis.call('PEXPIRE', KEYS[i], ARGV[1])
    end
  end
  outcomes[#outcomes + 1] = held and '1' or '0'
  key = key + n
end
return table.concat(outcomes)
`);

/** The number of keys, the keys and the arguments of {@link EXTEND}. */
export function packExtend(leases: readonly Lease[], ttl: number, keyPrefix: string): Packed {
  const packed: [number, ...(string | number)[]] = [0];
  for (const { keys } of leases) for (const key of keys) packed.push(recordKey(keyPrefix, key));
  packed[0] = packed.length - 1;
  packed.push(ttl + LINGER_MS);
  for (const { id, keys } of leases) packed.push(id, keys.length);
  return packed;
}
