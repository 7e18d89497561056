import { SAME_CALL_MS, STANDBY_MS, TURN_MS, WAITER_LIFE_MS } from '../../../core/store-times.js';
import { TURN_OF_ANOTHER } from './acquire-answer.js';
import { Fragment } from './fragment.js';
import { MARK, PROCESS_LENGTH, STANDBYS, TURN, WAITER } from '../record.js';

/** Largest number of readers that get a message together. */
const MOST_TOGETHER = 1_000;

/**
 * Lua text for the queue of a lock, a sorted set. Its members are:
 *
 * - waiters; the score is the time of their arrival, in milliseconds by the server's clock;
 * - the turn, before all waiters, with the score -1: `!`, the end of the turn in 16 digits, and the waiter whose turn
 *   it is;
 * - the standbys, after all waiters: `?` and the waiters that were told to stand by. The score is 1e13 plus the time
 *   at which they were told.
 *
 * A message goes to the first waiter, and to the next two waiters (the standbys) in case the first does not take its
 * turn. There are two standbys, because one of them may hang as well. Adjacent readers at the front get a message
 * together, because they can hold the lock together. With a new holder every millisecond, messages to standbys would
 * cost more than all else. So a waiter that was told to stand by in the last 50 ms is not told again: it will try after
 * the end of the turn that begins now.
 *
 * A message to a dead process reaches no client, so the script removes the waiter of that message immediately. PUBLISH
 * comes last and only as `pcall`, because a user may have no right to the channel (S7). ZADD also runs only as `pcall`,
 * because it fails when memory is short: the queue is only a hint, and a lost order costs only time.
 */

/**
 * Begins the turn of the first waiter. Sends this waiter and the standbys the milliseconds until each may try.
 *
 * Needs `queue` (its key), `base` (the prefix of channel names; empty on a Cluster), `after` (milliseconds until the turn
 * begins) and `released` (the id of the ended lease, or `-`). Sets `told`: the number of waiters that got a message.
 */
export const WAKE = new Fragment(
  { needs: ['call', 'queue', 'base', 'after', 'released'], sets: ['told'] },
  `
local told = 0
do
  local time = call('TIME')
  local begin = math.floor(time[1] * 1000 + time[2] / 1000 + after)
  local front = call('ZRANGE', queue, 0, 0)[1]
  if front and string.byte(front, 1) == ${TURN.letter} then
    call('ZREM', queue, front)
  end
  local last = call('ZRANGE', queue, -1, -1, 'WITHSCORES')
  local watching, since = '?', begin
  if last[1] and string.byte(last[1], 1) == ${STANDBYS} then
    call('ZREM', queue, last[1])
    local before = last[2] - 1e13
    if begin >= before and begin <= before + ${STANDBY_MS - TURN_MS} then
      watching, since = last[1], before
    end
  end
  while told == 0 do
    local waiters, standbys = call('ZRANGE', queue, 0, 2), 0
    if #waiters == 0 then
      break
    end
    local together = string.byte(waiters[1], ${WAITER.mode}) == ${WAITER.shared}
    if together then
      waiters = call('ZRANGE', queue, 0, ${MOST_TOGETHER + 1})
    end
    for i = 1, #waiters do
      local waiter = waiters[i]
      together = together and string.byte(waiter, ${WAITER.mode}) == ${WAITER.shared}
      local standby = told > 0 and not together
      if standbys == 2 then
        break
      elseif standby and string.find(watching, waiter, 1, true) then
        told, standbys = told + 1, standbys + 1
      else
        local delay = math.ceil(after) + (standby and ${STANDBY_MS} or 0)
        local text = delay .. ' ' .. released .. ' ' .. string.sub(waiter, ${PROCESS_LENGTH + 2})
        local process = string.sub(waiter, 1, ${PROCESS_LENGTH})
        local receivers
        if base == '' then
          receivers = redis.pcall('SPUBLISH', queue .. ':' .. process, text)
        else
          receivers = redis.pcall('PUBLISH', base .. process, text)
        end
        if receivers == 0 then
          call('ZREM', queue, waiter)
        else
          if standby then
            watching, standbys = watching .. waiter, standbys + 1
          elseif told == 0 then
            redis.pcall('ZADD', queue, -1, string.format('!%016.0f', begin + ${TURN_MS}) .. waiter)
          end
          told = told + 1
        end
      end
    end
  end
  if watching ~= '?' then
    redis.pcall('ZADD', queue, 1e13 + since, watching)
  end
end
`,
);

/**
 * Removes a waiter and its turn from the queue.
 *
 * Sets `left` (1 when the waiter was in the queue), `hadTurn` (true when it was the waiter's turn) and `waiting` (true when
 * other waiters are still in the queue).
 */
export const LEAVE_QUEUE = new Fragment(
  { needs: ['call', 'queue', 'waiter'], sets: ['left', 'hadTurn', 'waiting'] },
  `
local left, hadTurn, waiting = 0, false, false
do
  local front = call('ZRANGE', queue, 0, 0)[1]
  if front and string.byte(front, 1) == ${TURN.letter} and string.sub(front, ${TURN.waiter}) == waiter then
    call('ZREM', queue, front)
    hadTurn = true
  end
  left = call('ZREM', queue, waiter)
  front = call('ZRANGE', queue, 0, 0)[1]
  if front and string.byte(front, 1) == ${STANDBYS} then
    call('DEL', queue)
  else
    waiting = front ~= nil
  end
end
`,
);

/**
 * Deletes the mark of a waiter that was granted the lock (S22), even if another process has set the mark. If the mark
 * remained, it would exclude other callers from a free lock.
 *
 * Needs `mark` (the mark's Redis key).
 */
export const DROP_MARK = new Fragment(
  { needs: ['mark', 'waiter'], sets: ['text'] },
  `
local text = redis.pcall('GET', mark)
if text and not text.err and string.sub(text, ${MARK.name}) == waiter then
  redis.call('DEL', mark)
end
`,
);

/**
 * Adds a refused waiter to the queue of the key that refused it. If it had the turn for another key, the next waiter for
 * that key has the turn now.
 *
 * Needs the locals `call`, `pcall`, `ordered`, `late`, `n`, `base` and these:
 *
 * - `refused`: the position of the key that refused the waiter, if a key refused it;
 * - `waiter`: the name of the waiter, if there is one;
 * - `came`: the time of its arrival, by this server's clock;
 * - `key` and `queues`: the number of KEYS before the records and the queues.
 */
export const ADD_TO_QUEUE = new Fragment(
  {
    needs: ['call', 'pcall', 'ordered', 'late', 'n', 'base', 'refused', 'waiter', 'came', 'key', 'queues'],
  },
  `  if refused and waiter and ordered and late <= 0 then
    -- Keep the waiter only in the queue of the key that refused it.
    for i = 1, n do
      local queue = KEYS[queues + i]
      if i == refused then
        pcall('ZADD', queue, string.format('%.3f', came), waiter)
        call('PEXPIRE', queue, ${WAITER_LIFE_MS})
        pcall('SETRANGE', KEYS[key + i], 1, 'w')
      elseif n > 1 then
        ${LEAVE_QUEUE}
        if hadTurn and waiting then
          local after, released = 0, '-'
          ${WAKE}
        end
      end
    end
  end
`,
);

/**
 * Looks if a member of the queue is the entry of the caller. The caller then keeps its place before the members behind it, even
 * if this request was on its way for longer than those before. The entry of an earlier call of its process, which gave up,
 * gives it no place.
 *
 * Needs `line` (members of the queue with their scores) and `j` (the position of the member). Sets `place` to the time before
 * which another waiter must have come to be in front of the caller; before, that is the time of the caller's arrival.
 */
export const KEEP_PLACE = new Fragment(
  { needs: ['line', 'j', 'waiter', 'place'] },
  `
        if waiter and line[j] == waiter and place < line[j + 1] + ${SAME_CALL_MS} then
          place = 0
        end
`,
);

/**
 * Lua text about the first waiter of a queue, which came before the caller. Begins the turn of this waiter if the turn
 * has not begun. Refuses the caller while the turn lasts, and removes the waiter when the turn has ended. The text
 * belongs in a loop over the members of the queue, and ends the loop when the turn cannot be stored. If the first waiter is
 * the caller, the entry is from an earlier call of its process that gave up: removes it. The turn stays: ADD_TO_QUEUE passes
 * it on.
 *
 * Needs the locals `call`, `queue`, `turn` (if there is one), `first` (the first waiter), `before` (the waiter that a
 * refusal names), `woken` (true when a turn was begun), `now` and `i`. Sets `woken`, and `answer` and `refused` while
 * the turn lasts.
 */
export const PASS_TURN = new Fragment(
  {
    needs: [
      'call',
      'sub',
      'base',
      'queue',
      'turn',
      'waiter',
      'first',
      'before',
      'woken',
      'now',
      'i',
      'answer',
      'refused',
    ],
  },
  `
        if first == waiter then
          call('ZREM', queue, first)
        elseif not turn or sub(turn, ${TURN.waiter}) ~= first then
          if woken then
            -- The turn cannot be stored, because memory is short or the server accepts no writes.
            break
          end
          -- The last holder has expired, so no release has sent a message.
          local after, released = 0, '-'
          ${WAKE}
          woken = true
        else
          local over = tonumber(sub(turn, ${TURN.ends.join(', ')}))
          if over > now then
            answer, refused = ${TURN_OF_ANOTHER.lua({ waiter: 'before', left: 'math.ceil(over - now)' })}, i
          else
            call('ZREM', queue, first, turn)
          end
        end
`,
);

/**
 * Removes a waiter from the queues of its keys after the waiter was granted the lock. Also deletes the marks of the
 * waiter.
 *
 * Needs the locals `call`, `waits` (the positions of the keys with waiters, or nil), `ordered`, `answer`, `waiter`,
 * `queues` and `marks` (the number of KEYS before the queues and before the marks) and `others`. Sets each value in
 * `waits` to true if other waiters still wait for that key, else to false. Sets `others` to 1 if other waiters wait for
 * any of the keys.
 */
export const LEAVE_QUEUES = new Fragment(
  { needs: ['call', 'waits', 'ordered', 'answer', 'waiter', 'queues', 'marks', 'others'] },
  `
    if waits and ordered and not answer then
      for i in pairs(waits) do
        local queue, waiter = KEYS[queues + i], waiter or ''
        ${LEAVE_QUEUE}
        if waiter ~= '' then
          local mark = KEYS[marks + i]
          ${DROP_MARK}
        end
        waits[i] = waiting
        others = waiting and 1 or others
      end
    end
`,
);

/**
 * Lets the next waiter of the same process inherit the position of a waiter that was granted the lock.
 *
 * Needs `next` (the milliseconds that the next waiter has waited, if there is one). Sets `others` to 2 if that waiter is
 * the first of the queue, else to 1.
 */
export const INHERIT = new Fragment(
  { needs: ['call', 'pcall', 'next', 'answer', 'waits', 'queues', 'now', 'waiter', 'others'] },
  `
    if next and not answer then
      local queue = KEYS[queues + 1]
      waits = waits or {}
      pcall('ZADD', queue, string.format('%.3f', now - next), waiter)
      call('PEXPIRE', queue, ${WAITER_LIFE_MS})
      waits[1], others = true, call('ZRANGE', queue, 0, 0)[1] == waiter and 2 or 1
    end
`,
);
