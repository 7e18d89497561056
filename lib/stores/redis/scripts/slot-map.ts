/**
 * The slots of a key with several permits held, as text. Each character stands for six slots, as the sum of 1 for the
 * first if it is taken, 2 for the second, 4 and so on. It is `?` for none (63) to `~` for all (126). A thousand slots
 * are thus 167 characters, which the scripts copy with each acquisition and release.
 */

/** The number of slots in a character. */
const SIX = 6;
const NONE = '?'.charCodeAt(0);

/** For each sum the first free slot, and the number of taken ones. */
const SUMS = Array.from({ length: 2 ** SIX }, (_, sum) =>
  [...sum.toString(2).padStart(SIX, '0')].toReversed(),
);
const FREE = SUMS.map((bits) => (bits.includes('0') ? bits.indexOf('0') : SIX)).join('');
const TAKEN = SUMS.map((bits) => bits.filter((bit) => bit === '1').length).join('');

/** The number of characters for `slots` slots. */
export function widthOf(slots: number): number {
  return Math.ceil(slots / SIX);
}

/** Lua text for {@link widthOf}. */
export const luaWidthOf = (slots: string): string => `math.ceil((${slots}) / ${SIX})`;

/**
 * Lua text that sets the local `slot` to the first free slot of the map `taken`, from `from` on; it may be behind the
 * end of the map.
 */
export const findFree = (from: string): string => `
do
  local low = ${from} % ${SIX}
  local at = (${from} - low) / ${SIX} + 1
  slot = ${from}
  if at <= #taken then
    -- Slots before that one count as taken.
    local sum = string.byte(taken, at) - ${NONE}
    sum = sum - sum % 2 ^ low + 2 ^ low - 1
    if sum == ${2 ** SIX - 1} then
      at = string.find(taken, '[^~]', at + 1) or #taken + 1
      sum = (string.byte(taken, at) or ${NONE}) - ${NONE}
    end
    slot = ${SIX} * (at - 1) + string.byte('${FREE}', sum + 1) - 48
  end
end
`;

/** Lua text that is true if a slot of the map `taken` is taken. */
export const isTaken = (slot: string): string =>
  `math.floor(((string.byte(taken, math.floor(${slot} / ${SIX}) + 1) or ${NONE}) - ${NONE}) / 2 ^ (${slot} % ${SIX})) % 2 == 1`;

/** Lua text that takes the free `slot` in the map `taken`. */
export const TAKE_SLOT = `
do
  local low = slot % ${SIX}
  local at = (slot - low) / ${SIX} + 1
  taken = taken .. string.rep('?', at - #taken)
  taken = string.sub(taken, 1, at - 1) .. string.char(string.byte(taken, at) + 2 ^ low) .. string.sub(taken, at + 1)
end
`;

/**
 * Lua text that frees a slot in the local `text`, which is or contains a map.
 *
 * @param first - the position of the map's first character in it, a number
 */
export const freeSlot = (text: string, slot: string, first: number): string => `
do
  local low = ${slot} % ${SIX}
  local at = (${slot} - low) / ${SIX} + ${first}
  local sum = (string.byte(${text}, at) or ${NONE}) - ${NONE}
  if math.floor(sum / 2 ^ low) % 2 == 1 then
    ${text} = string.sub(${text}, 1, at - 1) .. string.char(sum - 2 ^ low + ${NONE}) .. string.sub(${text}, at + 1)
  end
end
`;

/**
 * Lua text for the position, as Redis counts from 0, of a slot's character in a text whose map begins at position
 * `first`.
 */
export const offsetOf = (slot: string, first: number): string =>
  `math.floor(${slot} / ${SIX}) + ${first - 1}`;

/** Lua text that sets the local `free` to the number of free slots among the first `permits` of the map `taken`. */
export const COUNT_FREE = `
free = permits
for at = 1, math.min(#taken, ${luaWidthOf('permits')}) do
  local sum = string.byte(taken, at) - ${NONE}
  if ${SIX} * at > permits then
    sum = sum % 2 ^ (permits - ${SIX} * (at - 1))
  end
  free = free - string.byte('${TAKEN}', sum + 1) + 48
end
`;
