import { createHash } from 'node:crypto';

/** A Lua script and the hash by which a server that has seen it knows it. */
export interface Script {
  readonly lua: string;
  readonly sha: string;
}

/** Hashes it when it is first sent: nobody waits for that at start-up, and not every script is used. */
function script(lua: string): Script {
  let sha: string | undefined;
  return {
    lua,
    get sha() {
      return (sha ??= createHash('sha1').update(lua).digest('hex'));
    },
  };
}

/** How long the first of a queue has to take a lock that was released, in milliseconds, before it is dropped from the queue. */
const TURN_MS = 150;

/** How long after a turn began, at most, the next two of a queue try, in milliseconds; when they do, it has ended. */
const STANDBY_MS = 200;

/** How long a queue is kept that nobody comes to, in milliseconds; those who wait come every few seconds. */
const QUEUE_LIFE_MS = 60_000;

/**
 * Lua functions for the queue of a lock key, a sorted set: its members are places, which {@link placeName} makes, and
 * their scores the server's time in milliseconds at which the waiter came. The one whose turn it is stands there a
 * second time, in front of all: `!deadline:place` with the score -1.
 *
 * A message goes to the first in line, and to the next two for the case that it does not take its turn: two, because one
 * may hang as well. To wake them costs more than all the rest while a lock changes hands every millisecond, so who was
 * told already is not told again, as long as it will try after the turn that begins now has ended, and soon. The last of
 * the queue says who that is: `?places`, with 1e13 and a time for score, were told in the 50 ms since then.
 *
 * Nobody receives what is published to a process that has gone, so its place is dropped at once. PUBLISH comes after all
 * else and only as `pcall`: a user may have no right to the channel (S7). So does ZADD, which fails when memory is
 * short: the queue is advice, and an order that is lost costs time and nothing else.
 *
 * Made only where somebody waits: making the functions takes a tenth of the time of a script that grants.
 */
const QUEUE = `
local function queueing()
  local function tell(queue, base, place, text)
    local process, number = string.match(place, '^(%x+):(%d+):')
    if not process then
      return false
    end
    local command, channel = 'PUBLISH', base .. process
    if base == '' then
      command, channel = 'SPUBLISH', queue .. ':' .. process
    end
    local receivers = redis.pcall(command, channel, number .. ' ' .. text)
    return receivers ~= 0
  end

  local function first(queue)
    local front = redis.call('ZRANGE', queue, 0, 1, 'WITHSCORES')
    if front[1] and string.sub(front[1], 1, 1) == '!' then
      return front[3], tonumber(front[4]), front[1]
    end
    return front[1], tonumber(front[2])
  end

  local function wake(queue, base, after, released)
    local time = redis.call('TIME')
    local begin = math.floor(time[1] * 1000 + time[2] / 1000 + after)
    local _, _, turn = first(queue)
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
    local watching, since = last[1], tonumber(last[2] or 0) - 1e13
    redis.call('ZREM', queue, turn or '', since > 0 and watching or '')
    if begin < since or begin > since + ${STANDBY_MS - TURN_MS} then
      watching, since = '?', begin
    end
    local awake = 0
    while awake == 0 do
      local places = redis.call('ZRANGE', queue, 0, 2)
      if #places == 0 then
        return 0
      end
      for _, place in ipairs(places) do
        local standby = awake > 0
        local delay = math.ceil(after + (standby and ${STANDBY_MS} or 0))
        if standby and string.find(watching, place, 1, true) then
          awake = awake + 1
        elseif tell(queue, base, place, delay .. ' ' .. (released or '')) then
          awake = awake + 1
          if standby then
            watching = watching .. place
          else
            redis.pcall('ZADD', queue, -1, string.format('!%.0f:%s', begin + ${TURN_MS}, place))
          end
        else
          redis.call('ZREM', queue, place)
        end
      end
    end
    if watching ~= '?' then
      redis.pcall('ZADD', queue, 1e13 + since, watching)
    end
    return awake
  end

  local function leave(lock, queue, base, place)
    local _, _, turn = first(queue)
    if turn and string.match(turn, '^!%d+:(.*)$') == place then
      redis.call('ZREM', queue, turn)
    end
    local left = redis.call('ZREM', queue, place)
    if string.sub(first(queue) or '', 1, 1) == '?' then
      redis.call('DEL', queue)
    elseif left == 1 and redis.call('EXISTS', lock) == 0 then
      wake(queue, base, 0)
    end
  end

  local function take_place(queue, now, waited, place)
    redis.pcall('ZADD', queue, string.format('%.3f', now - waited), place)
    redis.call('PEXPIRE', queue, ${QUEUE_LIFE_MS})
  end

  return first, wake, leave, take_place
end
`;

/** What {@link ACQUIRE} answers first when it did not store the claim; a positive number is the position of a held key. */
export const TOO_LATE = -1;
export const TOO_YOUNG = -2;
export const ALREADY_RAN = -3;
export const TURN_OF_ANOTHER = -4;

/**
 * The end of a script that does `one` thing for each of several claims, with three arguments for each: an error with
 * one of them is the answer for that one alone. It is a table, and before Redis 7 a string. That the server is a replica
 * is the answer for all: clients look for that error (`reconnectOnError` of ioredis).
 */
const EACH = `
local answers, key = {}, 0
for arg = 2, #ARGV, 3 do
  size = nil
  local fine, what = pcall(one, key, arg)
  if not fine then
    local text = type(what) == 'table' and what.err or what
    what = redis.error_reply(string.match(text, '^@user_script: %d+: %-(.*)') or text)
    if string.match(what.err, '^%-?READONLY') then
      return what
    end
  end
  answers[#answers + 1] = what
  key = key + size
end
`;

/**
 * Stores claims, each under all its keys or under none, and counts the grants. At the node where waiters queue it also
 * keeps their order: it does not pass those who came earlier, and who is refused and has a place is put in line.
 *
 * KEYS     for each claim: its n lock keys, their n fencing counters, with a guard the marker of the node's birth, where
 *          order is kept the n queues, and for a tick of a schedule the key of the last one that ran
 * ARGV[1]  what the names of channels begin with, which is empty on a Cluster
 * ARGV     then for each claim:
 *          - its value
 *          - numbers, with spaces between them, because each argument costs the client and the server a fraction of a
 *            microsecond: n; ttl in milliseconds; milliseconds that a counter is kept; the time on this server's clock,
 *            in milliseconds, after which nobody waits for the answer, or 0 for never; guard in milliseconds, or 0 for
 *            none; what to start a missing counter at, so that nodes agree on it, with counters kept at the second, or 0
 *            to keep them at the microsecond, for a single node; 1 where order is kept, else 0; the tick, in
 *            milliseconds since 1970, or - for none
 *          - for one that waits: the milliseconds that it has waited, those that the next waiter of its process has
 *            waited, who gets the place when it is granted, or - for none, and its place; else empty
 * Returns  the answers for the claims, and then the time in microseconds on this server's clock. An answer is one of
 *          counter                     stored
 *          {0, counter, waiting}       stored, and others wait; waiting is 2 if the one who got the place is the first of
 *                                      them, else 1
 *          {i, value, pttl}            the i-th key holds another value for pttl milliseconds more
 *          {-1, milliseconds late}     the deadline had passed (S16)
 *          {-2, milliseconds to go}    the node's data is younger than the guard (S12)
 *          {-3, value, pttl}           that tick or a later one has run, which is known for pttl milliseconds more
 *          {-4, place, milliseconds}   it is free, but the turn of that place for so long
 *          an error
 *
 * GET comes first, so that a key of another type is a loud error and not a lock that looks held for ever (S19), and
 * so that running twice for the same claim, as a client that resends after a cut connection makes it do, grants
 * again. Nothing that runs before an error is undone, so the counters are written before the locks: a counter too
 * high does no harm. A marker from the future, of a clock that was set back since, begins anew. When memory is short the
 * first SET fails and nothing is stored; after it, and after a write for a claim before, the others cannot. A request that
 * comes late leaves no place.
 */
export const ACQUIRE = script(`
${QUEUE}
local base = ARGV[1]
local time = redis.call('TIME')
local seconds, micros = tonumber(time[1]), tonumber(time[2])
local now = seconds * 1000 + micros / 1000
local fine = seconds * 1048576 + math.floor(micros * 1.048576)
local coarse = seconds * 1048576
local size

local function wait_at(i, n, lock, queues, waited, place)
  local _, _, leave, take_place = queueing()
  for j = 1, n do
    if j == i then
      take_place(KEYS[queues + j], now, waited, place)
    else
      leave(KEYS[lock + j], KEYS[queues + j], base, place)
    end
  end
end

local function one(lock, arg)
  local value = ARGV[arg]
  local n, ttl, life, deadline, guard, seed, order, tick =
    string.match(ARGV[arg + 1], '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d) (.*)$')
  n, deadline, guard, seed, tick = tonumber(n), tonumber(deadline), tonumber(guard), tonumber(seed), tonumber(tick)
  local counters = lock + n
  local queues = counters + n + (guard > 0 and 1 or 0)
  size = queues + (order == '1' and n or 0) + (tick and 1 or 0) - lock
  local late = deadline > 0 and now > deadline
  local waited, next, place
  if ARGV[arg + 2] ~= '' then
    waited, next, place = string.match(ARGV[arg + 2], '^(%S+) (%S+) (.*)$')
    waited, next = tonumber(waited), tonumber(next)
  end

  if tick then
    local ran = KEYS[lock + size]
    local last = redis.call('GET', ran)
    if last and tonumber(string.match(last, '^%d+')) >= tick then
      return {-3, last, redis.call('PTTL', ran)}
    end
  end

  local mine = 0
  for i = 1, n do
    local stored = redis.call('GET', KEYS[lock + i])
    if stored == value then
      mine = mine + 1
    elseif stored then
      if place and not late then
        wait_at(i, n, lock, queues, waited, place)
      end
      return {i, stored, redis.call('PTTL', KEYS[lock + i])}
    end
  end
  if mine > 0 then
    local counter = redis.call('GET', KEYS[counters + 1])
    if mine == n and counter then
      return tonumber(counter)
    end
    return redis.error_reply('ERR this claim was stored before, and a part of it is gone')
  end

  if late then
    return {-1, math.ceil(now - deadline)}
  end

  if guard > 0 then
    local marker = KEYS[counters + n + 1]
    local born = tonumber(redis.call('GET', marker) or '-1')
    if born < 0 or born > now then
      redis.call('SET', marker, string.format('%.0f', now))
      born = now
    end
    if now - born < guard then
      return {-2, math.ceil(guard - (now - born))}
    end
  end

  local waiting
  for i = 1, order == '1' and n or 0 do
    local queue = KEYS[queues + i]
    if redis.call('EXISTS', queue) == 1 then
      waiting = waiting or {}
      local first, wake = queueing()
      while true do
        local head, arrived, turn = first(queue)
        waiting[i] = head
        if not head or head == place or (place and now - waited < arrived) then
          break
        end
        local till, whose = string.match(turn or '', '^!(%d+):(.*)$')
        if whose ~= head then
          -- The last holder has lapsed, and so told nobody.
          wake(queue, base, 0)
        elseif tonumber(till) > now then
          if place then
            wait_at(i, n, lock, queues, waited, place)
          end
          return {-4, head, math.ceil(tonumber(till) - now)}
        else
          redis.call('ZREM', queue, head, turn)
        end
      end
    end
  end

  local counter = 0
  for i = counters + 1, counters + n do
    local last = tonumber(redis.call('GET', KEYS[i]) or '-1')
    local following
    if seed == 0 then
      following = math.max(last + 1, fine)
    elseif last < 0 then
      following = math.max(fine, math.min(seed, fine + 2097152))
    else
      following = math.max(last + 1, coarse)
    end
    counter = math.max(counter, following)
  end
  if counter > 9007199254740991 then
    return redis.error_reply('ERR fencing counter out of range: it or the clock of this server is wrong')
  end
  local digits = string.format('%.0f', counter)
  for i = counters + 1, counters + n do
    redis.call('SET', KEYS[i], digits, 'PX', life)
  end
  for i = lock + 1, lock + n do
    redis.call('SET', KEYS[i], value, 'PX', ttl)
  end

  local others = 0
  if waiting then
    local _, _, leave = queueing()
    for i in pairs(waiting) do
      leave(KEYS[lock + i], KEYS[queues + i], base, place or '')
      others = math.max(others, redis.call('EXISTS', KEYS[queues + i]))
    end
  end
  if next then
    local _, _, _, take_place = queueing()
    take_place(KEYS[queues + 1], now, next, place)
    if redis.call('ZRANGE', KEYS[queues + 1], 0, 0)[1] == place then
      others = 2
    end
  end
  return others == 0 and counter or {0, counter, others}
end

${EACH}
answers[#answers + 1] = seconds * 1000000 + micros
return answers
`);

/**
 * Meets a server on a new connection: learns its clock, and leaves a marker of when it was first met. A server that
 * loses its data loses the marker, too (S12).
 *
 * KEYS     the marker, or none
 * Returns  microseconds since 1970 on this server's clock
 */
export const BIRTH = script(`
local time = redis.call('TIME')
local seconds, micros = tonumber(time[1]), tonumber(time[2])
if KEYS[1] then
  redis.call('SET', KEYS[1], string.format('%.0f', seconds * 1000 + micros / 1000), 'NX')
end
return seconds * 1000000 + micros
`);

/**
 * Lifts the counters to the token that the nodes agree on, if all keys still hold the claim and no counter is beyond
 * it. Only with both conditions does a quorum of successes make the token larger than every earlier one: checking
 * ownership alone, or writing blindly, is wrong when messages are executed twice (SAFETY "Fencing tokens").
 *
 * KEYS     n lock keys and their n fencing counters
 * ARGV[1]  n
 * ARGV[2]  the value of the claim
 * ARGV[3]  the token
 * ARGV[4]  milliseconds that a counter is kept
 * Returns  1 when all counters are at the token now, else 0
 */
export const RAISE = script(`
local n = tonumber(ARGV[1])
local token = tonumber(ARGV[3])
for i = 1, n do
  if redis.call('GET', KEYS[i]) ~= ARGV[2] or tonumber(redis.call('GET', KEYS[n + i]) or '0') > token then
    return 0
  end
end
for i = n + 1, 2 * n do
  redis.call('SET', KEYS[i], ARGV[3], 'PX', ARGV[4])
end
return 1
`);

/**
 * Makes the keys of each claim live for at least the ttl, and their counters as long as ever, if all its keys still
 * hold it. What became of one claim is no matter for the others: a key of another type does not hold the claim.
 *
 * KEYS     for each claim its n lock keys and their n fencing counters
 * ARGV[1]  ttl in milliseconds
 * ARGV[2]  milliseconds that a counter is kept
 * ARGV     for each claim n and the value of the claim
 * Returns  a string with 1 for each claim whose keys all hold it, and 0 for each other
 *
 * PEXPIRE and not SET: it works when memory is short (S9). A longer life is left alone, because an older extension
 * that was delayed must not cut short what a newer one promised.
 */
export const EXTEND = script(`
local ttl = tonumber(ARGV[1])
local outcomes = {}
local before = 0
for i = 3, #ARGV, 2 do
  local n = tonumber(ARGV[i])
  local first, last = before + 1, before + n
  local mine = true
  for k = first, last do
    mine = mine and redis.pcall('GET', KEYS[k]) == ARGV[i + 1]
  end
  if mine then
    for k = first, last do
      if redis.call('PTTL', KEYS[k]) < ttl then
        redis.call('PEXPIRE', KEYS[k], ARGV[1])
      end
      redis.call('PEXPIRE', KEYS[n + k], ARGV[2])
    end
  end
  outcomes[#outcomes + 1] = mine and '1' or '0'
  before = before + 2 * n
end
return table.concat(outcomes)
`);

/**
 * For each claim deletes the keys that hold it, and no others (S7), or gives them a last while to live; and tells those
 * who wait when they can try. Counters stay.
 *
 * Then remembers the tick that has run, if there is one, unless a later one is known: whoever holds the keys by now, it
 * has run. The DEL comes first, because it works when memory is short; then the messages (S7), and last what can fail.
 *
 * KEYS     for each claim: its n lock keys, their n queues, and, for a tick, the key of the last one that ran
 * ARGV[1]  what the names of channels begin with; empty on a Cluster
 * ARGV     then for each claim:
 *          - its value
 *          - n alone, or numbers with spaces between them: n; milliseconds for which the keys are kept still (minHold),
 *            longer or shorter than their present life, or 0 to delete them; milliseconds after which the first in line
 *            shall try, or 0 for at once; milliseconds for which the tick is remembered, or - for none
 *          - what to remember: the tick, in milliseconds since 1970, a colon, and the owner; empty for none
 * Returns  for each claim how many waiters were told, or an error
 */
export const RELEASE = script(`
${QUEUE}
local size

local function one(lock, arg)
  local n, keep, after, life = tonumber(ARGV[arg + 1]), 0, 0
  if not n then
    n, keep, after, life = string.match(ARGV[arg + 1], '^(%d+) (%d+) (%d+) (.*)$')
    n, keep, after, life = tonumber(n), tonumber(keep), tonumber(after), tonumber(life)
  end
  size = 2 * n + (life and 1 or 0)
  local kept = {}
  for i = lock + 1, lock + n do
    if redis.call('GET', KEYS[i]) == ARGV[arg] then
      if keep > 0 then
        redis.call('PEXPIRE', KEYS[i], keep)
        kept[i] = true
      else
        redis.call('DEL', KEYS[i])
      end
    end
  end
  local told = 0
  for i = lock + 1, lock + n do
    local queue = KEYS[n + i]
    if redis.call('EXISTS', queue) == 1 and (kept[i] or redis.call('EXISTS', KEYS[i]) == 0) then
      local _, wake = queueing()
      told = told + wake(queue, ARGV[1], math.max(after, kept[i] and keep or 0), string.sub(ARGV[arg], 1, 32))
    end
  end
  if life then
    local ran, tick = KEYS[lock + size], ARGV[arg + 2]
    local last = redis.call('GET', ran)
    if not last or tonumber(string.match(last, '^%d+')) <= tonumber(string.match(tick, '^%d+')) then
      redis.call('SET', ran, tick, 'PX', life)
    end
  end
  return told
end

${EACH}
return answers
`);

/**
 * Gives a place in the queues up; passes its turn on if the lock is free.
 *
 * KEYS     n lock keys and their n queues
 * ARGV[1]  n
 * ARGV[2]  the place
 * ARGV[3]  what the names of channels begin with; empty on a Cluster
 */
export const LEAVE = script(`
${QUEUE}
local n = tonumber(ARGV[1])
local _, _, leave = queueing()
for i = 1, n do
  leave(KEYS[i], KEYS[n + i], ARGV[3], ARGV[2])
end
return 1
`);

/**
 * Tells what stands under lock keys, without changing anything.
 *
 * KEYS     n lock keys and their n fencing counters
 * Returns  for each lock key, in this order:
 *          {}                       it is free
 *          {value, pttl, counter}   counter is empty when there is none
 *          {error}                  it is of another type
 */
export const LOOK = script(`
local n = #KEYS / 2
local found = {}
for i = 1, n do
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'table' then
    found[i] = {value.err}
  elseif value then
    local counter = redis.pcall('GET', KEYS[n + i])
    found[i] = {value, redis.call('PTTL', KEYS[i]), type(counter) == 'string' and counter or ''}
  else
    found[i] = {}
  end
end
return found
`);

/**
 * Deletes a lock key that is held under one of the ids, whoever asks, and tells those who wait. Counters stay.
 *
 * KEYS     the lock key and its queue
 * ARGV[1]  what the names of channels begin with; empty on a Cluster
 * ARGV     then the ids that were seen on any node
 * Returns  the position of the id that it was held under, or 0 when nothing was deleted
 *
 * The ids, and not whatever is there, so that a request that is delayed or sent twice leaves the next holder alone.
 */
export const FORCE_RELEASE = script(`
${QUEUE}
local value = redis.call('GET', KEYS[1])
if value then
  for i = 2, #ARGV do
    local id = ARGV[i]
    if string.sub(value, 1, #id) == id then
      redis.call('DEL', KEYS[1])
      local _, wake = queueing()
      wake(KEYS[2], ARGV[1], 0)
      return i - 1
    end
  end
end
return 0
`);

/**
 * Tries whether a lock could be written: fails as ACQUIRE would, when memory is short, replicas are missing, the disk is
 * full, or the user may not run one of the commands. It costs nothing to anybody: SET with XX leaves a key alone that
 * is not there, and still passes all the checks of the server, so nothing goes to the disk or to replicas.
 *
 * KEYS     a key that is never written
 */
export const PROBE = script(`
redis.call('TIME')
redis.call('SET', KEYS[1], '', 'XX', 'PX', 1)
for _, command in ipairs({'GET', 'EXISTS', 'PTTL', 'DEL'}) do
  redis.call(command, KEYS[1])
end
redis.call('PEXPIRE', KEYS[1], 1)
redis.call('ZRANGE', KEYS[1], 0, 0)
redis.call('ZREM', KEYS[1], '')
return 1
`);
