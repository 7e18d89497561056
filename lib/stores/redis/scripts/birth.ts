import { REFUSE_FOREIGN_MARK } from './lua.js';
import { script } from './script.js';

/**
 * Reads the server's clock, and sets a missing marker to the time of this first contact. Runs on each new connection,
 * and in `RedisStore.check`. A server that loses its data loses the marker, too (S12).
 *
 * KEYS     the marker, or none
 * Returns  microseconds since 1970 on this server's clock, and the milliseconds since 1970 at the first contact, or -1 without a
 *          marker
 *
 * Tokens follow the server's clock, but can be ahead of it. The marker has 16 digits of the milliseconds since 1970 at
 * the first contact, a colon, and 16 digits of the largest token that was ahead.
 */
export const BIRTH = script(`
local time, born = redis.call('TIME'), -1
if KEYS[1] then
  local mark = redis.call('GET', KEYS[1])
  ${REFUSE_FOREIGN_MARK}
  if not mark then
    -- Write only a missing marker: a write fails when memory is short.
    mark = string.format('%016.0f:%016.0f', time[1] * 1000 + math.floor(time[2] / 1000), 0)
    redis.call('SET', KEYS[1], mark)
  end
  born = tonumber(string.sub(mark, 1, 16))
end
return {time[1] * 1000000 + time[2], born}
`);
