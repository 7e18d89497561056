import { Fragment } from './fragment.js';
import { PERMIT, PERMITS } from './permits.js';
import { findFree, freeSlot, isTaken } from './slot-map.js';

/**
 * Largest number of expired holders that one step removes; steps follow each other until a slot is free. The removal of
 * a thousand holders in one step took 4 ms.
 */
const MOST_CLEARED = 100;

/**
 * Lua text that looks for a free slot of one key. Removes expired holders if there is no free slot, or if there are
 * waiters.
 *
 * Sets `slot`, which is nil when all slots are taken. If the key has several holders, the text also sets `told` to three
 * values of the hash. These are the details of this lease, the entry of the slot, and the expiry of both keys. Then `row`
 * is the entry of the slot. The text keeps `record` and `taken` up to date; if there is an error, it sets `answer` to it.
 */
export const CHOOSE_SLOT = new Fragment(
  {
    needs: [
      ...['answer', 'call', 'details', 'exactly', 'heals', 'holders', 'id', 'name', 'now'],
      ...['ordered', 'pcall', 'permits', 'queued', 'record', 'row', 'several', 'shares'],
      ...['slot', 'sub', 'taken', 'told', 'wish'],
    ],
    sets: ['cleared'],
  },
  `
      local cleared = false
      while true do
        slot = nil
        if not shares then
          slot = wish
        elseif exactly then
          slot = not (${isTaken('wish')}) and wish or nil
        else
          ${findFree('wish')}
          if slot >= permits then
            ${findFree('0')}
          end
          slot = slot < permits and slot or nil
        end
        if not several then
          break
        end
        told = pcall('HMGET', details, id, slot or wish, 'e')
        if told.err then
          answer = told
          break
        end
        row = told[2]
        if told[1] and not heals or slot and (cleared or not (queued and ordered)) then
          break
        end
        local gone = pcall('ZRANGEBYSCORE', holders, '-inf', now, 'LIMIT', 0, ${MOST_CLEARED})
        if gone.err then
          answer = gone
          break
        elseif #gone == 0 then
          break
        end
        cleared = true
        local owns = call('HMGET', details, unpack(gone))
        for j = 1, #gone do
          if owns[j] then
            local ended = tonumber(sub(owns[j], ${PERMIT.slot.join(', ')}))
            ${freeSlot('taken', 'ended', 1)}
          end
        end
        call('ZREM', holders, unpack(gone))
        call('HDEL', details, unpack(gone))
        call('SETRANGE', name, ${PERMITS.bits - 1}, taken)
        record = sub(record, 1, ${PERMITS.bits - 1}) .. taken .. sub(record, ${PERMITS.bits} + #taken)
      end
`,
);
