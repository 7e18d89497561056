import { LINGER_MS, MARK_MS } from '../../../core/store-times.js';
import { RECORD } from '../record.js';
import { Fragment } from './fragment.js';
import { LEASE, ownerAt, PERMIT_NAMES, PERMITS, SPARE_MS } from './permits.js';
import { luaWidthOf, offsetOf, TAKE_SLOT } from './slot-map.js';

/**
 * Largest number of permits for which the server may store the set and the hash as lists, which it searches from one
 * end to the other. With more permits, both begin with an entry of more than 64 characters (`zset-max-listpack-value`,
 * `hash-max-listpack-value`), which prevents lists. With 200 permits and 64 requests in flight, an acquisition takes 10
 * us of server time without lists, and 14 us with lists.
 */
const MOST_IN_LIST = 16;
const LONG = '0'.repeat(80);

/**
 * Lua text that stores a lease in its chosen slots.
 *
 * Sets `answer` if the first write failed; later writes cannot fail.
 */
export const STORE_PERMIT = new Fragment(
  {
    needs: [
      ...['answer', 'behind', 'bits', 'byte', 'call', 'digits', 'ends', 'helds', 'id', 'key'],
      ...['lease', 'lefts', 'livings', 'manies', 'marked', 'marks', 'n', 'now', 'numbers'],
      ...['pcall', 'permits', 'records', 'slots', 'sub', 'ttl', 'waits'],
    ],
  },
  `
    for i = 1, answer and 0 or n do
      local name, record, left, taken, slot = ${PERMIT_NAMES.at('name')}, records[i], lefts[i], bits[i], slots[i]
      local flag, stored = waits and waits[i] and 'w' or '-', nil
      local number = numbers[slot]
      if not number then
        number = string.format('%04.0f', slot)
        numbers[slot] = number
      end
      if not left then
        local floor = record and sub(record, ${RECORD.token.join(', ')}) or '${'0'.repeat(16)}'
        stored = pcall('SET', name, 'P' .. flag .. digits .. ':' .. sub(lease, 1, ${LEASE.slot - 1}) .. number
          .. sub(lease, ${LEASE.count}) .. floor, 'PX', ttl + ${LINGER_MS})
        helds[i] = permits
      else
        ${TAKE_SLOT}
        local held = math.max(helds[i], permits)
        taken = taken .. string.rep('?', ${luaWidthOf('held')} - #taken)
        local largest = sub(record, ${RECORD.token.join(', ')})
        if largest < digits then
          largest = digits
        end
        if not manies[i] or left <= ttl or held > helds[i] then
          local count = held == permits and sub(lease, ${LEASE.count}, ${LEASE.count + 3}) or sub(record, ${PERMITS.count.join(', ')})
          local own, owner = sub(lease, 1, ${LEASE.slot - 1}) .. number .. count, sub(lease, ${LEASE.owner.join(', ')})
          local floor = sub(record, ${PERMITS.floor})
          if left > ttl then
            -- Another holder ends last, so the record continues to name that holder.
            own = sub(record, ${RECORD.id[0]}, ${PERMITS.slot[1]}) .. count
            owner = sub(record, ${ownerAt('record', 'helds[i]')}, ${PERMITS.ownerEnd})
          end
          stored = pcall('SET', name, 'P' .. flag .. largest .. ':' .. own .. '+' .. taken .. ':' .. owner .. ':' .. floor,
            'PX', math.max(left, ttl) + ${LINGER_MS})
        else
          stored = pcall('SETRANGE', name, 1, flag .. largest)
          if type(stored) == 'number' then
            local at = ${offsetOf('slot', 1)}
            call('SETRANGE', name, ${PERMITS.bits - 1} + at, sub(taken, at + 1, at + 1))
            stored = {}
          end
        end
        helds[i], bits[i] = held, taken
      end
      if stored.err then
        answer = stored
        break
      end
      if left then
        ${PERMIT_NAMES.locals(['holders', 'details'])}
        local told, row = digits .. ':' .. number .. ':' .. sub(lease, ${LEASE.since[0]}, ${LEASE.since[1] + 1}) .. sub(lease, ${LEASE.owner.join(', ')}), digits .. ':' .. id
        local lives = livings[i]
        if manies[i] then
          call('ZADD', holders, ends, id)
          if not lives or lives < ends + ${LINGER_MS} then
            lives = false
          end
        else
          local theirs, their = sub(record, ${RECORD.id.join(', ')}), sub(record, ${PERMITS.slot.join(', ')})
          local kind = byte(record, ${PERMITS.kind}) == ${PERMITS.kept} and 'K' or ':'
          call('DEL', holders, details)
          call('ZADD', holders, ends, id, math.floor(now) + left, theirs)
          if permits > ${MOST_IN_LIST} then
            call('ZADD', holders, 0, '${LONG}')
            call('ZREM', holders, '${LONG}')
          end
          call('HSET', details, tonumber(their), sub(record, ${RECORD.token[0]}, ${RECORD.token[1] + 1}) .. theirs, theirs,
            sub(record, ${RECORD.token.join(', ')}) .. kind .. their .. ':' .. sub(record, ${RECORD.since[0]}, ${RECORD.since[1] + 1})
              .. sub(record, ${PERMITS.bits + 1}, ${PERMITS.ownerEnd}))
        end
        if lives then
          call('HSET', details, slot, row, id, told)
        else
          lives = math.floor(now) + math.max(left, ttl) + ${LINGER_MS + SPARE_MS}
          call('HSET', details, slot, row, id, told, 'e', permits > ${MOST_IN_LIST} and string.format('%0${LONG.length}.0f', lives) or lives)
          call('PEXPIREAT', holders, lives)
          call('PEXPIREAT', details, lives)
        end
      elseif behind and behind[i] then
        local mark = KEYS[marks + i]
        pcall('SET', mark, behind[i], 'PX', ${MARK_MS}, 'NX')
        marked = true
      end
    end
`,
);
