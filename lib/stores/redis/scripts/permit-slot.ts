import { PERMITS } from './permits.js';

/** So many holders whose end has passed are cleared away at a time, until there is a slot: a thousand took 4 ms. */
const MOST_CLEARED = 100;

/**
 * Lua text that looks for a free slot of one key, and clears away those whose end has passed where there is none, or where others
 * wait.
 *
 * Part of ACQUIRE_PERMITS, whose locals it has. Sets `slot` (nil when all are taken), `told` (where several hold the key: what is
 * told of this lease, the row of the slot, and until when the set and the hash live) and `row`; `record` and `taken` are as they
 * are now. Sets `answer` to an error.
 */
export const CHOOSE_SLOT = `      local cleared = false
      while true do
        slot = nil
        if not shares then
          slot = wish
        elseif exactly then
          slot = (wish >= held or byte(taken, wish + 1) == ${PERMITS.free}) and wish or nil
        else
          local first = string.find(taken, '0', wish + 1, true)
          if first and first <= permits then
            slot = first - 1
          elseif held < permits then
            slot = math.max(wish, held)
          else
            first = string.find(taken, '0', 1, true)
            slot = first and first <= wish and first - 1 or nil
          end
        end
        if not several then
          break
        end
        told = try('HMGET', details, id, slot or wish, 'e')
        if told.err then
          answer = told
          break
        end
        row = told[2]
        if told[1] or slot and (cleared or not (queued and ordered)) then
          break
        end
        local gone = try('ZRANGEBYSCORE', holders, '-inf', now, 'LIMIT', 0, ${MOST_CLEARED})
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
            local ended = tonumber(sub(owns[j], 18, 21))
            taken = sub(taken, 1, ended) .. '0' .. sub(taken, ended + 2)
          end
        end
        call('ZREM', holders, unpack(gone))
        call('HDEL', details, unpack(gone))
        call('SETRANGE', name, ${PERMITS.bits - 1}, taken)
        record = sub(record, 1, ${PERMITS.bits - 1}) .. taken .. sub(record, ${PERMITS.bits} + held)
      end`;
