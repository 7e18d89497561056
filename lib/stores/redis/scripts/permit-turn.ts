import { STANDBYS, TURN, WAITER } from '../record.js';
import { Fragment } from './fragment.js';
import { KEEP_PLACE, PASS_TURN } from './queue.js';
import { COUNT_FREE } from './slot-map.js';

/** Largest number of waiters that one command checks. */
const MOST_WAITERS = 64;

/**
 * Lua text that refuses a lease if there are at least as many earlier waiters for permits as free slots. It also
 * refuses a lease if nobody holds the key and an earlier waiter wants another mode.
 *
 * Sets `answer` and `refused` for a refused lease. Sets `behind` to the marks that must be set for the first waiter in
 * another mode, by the position of the key.
 */
export const WAIT_FOR_TURN = new Fragment(
  {
    needs: [
      ...['answer', 'base', 'bits', 'byte', 'call', 'came', 'lefts', 'now', 'ordered'],
      ...['permits', 'queues', 'refused', 'sub', 'waiter', 'waits'],
    ],
    sets: ['behind'],
  },
  `
  local behind
  if waits and ordered and not answer then
    for i in pairs(waits) do
      local queue, woken = KEYS[queues + i], false
      local free = permits
      if lefts[i] then
        local taken = bits[i]
        ${COUNT_FREE}
      end
      while not answer do
        local line = call('ZRANGE', queue, 0, ${MOST_WAITERS}, 'WITHSCORES')
        local turn, from, ahead, other, place = nil, 1, 0, nil, came
        if line[1] and byte(line[1], 1) == ${TURN.letter} then
          turn, from = line[1], 3
        end
        for j = from, #line, 2 do
          local theirs = byte(line[j], ${WAITER.mode})
          ${KEEP_PLACE}
          if byte(line[j], 1) == ${STANDBYS} then
            break
          elseif line[j] == waiter or tonumber(line[j + 1]) > place then
            if line[j] ~= waiter and theirs ~= ${WAITER.permits} then
              -- This waiter has sent no request since the phase of permits began, so it has no mark yet: set the mark.
              behind = behind or {}
              behind[i] = string.format('%013.0f:', math.floor(line[j + 1])) .. line[j]
              break
            end
          elseif theirs == ${WAITER.permits} then
            ahead = ahead + 1
          elseif not lefts[i] then
            other = line[j]
            break
          end
        end
        if not other and ahead < free then
          break
        end
        local first = line[from]
        local before = first
        ${PASS_TURN}
      end
    end
  end
`,
);
