import { LEAD_MS, STEPS_PER_SECOND } from '../../../core/fencing-token.js';
import type { AcquireRequest } from '../../../core/ports.js';
import { detailsKey, holdersKey, markKey, queueKey, recordKey } from '../lock-key.js';
import { leasePart, LINGER_MS, MARK, RECORD, WAITER, waiterName } from '../record.js';
import type { Packed } from '../connection/command-channel.js';
import type { AcquireCommand } from './acquire-command.js';
import { TOO_LATE, TOO_YOUNG, TURN_OF_ANOTHER } from './acquire.js';
import { MARK_MS } from './hold-back.js';
import { CODE_FIRST, FOREIGN, tokenOf } from './lua.js';
import { DROP_MARK, LEAVE_QUEUE, STAND_IN_LINE, WAKE } from './queue.js';
import { script } from './script.js';

/** How many arguments come before those for the leases. */
const HEADER = 8;

/** How far a token may be ahead of the node's clock before the node's marker is lifted. */
const LEAD = (LEAD_MS * STEPS_PER_SECOND) / 1_000;

/** So many readers whose end has passed are cleared away at a time, so that nobody waits for long. */
const MOST_CLEARED = 100;

/** So many of those who wait are looked at. */
const MOST_WAITERS = 64;

/**
 * Stores leases of readers, each under all its keys or under none, and gives each a fencing token. What is not said here is as
 * in {@link ACQUIRE}.
 *
 * A reader that joins others gets the token that they have, whatever is proposed; the first of a phase counts up (S21). It is
 * kept out by a mark of one who waits in another mode and came earlier (S22), on every node. While readers hold the lock that
 * mark alone keeps the order: it lapses when its waiter dies, and a place in the queue does not. Where the lock is free and
 * waiters queue, nobody passes one of another mode who came earlier; a reader that begins a phase there leaves the mark for the
 * first of them, who has not asked yet since readers hold the lock.
 *
 * KEYS     the node's marker, if it has one; then for each lease its n records, their n sets of holders, n hashes of what is
 *          told of them and n marks; where order is kept their n queues
 * ARGV[1]  what the names of channels begin with; empty on a Cluster
 * ARGV[2]  milliseconds that the records are to live: ttl and linger
 * ARGV[3]  the time on this server's clock, in milliseconds since 1970, after which nobody waits for the answer (S16)
 * ARGV[4]  guard in milliseconds, or 0 for none (S12)
 * ARGV[5]  the token that the nodes are to agree on, if theirs need not be larger; 0 for a single node
 * ARGV[6]  1 where order is kept, else 0
 * ARGV[7]  1 when KEYS begins with the marker, else 0
 * ARGV[8]  1 when every lease has one key and has not waited: then it has one argument, else four
 * ARGV     for each lease:
 *          - its id, time and owner, as they stand in the record
 *          - n
 *          - for one that waits its name in the queue, else empty
 *          - milliseconds that it has waited
 * Returns  as {@link ACQUIRE}
 *
 * The record names the one reader who ends last, and the others are beside it: so the one reader that there mostly is costs what
 * an exclusive lock does.
 *
 * All is read before anything is written, so that no value of something else is overwritten (S19). The first write is one that
 * fails when memory is short; only what is left of an earlier phase, or a waiter in the queue, is deleted before.
 */
export const ACQUIRE_SHARED = script(`
local call, try = redis.call, redis.pcall
local time = call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local clock = time[1] * ${STEPS_PER_SECOND} + math.floor(time[2] * ${STEPS_PER_SECOND / 1_000_000})
local base, life = ARGV[1], tonumber(ARGV[2])
local ttl = life - ${LINGER_MS}
local late = now - ARGV[3]
local guard, proposal = tonumber(ARGV[4]), tonumber(ARGV[5])
local ordered, plain = ARGV[6] == '1', ARGV[8] == '1'
local least = math.max(clock, math.min(proposal, clock + ${LEAD}))
local young, key, marker, born, high = 0, 0
if ARGV[7] == '1' then
  marker, key = KEYS[1], 1
  local mark = call('GET', marker)
  born, high = now, 0
  if mark then
    born, high = tonumber(string.sub(mark, 1, 16)), tonumber(string.sub(mark, 18, 33))
  end
  if not mark or born > now then
    -- A birth in the future, of a clock that was set back since, begins anew.
    born = math.floor(now)
    call('SET', marker, string.format('%016.0f:%016.0f', born, high))
  end
  young = guard - (now - born)
  least = math.max(least, high + 1)
end

-- Of each key of a lease: how long readers hold it, if they do, the record, who of them has lapsed, whether one is there who
-- held it before, the mark, and the mark that is to be left.
local lefts, records, gones, stale, marked, behind = {}, {}, {}, {}, {}, {}
local answers = {}
for at = ${HEADER + 1}, #ARGV, plain and 1 or 4 do
  local lease, n, waiter, waited = ARGV[at], 1, nil, 0
  if not plain then
    n, waiter, waited = tonumber(ARGV[at + 1]), ARGV[at + 2], tonumber(ARGV[at + 3])
    if waiter == '' then
      waiter = nil
    end
  end
  local holders, details, marks, queues = key + n, key + 2 * n, key + 3 * n, key + 4 * n
  local id, came = string.sub(lease, 1, 32), now - waited
  local token, mine, answer, refused, waits = 0, 0
  for i = 1, n do
    if answer then
      break
    end
    local record, mark = try('GET', KEYS[key + i]), try('GET', KEYS[marks + i])
    local failed = record and record.err and record or mark and mark.err and mark
    local last = not failed and record and ${tokenOf('record')}
    if failed then
      answer = failed
    elseif record and not last or mark and (#mark < ${MARK.shortest} or string.byte(mark, ${MARK.name - 1}) ~= 58) then
      answer = ${FOREIGN}
    else
      local state, left = record and string.byte(record, 1) or ${RECORD.free}, 0
      if state ~= ${RECORD.free} then
        left = call('PTTL', KEYS[key + i])
        left = left < 0 and math.huge or left - ${LINGER_MS}
      end
      local shared = state == ${RECORD.shared} and left > 0
      local named = record and string.sub(record, ${RECORD.id.join(', ')}) == id
      local others, own = {}
      if shared then
        others = try('ZRANGEBYSCORE', KEYS[holders + i], '-inf', now, 'LIMIT', 0, ${MOST_CLEARED})
        own = try('HGET', KEYS[details + i], id)
      elseif left <= 0 then
        others = try('ZRANGE', KEYS[holders + i], 0, 0)
        own = others[1] and try('HGET', KEYS[details + i], id)
      end
      if others.err or own and own.err then
        answer = others.err and others or own
      elseif own or named then
        local ends = shared and own and call('ZSCORE', KEYS[holders + i], id)
        if ends and tonumber(ends) > now then
          mine, token = mine + 1, math.max(token, tonumber(string.sub(own, 1, 16)))
        elseif shared and named then
          mine, token = mine + 1, math.max(token, own and tonumber(string.sub(own, 1, 16)) or last)
        else
          answer = redis.error_reply('ERR this lease was stored before, and has ended')
        end
      elseif left > 0 and not shared then
        answer, refused = {i, record, left == math.huge and -1 or left}, i
      elseif mark and string.byte(mark, ${MARK.mode}) ~= ${WAITER.shared} and tonumber(string.sub(mark, ${MARK.came.join(', ')})) < came then
        -- Where there is no record nobody could tell that a queue is there.
        answer = {${TURN_OF_ANOTHER}, string.sub(mark, ${MARK.name}), math.max(1, call('PTTL', KEYS[marks + i]))}
        refused = record and i
      else
        if shared then
          token = math.max(token, last)
        else
          token = math.max(token, least, (last or 0) + 1)
        end
        lefts[i], records[i], gones[i], stale[i] = shared and left, record, others, others[1]
        marked[i], behind[i] = mark, nil
        if record and string.byte(record, 2) == ${RECORD.waited} then
          waits = waits or {}
          waits[i] = true
        end
      end
    end
  end
  if mine == n then
    answer = token
  elseif mine > 0 then
    answer = redis.error_reply('ERR this lease was stored before, and a part of it is gone')
  elseif not answer and late > 0 then
    answer = {${TOO_LATE}, math.ceil(late)}
  elseif not answer and young > 0 then
    answer = {${TOO_YOUNG}, math.ceil(young)}
  end

  if waits and ordered and not answer then
    for i in pairs(waits) do
      local queue, woken = KEYS[queues + i], false
      while not answer and not lefts[i] do
        local line = call('ZRANGE', queue, 0, ${MOST_WAITERS - 1}, 'WITHSCORES')
        local turn, from, ahead = nil, 1
        if line[1] and string.byte(line[1], 1) == 33 then
          turn, from = line[1], 3
        end
        for j = from, #line, 2 do
          if string.byte(line[j], 1) == 63 then
            break
          end
          if string.byte(line[j], ${WAITER.mode}) ~= ${WAITER.shared} then
            ahead = j
            break
          end
        end
        if not ahead or tonumber(line[ahead + 1]) >= came then
          behind[i] = ahead and string.format('%013.0f:', math.floor(line[ahead + 1])) .. line[ahead]
          break
        end
        local first = line[from]
        if not turn or string.sub(turn, 18) ~= first then
          if woken then
            -- The turn could not be stored: memory is short, or the server takes no writes.
            break
          end
          -- The last holder has lapsed, and so told nobody.
          local after, released = 0, '-'
          ${WAKE}
          woken = true
        else
          local ends = tonumber(string.sub(turn, 2, 17))
          if ends > now then
            answer, refused = {${TURN_OF_ANOTHER}, line[ahead], math.ceil(ends - now)}, i
          else
            call('ZREM', queue, first, turn)
          end
        end
      end
    end
  end

${STAND_IN_LINE}
  if not answer then
    local others = 0
    if token > 9007199254740991 then
      answer = redis.error_reply('ERR fencing token out of range: it or the clock of this server is wrong')
    elseif marker and token > math.max(high, clock + ${LEAD}) then
      local lifted = try('SET', marker, string.format('%016.0f:%016.0f', born, token))
      if lifted.err then
        answer = lifted
      else
        high = token
      end
    end
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
    local digits = not answer and string.format('%016.0f:', token)
    for i = 1, answer and 0 or n do
      local name, set, hash, left = KEYS[key + i], KEYS[holders + i], KEYS[details + i], lefts[i]
      local stored
      if left then
        -- The record names the one who ends last; the others are beside it.
        local record, isLast = records[i], left < ttl
        local other, ends, own = id, now + ttl, string.sub(lease, 33)
        if isLast then
          other, ends, own = string.sub(record, ${RECORD.id.join(', ')}), now + left, string.sub(record, ${RECORD.id[1] + 1})
        end
        stored = try('ZADD', set, math.floor(ends), other)
        if type(stored) == 'number' then
          call('HSETNX', hash, other, (isLast and string.sub(record, ${RECORD.token.join(', ')}) or string.sub(digits, 1, 16)) .. own)
          if #gones[i] > 0 then
            call('ZREM', set, unpack(gones[i]))
            call('HDEL', hash, unpack(gones[i]))
          end
          local kept = (isLast or left == math.huge) and life or left + ${LINGER_MS}
          call('PEXPIRE', set, kept)
          call('PEXPIRE', hash, kept)
          if isLast then
            stored = call('SET', name, (waits and waits[i] and 'Sw' or 'S-') .. digits .. lease, 'PX', life)
          elseif token > tonumber(string.sub(record, ${RECORD.token.join(', ')})) then
            -- The one that the record names keeps the token that it was granted.
            call('HSETNX', hash, string.sub(record, ${RECORD.id.join(', ')}), string.sub(record, ${RECORD.token[0]}, ${RECORD.token[1] + 1}) .. string.sub(record, 53))
            call('SETRANGE', name, ${RECORD.token[0] - 1}, string.sub(digits, 1, 16))
          end
        end
      else
        if stale[i] then
          call('DEL', set, hash)
        end
        stored = try('SET', name, (waits and waits[i] and 'Sw' or 'S-') .. digits .. lease, 'PX', life)
      end
      if type(stored) == 'table' and stored.err then
        answer = stored
        break
      end
      if behind[i] and not marked[i] then
        call('SET', KEYS[marks + i], behind[i], 'PX', ${MARK_MS})
      end
    end
    if not answer then
      answer = others == 0 and token or {0, token, others}
    end
  end

  if type(answer) == 'table' and answer.err then
    ${CODE_FIRST}
    if string.sub(answer.err, 1, 8) == 'READONLY' then
      -- The answer for all: clients look for that error (\`reconnectOnError\`).
      return answer
    end
  end
  answers[#answers + 1] = answer
  key = ordered and queues + n or queues
end
answers[#answers + 1] = time[1] * 1000000 + time[2]
return answers
`);

/** The number of keys, the keys and the arguments of {@link ACQUIRE_SHARED}, for leases of one ttl. */
export function packAcquireShared(
  requests: readonly AcquireRequest[],
  { keyPrefix, base, ordered, marker, deadline, guard }: AcquireCommand,
): Packed {
  const plain = requests.every(({ lease, position }) => lease.keys.length === 1 && !position);
  const packed: [number, ...(string | number)[]] = [0];
  if (marker !== undefined) packed.push(marker);
  let proposal = 0;
  for (const request of requests) {
    const { keys } = request.lease;
    for (const nameOf of ordered ? ORDERED_KEYS : KEYS)
      for (const key of keys) packed.push(nameOf(keyPrefix, key));
    proposal = Math.max(proposal, request.proposal);
  }
  packed[0] = packed.length - 1;
  const life = (requests[0]?.lease.ttl ?? 0) + LINGER_MS;
  const marked = marker === undefined ? 0 : 1;
  packed.push(base, life, deadline, guard, proposal, ordered ? 1 : 0, marked, plain ? 1 : 0);
  for (const request of requests) {
    packed.push(leasePart(request));
    if (plain) continue;
    const { lease, position } = request;
    packed.push(lease.keys.length, ordered && position ? waiterName(position.waiter) : '');
    packed.push(position?.waited.toFixed(3) ?? 0);
  }
  return packed;
}

const KEYS = [recordKey, holdersKey, detailsKey, markKey];
const ORDERED_KEYS = [...KEYS, queueKey];
