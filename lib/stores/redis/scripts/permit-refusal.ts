import { Fragment } from './fragment.js';
import { PERMIT } from './permits.js';
import { ALL_TAKEN, TOLD } from './permit-answer.js';

/** Largest number of holders in a refusal. */
const MOST_TOLD = 10;

/**
 * Lua text that lists holders of a key with several holders: the ten whose leases end first, or only the holder of the
 * requested slot if the request accepts no other slot.
 *
 * Sets `answer` if there is a holder to name.
 */
export const TELL_HOLDERS = new Fragment(
  { needs: ['answer', 'call', 'details', 'exactly', 'held', 'holders', 'i', 'now', 'row', 'several', 'sub'] },
  `
        if several then
          local first = {}
          if exactly then
            local theirs = row and sub(row, ${PERMIT.lastId})
            first = theirs and {theirs, call('ZSCORE', holders, theirs)}
          else
            first = call('ZRANGEBYSCORE', holders, string.format('(%.3f', now), '+inf', 'WITHSCORES', 'LIMIT', 0, ${MOST_TOLD})
          end
          local list = {}
          for j = 1, first and first[2] and #first or 0, 2 do
            local theirs, size = call('HGET', details, first[j]), #list
            if theirs then
              ${TOLD.append('list', 'size', { id: 'first[j]', details: 'theirs', left: 'math.ceil(first[j + 1] - now)' })}
            end
          end
          if #list > 0 then
            answer = ${ALL_TAKEN.lua({ position: 'i', holders: 'list', most: 'held' })}
          end
        end
`,
);
