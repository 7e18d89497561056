import { ID_LENGTH } from '../../../core/random-id.js';
import type { AcquireRequest } from '../../../core/ports.js';
import { LINGER_MS, MARK_MS } from '../../../core/store-times.js';
import { LeaseNames } from '../lease-names.js';
import { detailsKey, holdersKey, markKey, queueKey, recordKey } from '../lock-key.js';
import { leasePart, MARK, READER, RECORD, STANDBYS, STATE, TURN, WAITER } from '../record.js';
import { HELD, STORED, TURN_OF_ANOTHER } from './acquire-answer.js';
import { type Leased, waitedOf, waiterOf } from './acquire.js';
import {
  ADD_ANSWER,
  type AcquireCommand,
  BEGIN_ACQUIRE,
  END_ACQUIRE,
  packAcquireWith,
  RAISE_MARKER,
  readMarks,
  IS_COPY,
  REFUSE_UNFIT,
  straightPath,
} from './acquire-command.js';
import { Arguments, number, text } from './arguments.js';
import { digitsOf, FOREIGN, isForeignMark, tokenOf } from './lua.js';
import { ADD_TO_QUEUE, KEEP_PLACE, LEAVE_QUEUES, PASS_TURN } from './queue.js';
import { KEEP_READERS, ROUND_MS } from './readers.js';
import { type Packed, script } from './script.js';

/** Largest number of expired readers that one command removes, so that other commands do not wait for a long time. */
const MOST_CLEARED = 500;

/** Largest number of waiters that one command checks. */
const MOST_WAITERS = 64;

const MARKS = new LeaseNames({ mark: markKey });
/** The Redis keys of a lease besides its marks. */
const NAMES = new LeaseNames({ name: recordKey, holders: holdersKey, details: detailsKey });
/** These keys at the node that keeps the queue. */
const ORDERED = new LeaseNames({
  name: recordKey,
  holders: holdersKey,
  details: detailsKey,
  queue: queueKey,
});
const COUNTS = [ORDERED.size, NAMES.size] as const;

/** The arguments of each lease; a plain lease has only the first. */
const LEASED = new Arguments<Leased>({
  /** The id, the time and the owner of the lease, as they are in the record. */
  lease: text(({ request }) => leasePart(request)),
  n: number(({ request }) => request.lease.keys.length, '1'),
  waiter: text(waiterOf, "''"),
  waited: number(waitedOf, '0'),
});

/**
 * Stores leases of readers, each under all its keys or under none, and gives each a fencing token. All else is as in
 * {@link ACQUIRE}.
 *
 * A phase lasts from the first reader until the lease of the last reader ends. The first reader of a phase gets a new
 * token. A reader that joins gets the token of the phase, even if the client proposes another token (S21). A reader that
 * heals keeps its token if that is larger, and the token of the phase becomes as large (S26). A waiter in another mode
 * sends its mark to every node. While a node keeps the mark, it refuses readers that came later (S22).
 *
 * While readers hold the lock, a node refuses readers only because of marks, not because of the queue: a mark expires
 * when its waiter dies, and an entry in the queue does not. While the lock is free and has a queue, no caller passes an
 * earlier waiter in another mode. The reader that begins a phase also stores the mark of the first waiter in another
 * mode. That waiter may have no mark yet, because a waiter stores its mark only after readers have blocked it.
 *
 * KEYS     the node's marker and identity, if it has them; then the n marks of each lease (`MARKS`); then for each lease its
 *          other Redis keys (`NAMES`, or `ORDERED`)
 * ARGV     the beginning of a command, see acquire-command.ts, then for each lease `LEASED`
 * Returns  as {@link ACQUIRE}
 *
 * The record names the reader that ends last, and the other readers are in the set and the hash. So a single reader,
 * the usual case, costs the same as an exclusive lock.
 *
 * The script reads everything before it writes, so that no foreign value is overwritten (S19). The first write fails
 * when memory is short. Before that write, the script only deletes data: remains of an earlier phase, or a waiter in
 * the queue.
 */
export const ACQUIRE_SHARED =
  script(`${BEGIN_ACQUIRE}${readMarks(COUNTS)}${straightPath({ keys: COUNTS, state: STATE.shared, marked: true })}
marks = marks + first - header - 1
life = tonumber(life)
local ttl = life - ${LINGER_MS}
-- Values for each key of a lease. From the readers' record: the milliseconds left of it, the record itself, true if
-- there are further readers, and true if there are remains of an earlier phase. Then the present mark, and the mark to
-- set.
local lefts, records, besides, stale, stands, behind = {}, {}, {}, {}, {}, {}
for at = first, #ARGV, ${LEASED.step} do
  ${LEASED.locals('at')}
  waiter = waiter ~= '' and waiter or nil
  local holders, details, queues = ${ORDERED.before('holders')}, ${ORDERED.before('details')}, ${ORDERED.before('queue')}
  local id, came = sub(lease, 1, ${ID_LENGTH}), now - waited
  -- A lease that heals has its token in the place of the time that its waiter has waited.
  local least = heals and waited or least
  local token, mine, answer, refused, waits = 0, 0
  for i = 1, n do
    if answer then
      break
    end
    local record, mark = seen or pcall('GET', ${NAMES.at('name')}), marked and pcall('GET', KEYS[marks + i])
    seen = nil
    local failed = record and record.err and record or mark and mark.err and mark
    local last = not failed and record and ${tokenOf('record')}
    if failed then
      answer = failed
    elseif record and not last or mark and ${isForeignMark('mark')} then
      answer = ${FOREIGN}
    else
      local state, left = record and byte(record, 1) or ${RECORD.free}, 0
      if state ~= ${RECORD.free} then
        left = call('PTTL', ${NAMES.at('name')})
        left = left < 0 and math.huge or left - ${LINGER_MS}
      end
      local shared = state == ${RECORD.shared} and left > 0
      local named = record and sub(record, ${RECORD.id.join(', ')}) == id
      local beside = state == ${RECORD.shared} and byte(record, ${RECORD.beside}) == ${RECORD.others}
      local old, own = beside
      if beside then
        own = pcall('HGET', KEYS[details + i], id)
        local set = n > 1 and pcall('ZCARD', KEYS[holders + i])
        own = type(set) == 'table' and set or own
      elseif shared and not named then
        -- This is the second reader, for which the set and the hash are created. Check that both are absent or of the
        -- right type.
        local set, hash = pcall('ZCARD', KEYS[holders + i]), pcall('HLEN', KEYS[details + i])
        own = type(set) == 'table' and set or type(hash) == 'table' and hash
        old = own or set + hash > 0
      end
      local lapsed = false
      if heals and state == ${RECORD.shared} and not (own and own.err) then
        local ends = shared and own and not named and pcall('ZSCORE', KEYS[holders + i], id)
        lapsed = left <= 0 or ends and not ends.err and tonumber(ends) <= now
      end
      if own and own.err then
        answer = own
      elseif (own or named) and not lapsed then
        local ends = shared and own and pcall('ZSCORE', KEYS[holders + i], id)
        if ends and ends.err then
          answer = ends
        elseif ends and tonumber(ends) > now then
          mine, token = mine + 1, math.max(token, tonumber(sub(own, ${READER.token.join(', ')})))
        elseif shared and named then
          mine, token = mine + 1, math.max(token, own and tonumber(sub(own, ${READER.token.join(', ')})) or last)
        else
          answer = redis.error_reply('ERR this lock was stored before, and has ended')
        end
      elseif left > 0 and not shared then
        answer, refused = ${HELD.lua({ position: 'i', record: 'record', left: 'left == math.huge and -1 or left' })}, i
      elseif mark and byte(mark, ${MARK.mode}) ~= ${WAITER.shared} and tonumber(sub(mark, ${MARK.came.join(', ')})) < came then
        -- If there is no record, do not queue the waiter: later commands would not know that a queue exists.
        answer = ${TURN_OF_ANOTHER.lua({ waiter: `sub(mark, ${MARK.name})`, left: `math.max(1, call('PTTL', KEYS[marks + i]))` })}
        refused = record and i
      else
        if shared then
          token = math.max(token, last, heals and least or 0)
        else
          token = math.max(token, least, (last or 0) + 1)
        end
        lefts[i], records[i], besides[i], stale[i] = shared and left, record, beside, old and not (shared and beside)
        stands[i], behind[i] = mark, nil
        if record and byte(record, 2) == ${RECORD.waited} then
          waits = waits or {}
          waits[i] = true
        end
      end
    end
  end
  if mine == n then
    answer = not (${IS_COPY}) and token
  elseif mine > 0 then
    answer = redis.error_reply('ERR this lock was stored before, and some of its keys are gone')
  end
${REFUSE_UNFIT}

  if waits and ordered and not answer then
    for i in pairs(waits) do
      local queue, woken = KEYS[queues + i], false
      while not answer and not lefts[i] do
        local line = call('ZRANGE', queue, 0, ${MOST_WAITERS - 1}, 'WITHSCORES')
        local turn, from, ahead, place = nil, 1, nil, came
        if line[1] and byte(line[1], 1) == ${TURN.letter} then
          turn, from = line[1], 3
        end
        for j = from, #line, 2 do
          if byte(line[j], 1) == ${STANDBYS} then
            break
          end
          ${KEEP_PLACE}
          if byte(line[j], ${WAITER.mode}) ~= ${WAITER.shared} then
            ahead = j
            break
          end
        end
        if not ahead or tonumber(line[ahead + 1]) >= place then
          behind[i] = ahead and string.format('%013.0f:', math.floor(line[ahead + 1])) .. line[ahead]
          break
        end
        local first, before = line[from], line[ahead]
        ${PASS_TURN}
      end
    end
  end

${ADD_TO_QUEUE}
  if not answer then
    local others = 0
    ${RAISE_MARKER}${LEAVE_QUEUES}
    local digits = not answer and ${digitsOf('token')} .. ':'
    for i = 1, answer and 0 or n do
      local name, holders, details, left = ${NAMES.at('name')}, KEYS[holders + i], KEYS[details + i], lefts[i]
      local stored
      if stale[i] then
        call('DEL', holders, details)
      end
      if left then
        -- The record names the reader that ends last; the other readers are in the set and the hash.
        local record, isLast, beside = records[i], left < ttl, besides[i]
        local other, till, own = id, now + ttl, sub(lease, ${ID_LENGTH + 1})
        if isLast then
          other, till, own = sub(record, ${RECORD.id.join(', ')}), now + left, ':' .. sub(record, ${RECORD.beside + 1})
        end
        stored = pcall('ZADD', holders, math.floor(till), other)
        if type(stored) == 'number' then
          call('HSETNX', details, other, sub(isLast and record or digits, isLast and ${RECORD.token[0]} or 1, isLast and ${RECORD.token[1]} or 16) .. own)
          local ends = (isLast or left == math.huge) and now + life or now + left + ${LINGER_MS}
          local ended = beside and left ~= math.huge and now + left + ${LINGER_MS} or 0
          ${KEEP_READERS}
          -- Remove expired readers only when the expiry of the set is renewed. If all readers have the same ttl, that
          -- is every ${ROUND_MS / 1_000} s.
          if beside and (renewed or left > ttl + ${ROUND_MS}) then
            local gone = call('ZRANGEBYSCORE', holders, '-inf', now, 'LIMIT', 0, ${MOST_CLEARED})
            if #gone > 0 then
              call('ZREM', holders, unpack(gone))
              call('HDEL', details, unpack(gone))
            end
          end
          if isLast then
            stored = call('SET', name, (waits and waits[i] and 'Sw' or 'S-') .. digits .. id .. '+' .. sub(lease, ${ID_LENGTH + 2}), 'PX', life)
          else
            if not beside then
              call('SETRANGE', name, ${RECORD.beside - 1}, '+')
            end
            if token > tonumber(sub(record, ${RECORD.token.join(', ')})) then
              -- The reader that the record has named until now keeps its token, in the hash.
              call('HSETNX', details, sub(record, ${RECORD.id.join(', ')}), sub(record, ${RECORD.token[0]}, ${RECORD.token[1] + 1}) .. sub(record, ${RECORD.beside + 1}))
              call('SETRANGE', name, ${RECORD.token[0] - 1}, sub(digits, ${READER.token.join(', ')}))
            end
          end
        end
      else
        stored = pcall('SET', name, (waits and waits[i] and 'Sw' or 'S-') .. digits .. lease, 'PX', life)
      end
      if type(stored) == 'table' and stored.err then
        answer = stored
        break
      end
      if behind[i] and not stands[i] then
        call('SET', KEYS[marks + i], behind[i], 'PX', ${MARK_MS})
        marked = true
      end
    end
    if not answer then
      answer = others == 0 and token or ${STORED.lua({ token: 'token', waiting: 'others' })}
    end
  end
${ADD_ANSWER}
  key, marks = key + (ordered and ${ORDERED.size} or ${NAMES.size}) * n, marks + n
end
${END_ACQUIRE}
`);

/** The number of keys, the keys and the arguments of {@link ACQUIRE_SHARED}, for leases with the same ttl. */
export function packAcquireShared(requests: readonly AcquireRequest[], command: AcquireCommand): Packed {
  const { keyPrefix, ordered } = command;
  const plain = requests.every(
    ({ lease, position, heals }) => lease.keys.length === 1 && !position && heals !== true,
  );
  const names = [...MARKS.of(requests, keyPrefix), ...(ordered ? ORDERED : NAMES).of(requests, keyPrefix)];
  const rows: (string | number)[] = [];
  for (const request of requests) LEASED.push(rows, { request, ordered }, plain);
  return packAcquireWith(names, rows, requests, command, plain);
}
