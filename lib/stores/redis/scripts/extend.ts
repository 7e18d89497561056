import type { Lease } from '../../../core/lease.js';
import { LINGER_MS } from '../../../core/store-times.js';
import { LeaseNames } from '../lease-names.js';
import { recordKey } from '../lock-key.js';
import { RECORD } from '../record.js';
import { EXTENDED, LIFE, outcomeOf, packExtendWith } from './extend-command.js';
import { type Packed, script } from './script.js';

const NAMES = new LeaseNames({ name: recordKey });

/**
 * Extends each lease that holds all its keys: its records then live for at least the ttl plus {@link LINGER_MS}. The
 * result for one lease does not affect the other leases. A key of another type counts as not held.
 *
 * KEYS     for each lease its Redis keys (`NAMES`)
 * ARGV     {@link LIFE}, then for each lease {@link EXTENDED}
 * Returns  a string with 1 for each lease whose records all hold it, and 0 for each other
 *
 * Only a held record is extended: a late extension must not restore a released or expired record. The script uses
 * PEXPIRE and not SET, because PEXPIRE works when memory is short (S9). A longer life is not shortened: a delayed
 * extension must not undo a later one. A record without an expiry would be held for ever, so it gets an expiry.
 */
export const EXTEND = script(`
${LIFE.locals(1)}
-- PEXPIRE gets the time as a text: with a number, Redis takes 0.5 us longer (commandstats of a script with one SET).
local outcomes, key, least = {}, 0, tonumber(life)
for at = ${LIFE.size + 1}, #ARGV, ${EXTENDED.size} do
  ${EXTENDED.locals('at')}
  local held, short = true, false
  for i = key + 1, key + n do
    local name = ${NAMES.at('name', 'i')}
    local record = held and redis.pcall('GET', name)
    held = record and not record.err and string.byte(record, 1) == ${RECORD.held}
      and string.sub(record, ${RECORD.id.join(', ')}) == id
    if held then
      local left = redis.call('PTTL', name)
      held = left > ${LINGER_MS} or left == -1
      short = short or left < least
    end
  end
  for i = key + 1, held and short and key + n or key do
    local name = ${NAMES.at('name', 'i')}
    if n == 1 or redis.call('PTTL', name) < least then
      redis.call('PEXPIRE', name, life)
    end
  end
  outcomes[#outcomes + 1] = ${outcomeOf('held')}
  key = key + ${NAMES.size} * n
end
return table.concat(outcomes)
`);

/** The number of keys, the keys and the arguments of {@link EXTEND}. */
export function packExtend(leases: readonly Lease[], ttl: number, keyPrefix: string): Packed {
  return packExtendWith(NAMES, leases, ttl, keyPrefix);
}
