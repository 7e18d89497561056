import { LEAD_MS, STEPS_PER_SECOND } from '../../../core/fencing-token.js';
import { Fragment } from './fragment.js';

/** Lua text for the Redis keys of a node, which come first in KEYS: its marker, and its identity. */
export const NODE_KEYS = { marker: 'KEYS[1]', identity: 'KEYS[2]' } as const;

/** The Redis keys of a node, in the order of {@link NODE_KEYS}; without a marker there is no identity. */
export function nodeKeys(marker: string | undefined, identity: string | undefined): readonly string[] {
  if (marker === undefined) return [];
  return identity === undefined ? [marker] : [marker, identity];
}

/** Positions in the value of a marker. */
const MARKER = { born: [1, 16], high: [18, 33] } as const;

/** Lua text for the time of the first contact, in milliseconds since 1970, in the value of a marker. */
export const bornIn = (value: string): string => `tonumber(string.sub(${value}, ${MARKER.born.join(', ')}))`;

/** Lua text for the largest token that was ahead of the node's clock, in the value of a marker. */
export const highIn = (value: string): string => `tonumber(string.sub(${value}, ${MARKER.high.join(', ')}))`;

/** Lua text for the value of a marker. */
export const markerWith = (born: string, high: string): string =>
  `string.format('%016.0f:%016.0f', ${born}, ${high})`;

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
  if not written or ${highIn('written')} < token then
    local born = written and ${bornIn('written')} or time[1] * 1000 + math.floor(time[2] / 1000)
    call('SET', marker, ${markerWith('born', 'token')})
  end
end
`,
);
