import { LINGER_MS, RECORD } from '../record.js';
import { tokenOf } from './lua.js';
import { script } from './script.js';

/**
 * Tells who holds locks, without changing anything.
 *
 * KEYS     records
 * Returns  for each of them, in this order:
 *          {}                  nobody
 *          {record, pttl}      for pttl milliseconds more; -1 for ever
 *          {error}             it is of another type, or has a value that is not a record
 */
export const READ = script(`
local found = {}
for i = 1, #KEYS do
  local record = redis.pcall('GET', KEYS[i])
  if not record then
    found[i] = {}
  elseif record.err then
    found[i] = {record.err}
  elseif not (${tokenOf('record')}) then
    found[i] = {'the key has a value that is not a lock of this package'}
  else
    local left = redis.call('PTTL', KEYS[i])
    local held = string.byte(record, 1) ~= ${RECORD.free} and (left == -1 or left > ${LINGER_MS})
    found[i] = held and {record, left == -1 and -1 or left - ${LINGER_MS}} or {}
  end
end
return found
`);
