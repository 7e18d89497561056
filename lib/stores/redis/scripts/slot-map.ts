import { Fragment, localsOf } from './fragment.js';

/**
 * The taken slots of a key with several holders, as a text. Each character stands for six slots: its code is 63 (`?`),
 * plus 1 if the first slot is taken, 2 if the second is taken, then 4 and so on, up to 126 (`~`). So a thousand slots
 * are 167 characters, which the scripts copy in each acquisition and release.
 */

/** The number of slots in a character. */
const SIX = 6;
const NONE = '?'.charCodeAt(0);

/** The six bits of each possible sum, the first slot first. A sum is the code of a character, minus 63. */
const SUMS = Array.from({ length: 2 ** SIX }, (_, sum) =>
  [...sum.toString(2).padStart(SIX, '0')].toReversed(),
);
/** A digit for each sum: its first free slot, or 6 if none is free. */
const FREE = SUMS.map((bits) => (bits.includes('0') ? bits.indexOf('0') : SIX)).join('');
/** A digit for each sum: its number of taken slots. */
const TAKEN = SUMS.map((bits) => bits.filter((bit) => bit === '1').length).join('');

/** The number of characters in a map of `slots` slots. */
export function widthOf(slots: number): number {
  return Math.ceil(slots / SIX);
}

/** Lua text for {@link widthOf}. */
export const luaWidthOf = (slots: string): string => `math.ceil((${slots}) / ${SIX})`;

/**
 * Lua text that sets the local `slot` to the first free slot of the map `taken`, from `from` on. The found slot may be
 * after the end of the map.
 */
export const findFree = (from: string): Fragment =>
  new Fragment(
    { needs: ['taken', 'slot', ...localsOf(from)] },
    `
do
  local low = ${from} % ${SIX}
  local at = (${from} - low) / ${SIX} + 1
  slot = ${from}
  if at <= #taken then
    -- Count the slots before the wanted position as taken.
    local sum = string.byte(taken, at) - ${NONE}
    sum = sum - sum % 2 ^ low + 2 ^ low - 1
    if sum == ${2 ** SIX - 1} then
      at = string.find(taken, '[^~]', at + 1) or #taken + 1
      sum = (string.byte(taken, at) or ${NONE}) - ${NONE}
    end
    slot = ${SIX} * (at - 1) + string.byte('${FREE}', sum + 1) - 48
  end
end
`,
  );

/** Lua text that is true if a slot of the map `taken` is taken. */
export const isTaken = (slot: string): string =>
  `math.floor(((string.byte(taken, math.floor(${slot} / ${SIX}) + 1) or ${NONE}) - ${NONE}) / 2 ^ (${slot} % ${SIX})) % 2 == 1`;

/** Lua text that marks the free `slot` as taken in the map `taken`. */
export const TAKE_SLOT = new Fragment(
  { needs: ['slot', 'taken'] },
  `
do
  local low = slot % ${SIX}
  local at = (slot - low) / ${SIX} + 1
  taken = taken .. string.rep('?', at - #taken)
  taken = string.sub(taken, 1, at - 1) .. string.char(string.byte(taken, at) + 2 ^ low) .. string.sub(taken, at + 1)
end
`,
);

/**
 * Lua text that frees a slot in a local that is, or contains, a map.
 *
 * @param first - the position of the map's first character in the local
 */
export const freeSlot = (text: string, slot: string, first: number): Fragment =>
  new Fragment(
    { needs: localsOf(text, slot) },
    `
do
  local low = ${slot} % ${SIX}
  local at = (${slot} - low) / ${SIX} + ${first}
  local sum = (string.byte(${text}, at) or ${NONE}) - ${NONE}
  if math.floor(sum / 2 ^ low) % 2 == 1 then
    ${text} = string.sub(${text}, 1, at - 1) .. string.char(sum - 2 ^ low + ${NONE}) .. string.sub(${text}, at + 1)
  end
end
`,
  );

/**
 * Lua text for the position of a slot's character in a text whose map begins at position `first`. The result counts
 * from 0, as in Redis.
 */
export const offsetOf = (slot: string, first: number): string =>
  `math.floor(${slot} / ${SIX}) + ${first - 1}`;

/** Lua text that sets the local `free` to the number of free slots among the first `permits` of the map `taken`. */
export const COUNT_FREE = new Fragment(
  { needs: ['free', 'permits', 'taken'] },
  `
free = permits
for at = 1, math.min(#taken, ${luaWidthOf('permits')}) do
  local sum = string.byte(taken, at) - ${NONE}
  if ${SIX} * at > permits then
    sum = sum % 2 ^ (permits - ${SIX} * (at - 1))
  end
  free = free - string.byte('${TAKEN}', sum + 1) + 48
end
`,
);
