import { LINGER_MS, MARK_MS } from '../../../core/store-times.js';
import type { WaiterId } from '../../../core/waiter-id.js';
import { LeaseNames } from '../lease-names.js';
import { markKey, recordKey } from '../lock-key.js';
import { MARK, RECORD, waiterName } from '../record.js';
import { Arguments, text } from './arguments.js';
import { FOREIGN, isForeignMark } from './lua.js';
import { type Packed, pack, script } from './script.js';

const NAMES = new LeaseNames({ name: markKey, held: recordKey });

/** The name of the waiter, and the milliseconds that it has waited. */
const WAITING = new Arguments<{ readonly waiter: WaiterId; readonly waited: number }>({
  waiter: text(({ waiter }) => waiterName(waiter)),
  waited: text(({ waited }) => waited.toFixed(3)),
});

/**
 * Sets the mark of a waiter: the node then refuses later callers for a shared lock or a permit, unless they have the
 * mode of this waiter (S22). A key with the mark of an earlier waiter keeps that mark.
 *
 * Of several keys, only the first held key gets the mark, because an attempt finds this key held. The other marks of the
 * waiter are renewed. A mark on a free key would shut out its readers although they are not in the way of the waiter.
 *
 * KEYS     the Redis keys of the n keys (`NAMES`)
 * ARGV     `WAITING`
 * Returns  0 if the first held key has the mark of an earlier waiter, else 1
 */
export const HOLD_BACK = script(`
${WAITING.locals(1)}
local time = redis.call('TIME')
local stands = 1
local came = math.floor(time[1] * 1000 + time[2] / 1000 - waited)
local n = #KEYS / ${NAMES.size}
local found = n == 1
for i = 1, n do
  ${NAMES.locals(['name', 'held'], 'i')}
  local mark = redis.call('GET', name)
  if mark and ${isForeignMark('mark')} then
    return ${FOREIGN}
  end
  local mine = mark and string.sub(mark, ${MARK.name}) == waiter
  local first = n == 1
  if not found then
    local record = redis.pcall('GET', held)
    if record and not record.err and string.byte(record, 1) ~= ${RECORD.free} then
      local left = redis.call('PTTL', held)
      first = left < 0 or left > ${LINGER_MS}
      found = first
    end
  end
  if mine or first and (not mark or tonumber(string.sub(mark, ${MARK.came.join(', ')})) > came) then
    redis.call('SET', name, string.format('%013.0f:', came) .. waiter, 'PX', ${MARK_MS})
  elseif first then
    stands = 0
  end
end
return stands
`);

/** The number of keys, the keys and the arguments of {@link HOLD_BACK}. */
export function packHoldBack(waiter: WaiterId, waited: number, keyPrefix: string): Packed {
  const names: string[] = [];
  NAMES.push(names, waiter.keys, keyPrefix);
  const args: (string | number)[] = [];
  WAITING.push(args, { waiter, waited });
  return pack(names, args);
}
