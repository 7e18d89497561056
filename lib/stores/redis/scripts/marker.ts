import { LEAD_MS, STEPS_PER_SECOND } from '../../../core/fencing-token.js';
import { Fragment } from './fragment.js';

/**
 * Lua text that stores a token in the marker if the token is ahead of the node's clock: the marker outlives the record,
 * so that tokens granted after the record has expired are still larger. Ends the script with 0 if the node has no marker
 * to store it.
 *
 * Needs `time` (the answer of TIME), `token`, and `marker` (the marker's Redis key, or nil).
 */
export const STORE_AHEAD = new Fragment(
  { needs: ['call', 'time', 'token', 'marker'] },
  `
if token > (time[1] + ${LEAD_MS / 1_000}) * ${STEPS_PER_SECOND} + math.floor(time[2] * ${STEPS_PER_SECOND / 1_000_000}) then
  local written = marker and call('GET', marker)
  if not marker then
    return 0
  end
  if not written or tonumber(string.sub(written, 18, 33)) < token then
    local born = written and string.sub(written, 1, 16) or string.format('%016.0f', time[1] * 1000 + math.floor(time[2] / 1000))
    call('SET', marker, born .. string.format(':%016.0f', token))
  end
end
`,
);
