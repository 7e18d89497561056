import { LEAD_MS, STEPS_PER_SECOND } from '../../../core/fencing-token.js';
import type { AcquireReply, AcquireRequest, KeyHolder } from '../../../core/ports.js';
import { detailsKey, holdersKey, markKey, queueKey, recordKey } from '../lock-key.js';
import { leasePart, LINGER_MS, MARK, RECORD, STATE, WAITER, waiterName } from '../record.js';
import type { Packed } from '../connection/command-channel.js';
import type { AcquireCommand } from './acquire-command.js';
import { readAcquireReply, TOO_LATE, TOO_YOUNG, TURN_OF_ANOTHER } from './acquire.js';
import { CODE_FIRST, FOREIGN, tokenOf } from './lua.js';
import { GIVE_UP_SLOTS } from './permit-exchange.js';
import { STORE_PERMIT } from './permit-grant.js';
import { TELL_HOLDERS } from './permit-refusal.js';
import { CHOOSE_SLOT } from './permit-slot.js';
import { WAIT_FOR_TURN } from './permit-turn.js';
import { COUNT_OF_RECORD, parsePermit, parsePermitRecord, PERMITS } from './permits.js';
import { DROP_MARK, LEAVE_QUEUE, QUEUE_LIFE_MS, STAND_IN_LINE, WAKE } from './queue.js';
import { script } from './script.js';

/** Width of a token and of a slot in the answer for a lease that was stored. */
const TOKEN_DIGITS = 16;
const SLOT_DIGITS = 4;

/** How many arguments come before those for the leases. */
const HEADER = 9;

/** How far a token may be ahead of the node's clock before the node's marker is lifted. */
const LEAD = (LEAD_MS * STEPS_PER_SECOND) / 1_000;

/**
 * Stores leases, each with a slot of each of its keys or with none, and gives each a fencing token. What is not said here is as
 * in ACQUIRE, what is stored is told of at {@link PERMITS}.
 *
 * A slot is a lock of its own with a row of tokens of its own (S20): its token is larger than the one that it had before and than
 * the floor of the phase, and no grant of another slot raises it. The record has the largest, which an exclusive or a shared
 * phase goes on from, and the next one of permits. Several keys have one token for all their slots.
 *
 * In line: who asks is kept out by those who wait for permits, too, and came earlier, as long as there are not more free slots
 * than they are. While permits are held, a waiter in another mode keeps those out who come later by its mark alone (S22), which
 * lapses when it dies; a place in the queue does not. Who begins a phase leaves that mark for the first of them.
 *
 * KEYS     the node's marker, if it has one; then for each lease its n records, their n sets of holders, n hashes of what is
 *          told of them and n marks; where order is kept their n queues
 * ARGV[1]  what the names of channels begin with; empty on a Cluster
 * ARGV[2]  ttl in milliseconds
 * ARGV[3]  the time on this server's clock, in milliseconds since 1970, after which nobody waits for the answer (S16)
 * ARGV[4]  guard in milliseconds, or 0 for none (S12)
 * ARGV[5]  the token that the nodes are to agree on, if theirs need not be larger; 0 for a single node
 * ARGV[6]  1 where order is kept, else 0
 * ARGV[7]  1 when KEYS begins with the marker, else 0
 * ARGV[8]  1 when every lease has one key and nothing else to say: then it has one argument
 * ARGV[9]  how many permits each of the keys has, as far as these leases know
 * ARGV     for each lease:
 *          - its id, time and owner, as they stand in the record
 *          - n
 *          - for one that waits its name in the queue, else empty
 *          - milliseconds that it has waited; empty for one that does not wait
 *          - milliseconds that the next waiter of its process has waited, who takes over its place; empty for none
 *          - 1 for the slots that follow and no others, 0 for the next free ones from there on, empty for the lowest free ones
 *          - for each key a slot, unless that is empty
 * Returns  an answer for each lease, and then the time in microseconds on this server's clock. An answer is one of
 *          a string                           stored: 16 digits of the token, and 4 of the slot of each key; a list with both
 *                                             takes the client 1 us more
 *          {0, that string, waiting, most}    stored, and others wait, with waiting as in ACQUIRE, or 0; most is there when others
 *                                             have asked for more permits of late, and says how many
 *          {i, record, pttl}                  the i-th key is held in another mode, or by the one holder that the record names
 *          {i, {id, details, left, ...}}      all slots of the i-th key are taken: the first ten holders to go, or the one that has
 *                                             the slot that it must be, and for how many milliseconds
 *          {-4, waiter, milliseconds}         it is the turn of that waiter for so long, or its mark stands for so long
 *          and as in ACQUIRE {-1, milliseconds late}, {-2, milliseconds to go}, or an error
 */
export const ACQUIRE_PERMITS = script(`
local call, try, pcall, sub, byte = redis.call, redis.pcall, redis.pcall, string.sub, string.byte
local time = call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local clock = time[1] * ${STEPS_PER_SECOND} + math.floor(time[2] * ${STEPS_PER_SECOND / 1_000_000})
local base, ttl, permits = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[9])
local ends = math.floor(now) + ttl
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
    born, high = tonumber(sub(mark, 1, 16)), tonumber(sub(mark, 18, 33))
  end
  if not mark or born > now then
    -- A birth in the future, of a clock that was set back since, begins anew.
    born = math.floor(now)
    call('SET', marker, string.format('%016.0f:%016.0f', born, high))
  end
  young = guard - (now - born)
  least = math.max(least, high + 1)
end

-- Of the keys of one lease: the records, how long they are held, whether several hold them, the slots that are taken, as many as
-- are known of, the slots that the lease gets, and until when the set and the hash live.
local records, lefts, manies, bits, slots, livings = {}, {}, {}, {}, {}, {}
-- Text that many leases have in common: the digits of slots, and what a phase begins with, by its first slot.
local numbers, heads, tails = {}, {}, {}
local answers, at = {}, ${HEADER + 1}
while ARGV[at] do
  local lease, n, waiter, came, next, exactly, wishes = ARGV[at], 1, nil, now
  local answer, refused, freed
  if plain then
    at = at + 1
  else
    n, waiter, next, exactly = tonumber(ARGV[at + 1]), ARGV[at + 2], tonumber(ARGV[at + 4]), ARGV[at + 5]
    came = now - (tonumber(ARGV[at + 3]) or 0)
    waiter = waiter ~= '' and waiter or nil
    wishes = exactly ~= '' and at + 5
    exactly = exactly == '1'
    at = at + 6 + (wishes and n or 0)
  end
  local id, token, mine, waited = sub(lease, 1, 32), least, 0
  local queues = key + 4 * n

${GIVE_UP_SLOTS}

  for i = 1, n do
    if answer then
      break
    end
    local name, holders, details = KEYS[key + i], KEYS[key + n + i], KEYS[key + 2 * n + i]
    local record = try('GET', name)
    local state, left, last, held, taken, floor = ${RECORD.free}, 0, 0, 0, ''
    if record then
      last = not record.err and ${tokenOf('record')}
      state = last and byte(record, 1)
      if state and state ~= ${RECORD.free} then
        left = call('PTTL', name)
        left = left < 0 and math.huge or left - ${LINGER_MS}
      end
      if state == ${RECORD.permits} then
        ${COUNT_OF_RECORD}
        -- Its holders have ends of their own.
        left = left == math.huge and 1e12 or left
      end
      if not last or not held then
        answer = record.err and record or ${FOREIGN}
        break
      end
    end
    local shares = state == ${RECORD.permits} and left > 0
    local kind = shares and byte(record, ${PERMITS.kind})
    local several, slot, row, told = kind == ${PERMITS.several}
    local wish = wishes and tonumber(ARGV[wishes + i]) % permits or 0
    local queued = record and byte(record, 2) == ${RECORD.waited}
    if shares then
      taken = sub(record, ${PERMITS.bits}, ${PERMITS.bits - 1} + held)
    else
      held = 0
    end

    if record and not several and not freed and sub(record, ${RECORD.id.join(', ')}) == id then
      if kind == ${PERMITS.alone} then
        mine, token, slots[i] = mine + 1, last, tonumber(sub(record, ${PERMITS.slot.join(', ')}))
      else
        answer = redis.error_reply('ERR this lease was stored before, and has ended')
      end
    elseif left > 0 and not shares then
      answer, refused = {i, record, left == math.huge and -1 or left}, i
    else
${CHOOSE_SLOT}
      if answer then
        break
      end
      local own = several and told[1]
      if own then
        local score = byte(own, 17) ~= ${PERMITS.kept} and call('ZSCORE', holders, id)
        if score and tonumber(score) > now then
          mine, token, slots[i] = mine + 1, tonumber(sub(own, 1, 16)), tonumber(sub(own, 18, 21))
        else
          answer = redis.error_reply('ERR this lease was stored before, and has ended')
        end
      elseif not slot then
        answer, refused = {i, record, left}, i
${TELL_HOLDERS}
      else
        local mark = try('GET', KEYS[key + 3 * n + i])
        local failed = mark and mark.err and mark
        if shares and not several and not failed then
          -- The second holder: the set and the hash are made anew.
          local set, hash = try('ZCARD', holders), try('HLEN', details)
          failed = type(set) == 'table' and set or type(hash) == 'table' and hash
        end
        if failed then
          answer = failed
        elseif mark and (#mark < ${MARK.shortest} or byte(mark, ${MARK.name - 1}) ~= 58) then
          answer = ${FOREIGN}
        elseif mark and byte(mark, ${MARK.mode}) ~= ${WAITER.permits}
          and tonumber(sub(mark, ${MARK.came.join(', ')})) < came then
          answer = {${TURN_OF_ANOTHER}, sub(mark, ${MARK.name}), math.max(1, call('PTTL', KEYS[key + 3 * n + i]))}
          -- Where there is no record nobody could tell that a queue is there.
          refused = record and i
        else
          floor = shares and tonumber(sub(record, ${PERMITS.floor.join(', ')})) or last
          if row then
            floor = math.max(floor, tonumber(sub(row, 1, 16)))
          end
          token = math.max(token, floor + 1)
          records[i], lefts[i], manies[i], bits[i], slots[i] = record, shares and left or false, several, taken, slot
          livings[i] = several and tonumber(told[3])
          if queued then
            waited = waited or {}
            waited[i] = true
          end
        end
      end
    end
  end
  if mine == n then
    answer = string.format('%016.0f', token)
    for i = 1, n do
      answer = answer .. string.format('%04.0f', slots[i])
    end
  elseif mine > 0 and not (answer and answer.err) then
    answer, refused = redis.error_reply('ERR this lease was stored before, and a part of it is gone'), nil
  elseif not answer and late > 0 then
    answer = {${TOO_LATE}, math.ceil(late)}
  elseif not answer and young > 0 then
    answer = {${TOO_YOUNG}, math.ceil(young)}
  end

${WAIT_FOR_TURN}

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
    if waited and ordered and not answer then
      for i in pairs(waited) do
        local queue, waiter = KEYS[queues + i], waiter or ''
        ${LEAVE_QUEUE}
        if waiter ~= '' then
          local mark = KEYS[key + 3 * n + i]
          ${DROP_MARK}
        end
        waited[i] = waiting
        others = waiting and 1 or others
      end
    end
    if next and not answer then
      waited = waited or {}
      try('ZADD', KEYS[queues + 1], string.format('%.3f', now - next), waiter)
      call('PEXPIRE', KEYS[queues + 1], ${QUEUE_LIFE_MS})
      waited[1], others = true, call('ZRANGE', KEYS[queues + 1], 0, 0)[1] == waiter and 2 or 1
    end
    local digits = not answer and string.format('%016.0f', token)
${STORE_PERMIT}
    if not answer then
      for i = 1, n do
        digits = digits .. numbers[slots[i]]
      end
      local most = permits
      for i = 1, n do
        most = lefts[i] and math.max(most, #bits[i]) or most
      end
      if most > permits then
        answer = {0, digits, others, most}
      else
        answer = others == 0 and digits or {0, digits, others}
      end
      if waited and ordered then
        for i in pairs(waited) do
          if waited[i] and string.find(bits[i], '0', 1, true) then
            -- A slot is left: the next one is called as well.
            local queue, after, released = KEYS[queues + i], 0, '-'
            ${WAKE}
          end
        end
      end
    end
  elseif freed and ordered then
    for i = 1, n do
      local record = try('GET', KEYS[key + i])
      if record and not record.err and byte(record, 2) == ${RECORD.waited} then
        local queue, after, released = KEYS[queues + i], 0, id
        ${WAKE}
      end
    end
  end

  if type(answer) == 'table' and answer.err then
    ${CODE_FIRST}
    if sub(answer.err, 1, 8) == 'READONLY' then
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

/** The number of keys, the keys and the arguments of {@link ACQUIRE_PERMITS}, for leases of one ttl and number of permits. */
export function packAcquirePermits(
  requests: readonly AcquireRequest[],
  { keyPrefix, base, ordered, marker, deadline, guard }: AcquireCommand,
): Packed {
  const plain = requests.every(({ lease, position, wish }) => lease.keys.length === 1 && !position && !wish);
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
  const { ttl, kind } = requests[0]?.lease ?? {};
  const permits = kind?.mode === 'permits' ? kind.permits : 1;
  const marked = marker === undefined ? 0 : 1;
  packed.push(base, ttl ?? 0, deadline, guard, proposal, ordered ? 1 : 0, marked, plain ? 1 : 0, permits);
  for (const request of requests) {
    packed.push(leasePart(request));
    if (plain) continue;
    const { lease, position, wish } = request;
    packed.push(lease.keys.length, ordered && position ? waiterName(position.waiter) : '');
    packed.push(position?.waited.toFixed(3) ?? '', ordered ? (position?.next?.toFixed(3) ?? '') : '');
    if (wish) packed.push(wish.exactly ? 1 : 0, ...wish.slots);
    else packed.push('');
  }
  return packed;
}

const KEYS = [recordKey, holdersKey, detailsKey, markKey];
const ORDERED_KEYS = [...KEYS, queueKey];

/** As {@link readAcquireReply}, with the slots of a grant and the holders of a lock whose permits are all taken. */
export function readAcquirePermitsReply(answer: unknown): AcquireReply | Error {
  if (answer instanceof Error) return answer;
  if (!Array.isArray(answer)) return grant(String(answer));
  const [outcome, detail, number, most] = answer as readonly unknown[];
  const code = Number(outcome);
  if (code === 0) {
    const granted = grant(String(detail));
    if (granted instanceof Error) return granted;
    const asked = most === undefined ? {} : { permits: Number(most) };
    return { ...granted, nextIsFirst: Number(number) > 1, ...asked };
  }
  if (Array.isArray(detail)) {
    const holders: KeyHolder[] = [];
    for (let at = 0; at < detail.length; at += 3)
      holders.push(parsePermit(String(detail[at]), String(detail[at + 1]), Number(detail[at + 2])));
    const [holder, ...others] = holders;
    if (holder) return { granted: false, holder, others };
  }
  const text = String(detail);
  if (code > 0 && text.startsWith(STATE.permits))
    return { granted: false, holder: parsePermitRecord(text, Number(number)), others: [] };
  return readAcquireReply(answer);
}

/** A grant without a token or a slot is worth nothing. */
function grant(text: string): Extract<AcquireReply, { granted: true }> | Error {
  const token = Number(text.slice(0, TOKEN_DIGITS));
  const slots: number[] = [];
  for (let at = TOKEN_DIGITS; at < text.length; at += SLOT_DIGITS)
    slots.push(Number(text.slice(at, at + SLOT_DIGITS)));
  if (Number.isSafeInteger(token) && token > 0 && slots.length > 0) return { granted: true, token, slots };
  return new Error(`answered ${text} in place of a fencing token and slots`);
}
