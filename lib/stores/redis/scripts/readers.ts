import { LINGER_MS } from '../../../core/store-times.js';
import { READER, RECORD } from '../record.js';
import { Fragment } from './fragment.js';
import { storeEvenIfFull } from './lua.js';

/**
 * Step of the expiry of the keys `:h` and `:s` (see record.ts), in milliseconds: both expire at a multiple of this
 * step, and at least one step after the record. So most readers that join or are extended need not renew the expiry.
 */
export const ROUND_MS = 10_000;

/**
 * Tolerance in milliseconds, larger than any difference between the end that a script sets for a record and the end
 * that a later script computes from PTTL.
 */
const CLOSE_MS = 100;

/**
 * Lua text for the expiry of the keys `:h` and `:s` of a record that ends at `ends`, an expression in milliseconds
 * since 1970.
 */
export function expiryOf(ends: string): string {
  return `(math.ceil((${ends} + ${CLOSE_MS}) / ${ROUND_MS}) + 1) * ${ROUND_MS}`;
}

/**
 * Lua text that makes the keys `:h` and `:s` outlive a record that will end at `ends`, unless they already do.
 *
 * Needs the local `call`, and `holders` and `details` (their Redis keys). Also needs two times in milliseconds since
 * 1970: `ends`, and `ended` (the present end of the record, or 0 if the two keys are new). Sets the local `renewed`
 * when it changed the expiry.
 */
export const KEEP_READERS = new Fragment(
  { needs: ['call', 'holders', 'details', 'ends', 'ended'], sets: ['renewed'] },
  `
local renewed = ${expiryOf('ends')} > ${expiryOf(`ended - ${2 * CLOSE_MS}`)}
if renewed then
  local lives = ${expiryOf('ends')}
  call('PEXPIREAT', holders, lives)
  call('PEXPIREAT', details, lives)
end
`,
);

/**
 * Lua text that ends one reader's lease of a key. If the record names that reader, the record then names the reader
 * that ends last among the other readers.
 *
 * Needs the locals `call`, `id` and these:
 *
 * - `name` and `record`: the Redis key of the record, and the record, which shows that readers hold the lock or held
 *   it last;
 * - `holders` and `details`: the Redis keys of the set and the hash.
 *
 * Sets `ended` (1 when the reader held the lock, else 0, or an error), `over` (true when no reader is left)
 * and `record` (its present value).
 *
 * Writes that need no memory come first: after the first write of a script no other write fails because of memory (S9).
 */
export const END_READER = new Fragment(
  { needs: ['call', 'id', 'name', 'record', 'holders', 'details'], sets: ['ended', 'over', 'beside'] },
  `
local ended, over, beside = 0, false, string.byte(record, ${RECORD.beside}) == ${RECORD.others}
if string.sub(record, ${RECORD.id.join(', ')}) == id then
  local two, last, own, left, lives, now = beside and redis.pcall('ZRANGE', holders, -2, -1, 'WITHSCORES'), nil, false, 0
  if two and two.err then
    ended = two
  elseif two and two[1] then
    local time = call('TIME')
    last, now, lives = two[3] or two[1], time[1] * 1000 + time[2] / 1000, call('PTTL', name)
    left = math.ceil((two[4] or two[2]) - now)
    own = redis.pcall('HGET', details, last)
    if own and own.err then
      ended = own
    end
  end
  if ended == 0 then
    over = left <= 0
    -- The remaining reader is alone, so it needs only the record.
    local alone = not over and not (two and two[3]) and own and string.sub(own, ${READER.token.join(', ')}) == string.sub(record, ${RECORD.token.join(', ')})
    if over then
      record = 'F' .. string.sub(record, 2)
    else
      record = string.sub(record, 1, ${RECORD.id[0] - 1}) .. last .. (alone and ':' or '+')
        .. string.sub(own or record, own and ${READER.since[0]} or ${RECORD.beside + 1})
    end
    left = over and '${LINGER_MS}' or left + ${LINGER_MS}
    ${storeEvenIfFull('name', 'record', 'left')}
    ended = stored
    if not ended.err then
      ended = 1
      if beside and (over or alone) then
        call('DEL', holders, details)
      elseif beside then
        call('ZREM', holders, last)
        local same = own and string.sub(own, ${READER.token.join(', ')}) == string.sub(record, ${RECORD.token.join(', ')})
        call('HDEL', details, id, same and last or id)
        local expiry = ${expiryOf('now + left')}
        if expiry ~= ${expiryOf('now + lives')} then
          call('PEXPIREAT', holders, expiry)
          call('PEXPIREAT', details, expiry)
        end
      end
    end
  end
elseif beside then
  ended = redis.pcall('HDEL', details, id)
  if type(ended) == 'number' then
    ended = redis.pcall('ZREM', holders, id)
  end
end
`,
);
