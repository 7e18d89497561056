import { ID_LENGTH } from '../../../core/random-id.js';
import type { AcquireRequest, SlotWish } from '../../../core/ports.js';
import { LINGER_MS } from '../../../core/store-times.js';
import { LeaseNames } from '../lease-names.js';
import { detailsKey, holdersKey, markKey, queueKey, recordKey } from '../lock-key.js';
import { leasePart, MARK, RECORD, STATE, WAITER } from '../record.js';
import { HELD, STORED, TURN_OF_ANOTHER } from './acquire-answer.js';
import { type Leased, nextOf, waitedOf, waiterOf } from './acquire.js';
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
import { FOREIGN, isForeignMark, tokenOf } from './lua.js';
import { SLOT_DIGITS, STORED_BESIDE_MORE, TOKEN_DIGITS } from './permit-answer.js';
import { GIVE_UP_SLOTS } from './permit-exchange.js';
import { STORE_PERMIT } from './permit-grant.js';
import { TELL_HOLDERS } from './permit-refusal.js';
import { CHOOSE_SLOT } from './permit-slot.js';
import { WAIT_FOR_TURN } from './permit-turn.js';
import { COUNT_OF_RECORD, LEASE, PERMIT, PERMIT_NAMES as NAMES, PERMITS } from './permits.js';
import { ADD_TO_QUEUE, INHERIT, LEAVE_QUEUES, WAKE } from './queue.js';
import { type Packed, script } from './script.js';
import { findFree, luaWidthOf, TAKE_SLOT } from './slot-map.js';

const MARKS = new LeaseNames({ mark: markKey });
/** The Redis keys of a lease besides its marks at the node that keeps the queue. */
const ORDERED = new LeaseNames({
  name: recordKey,
  holders: holdersKey,
  details: detailsKey,
  queue: queueKey,
});
const COUNTS = [ORDERED.size, NAMES.size] as const;

/** The argument between the beginning of a command and the leases. */
const COUNT = new Arguments<number>({
  /** The number of permits of each key, the same for all these leases. */
  permits: number((permits) => permits),
});

/** A lease of a command whose leases ask for this number of permits. */
interface LeasedPermit extends Leased {
  readonly permits: number;
  readonly plain: boolean;
}

/** The arguments of each lease; a plain lease has only the first. */
const LEASED = new Arguments<LeasedPermit>({
  /** The part of the record that the lease brings, from its id on, see {@link LEASE}. */
  lease: text(({ request, permits, plain }) => {
    const slot = plain ? (request.wish?.slots[0] ?? 0) : 0;
    return `${leasePart(request, `${inDigits(slot)}${inDigits(permits)}1:`)}:`;
  }),
  n: number(({ request }) => request.lease.keys.length, '1'),
  waiter: text(waiterOf, "''"),
  waited: number(waitedOf, '0'),
  next: number(nextOf, 'nil'),
  /**
   * 1 for exactly the slots that follow, one for each key; 0 for the next free slot of each key, counted from the slots
   * that follow. Empty if none follow: the next free slot is then counted from the slot in the lease's part of the
   * record.
   */
  exactly: text(({ request: { wish } }) => (wish ? (wish.exactly ? 1 : 0) : ''), "''"),
});

/** Lua text for the floor (see {@link PERMITS}) of a phase that begins with a lease on a free key. */
const FLOOR = ` .. (seen and sub(seen, ${RECORD.token.join(', ')}) or '${'0'.repeat(TOKEN_DIGITS)}')`;

/** Lua text for the answer to a lease on a free key, which gets the slot that it requests. */
const ANSWER = `string.format('%016.0f', least) .. sub(ARGV[header + i], ${LEASE.slot}, ${LEASE.slot + SLOT_DIGITS - 1})`;

/**
 * Stores leases with permits, and gives each a fencing token. A lease gets a slot of each of its keys, or is not stored
 * at all. {@link PERMITS} describes the stored data. All else is as in ACQUIRE.
 *
 * A slot behaves like a separate lock with its own sequence of tokens (S20). The next token of a slot is larger than
 * its last token and than the floor of the phase; grants of other slots do not raise it. The record has the largest
 * token of all slots. Every token of the next phase is larger than that token, whether the next holders are exclusive,
 * shared or have permits. A lease of several keys has one token for all its slots.
 *
 * Order: a lease is refused if there are at least as many earlier waiters for permits as free slots. While permits are
 * held, a waiter in another mode excludes later callers with its mark (S22), not with its entry in the queue. The
 * reason: a mark expires when the process of its waiter dies, and an entry in the queue does not. The lease that begins
 * a phase sets the mark for the first waiter in another mode.
 *
 * KEYS     the node's marker and identity, if it has them; then the n marks of each lease (`MARKS`); then for each lease its
 *          other Redis keys (`NAMES`, or `ORDERED`)
 * ARGV     the beginning of a command, see acquire-command.ts, then `COUNT`, then for each lease `LEASED` and its slots
 * Returns  if the straight path (acquire-command.ts) stored every lease, the clock as in ACQUIRE: each lease then has the slot
 *          that it requested. Else an answer for each lease, and then the time in microseconds on this server's clock. An
 *          answer is one of
 *          a string    stored: 16 digits of the token, and 4 of the slot of each key. A list of both would take the client 1 us more
 *          `STORED`    stored, with that string as the token
 *          `STORED_BESIDE_MORE`, `ALL_TAKEN` (permit-answer.ts)
 *          `HELD`      the key is held in another mode, or by a single holder, which the record names
 *          `TOO_LATE`, `TOO_YOUNG`, `TURN_OF_ANOTHER` (acquire-answer.ts), or an error
 */
export const ACQUIRE_PERMITS = script(`${BEGIN_ACQUIRE}${readMarks(COUNTS)}${COUNT.locals('header + 1')}
header = header + ${COUNT.size}
local ttl = life - ${LINGER_MS}
local ends = math.floor(now) + ttl
${straightPath({ keys: COUNTS, state: STATE.permits, marked: true, end: FLOOR, answer: ANSWER })}
marks = marks + first - header - 1
-- Values for each key of one lease. From its record: the record itself, the milliseconds left of it, true if there are
-- several holders, the number of permits, and the taken slots. Then the lease's new slot, and the expiry of the set and
-- the hash.
local records, lefts, manies, helds, bits, slots, livings = {}, {}, {}, {}, {}, {}, {}
-- The four digits of each slot that this command has granted.
local numbers = {}
local at = first
while ARGV[at] do
  ${LEASED.locals('at')}
  local wishes = exactly ~= '' and at + ${LEASED.size - 1}
  at = at + (${LEASED.step}) + (wishes and n or 0)
  waiter = waiter ~= '' and waiter or nil
  exactly = exactly == '1'
  local came = now - waited
  local answer, refused, freed
  local id, token, mine, waits = sub(lease, 1, ${ID_LENGTH}), heals and waited or least, 0
  local queues = ${ORDERED.before('queue')}

${GIVE_UP_SLOTS}

  for i = 1, n do
    if answer then
      break
    end
    ${NAMES.locals(['name', 'holders', 'details'])}
    local record = seen or pcall('GET', name)
    seen = nil
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
        -- Each holder has its own end, so a record without an expiry does not mean that the lock is held for ever.
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
    local wish = tonumber(wishes and ARGV[wishes + i] or sub(lease, ${LEASE.slot}, ${LEASE.slot + SLOT_DIGITS - 1})) % permits
    local queued = record and byte(record, 2) == ${RECORD.waited}
    if several then
      taken = sub(record, ${PERMITS.bits}, ${PERMITS.bits - 1} + ${luaWidthOf('held')})
    elseif shares then
      slot = tonumber(sub(record, ${PERMITS.slot.join(', ')}))
      ${TAKE_SLOT}
    else
      held = 0
    end

    -- The lease that heals may have expired here before.
    local lapsed = heals and state == ${RECORD.permits} and not shares and byte(record, ${PERMITS.kind}) ~= ${PERMITS.kept}
    if record and not several and not freed and not lapsed and sub(record, ${RECORD.id.join(', ')}) == id then
      if kind == ${PERMITS.alone} then
        mine, token, slots[i] = mine + 1, last, tonumber(sub(record, ${PERMITS.slot.join(', ')}))
      else
        answer = redis.error_reply('ERR this lock was stored before, and has ended')
      end
    elseif left > 0 and not shares then
      answer, refused = ${HELD.lua({ position: 'i', record: 'record', left: 'left == math.huge and -1 or left' })}, i
    else
${CHOOSE_SLOT}
      if answer then
        break
      end
      local own = several and told[1]
      if own then
        local score = byte(own, ${PERMIT.state}) ~= ${PERMITS.kept} and call('ZSCORE', holders, id)
        if score and tonumber(score) > now then
          mine, token, slots[i] = mine + 1, tonumber(sub(own, ${PERMIT.token.join(', ')})), tonumber(sub(own, ${PERMIT.slot.join(', ')}))
        else
          answer = redis.error_reply('ERR this lock was stored before, and has ended')
        end
      elseif not slot then
        answer, refused = ${HELD.lua({ position: 'i', record: 'record', left: 'left' })}, i
${TELL_HOLDERS}
      else
        local mark = marked and pcall('GET', KEYS[marks + i])
        local failed = mark and mark.err and mark
        if shares and not several and not failed then
          -- This is the second holder, for which the set and the hash are created. Check that both are absent or of the
          -- right type.
          local set, hash = pcall('ZCARD', holders), pcall('HLEN', details)
          failed = type(set) == 'table' and set or type(hash) == 'table' and hash
        end
        if failed then
          answer = failed
        elseif mark and ${isForeignMark('mark')} then
          answer = ${FOREIGN}
        elseif mark and byte(mark, ${MARK.mode}) ~= ${WAITER.permits}
          and tonumber(sub(mark, ${MARK.came.join(', ')})) < came then
          answer = ${TURN_OF_ANOTHER.lua({ waiter: `sub(mark, ${MARK.name})`, left: `math.max(1, call('PTTL', KEYS[marks + i]))` })}
          -- If there is no record, do not queue the waiter: later commands would not know that a queue exists.
          refused = record and i
        else
          floor = shares and tonumber(sub(record, ${PERMITS.floor})) or last
          if row then
            floor = math.max(floor, tonumber(sub(row, ${PERMIT.token.join(', ')})))
          end
          token = math.max(token, floor + 1)
          records[i], lefts[i], manies[i], bits[i], slots[i] = record, shares and left or false, several, taken, slot
          helds[i], livings[i] = held, several and tonumber(told[3])
          if queued then
            waits = waits or {}
            waits[i] = true
          end
        end
      end
    end
  end
  if mine == n then
    answer = not (${IS_COPY}) and string.format('%016.0f', token)
    for i = 1, answer and n or 0 do
      answer = answer .. string.format('%04.0f', slots[i])
    end
  elseif mine > 0 and not (answer and answer.err) then
    answer, refused = redis.error_reply('ERR this lock was stored before, and some of its keys are gone'), nil
  end
${REFUSE_UNFIT}

${WAIT_FOR_TURN}

${ADD_TO_QUEUE}
  if not answer then
    local others = 0
    ${RAISE_MARKER}${LEAVE_QUEUES}
${INHERIT}
    local digits = not answer and string.format('%016.0f', token)
${STORE_PERMIT}
    if not answer then
      for i = 1, n do
        digits = digits .. numbers[slots[i]]
      end
      local most = permits
      for i = 1, n do
        most = math.max(most, helds[i])
      end
      if most > permits then
        answer = ${STORED_BESIDE_MORE.lua({ granted: 'digits', waiting: 'others', most: 'most' })}
      else
        answer = others == 0 and digits or ${STORED.lua({ token: 'digits', waiting: 'others' })}
      end
      if waits and ordered then
        for i in pairs(waits) do
          local slot, taken = lefts[i] and 0 or 1, bits[i]
          if lefts[i] then
            ${findFree('0')}
          end
          if waits[i] and slot < helds[i] then
            -- Another slot is still free, so wake the next waiter, too.
            local queue, after, released = KEYS[queues + i], 0, '-'
            ${WAKE}
          end
        end
      end
    end
  elseif freed and ordered then
    for i = 1, n do
      local record = pcall('GET', ${NAMES.at('name')})
      if record and not record.err and byte(record, 2) == ${RECORD.waited} then
        local queue, after, released = KEYS[queues + i], 0, '-'
        ${WAKE}
      end
    end
  end
${ADD_ANSWER}
  key, marks = key + (ordered and ${ORDERED.size} or ${NAMES.size}) * n, marks + n
end
${END_ACQUIRE}
`);

/**
 * The number of keys, the keys and the arguments of {@link ACQUIRE_PERMITS}, for leases with the same ttl and number of
 * permits.
 */
export function packAcquirePermits(requests: readonly AcquireRequest[], command: AcquireCommand): Packed {
  const { keyPrefix, ordered } = command;
  const kind = requests[0]?.lease.kind;
  const permits = kind?.mode === 'permits' ? kind.permits : 1;
  const plain = requests.every(
    ({ lease, position, wish, heals }) =>
      lease.keys.length === 1 && !position && heals !== true && (!wish || isPlain(wish, permits)),
  );
  const names = [...MARKS.of(requests, keyPrefix), ...(ordered ? ORDERED : NAMES).of(requests, keyPrefix)];
  const rows: (string | number)[] = [];
  COUNT.push(rows, permits);
  for (const request of requests) {
    LEASED.push(rows, { request, ordered, permits, plain }, plain);
    if (!plain && request.wish) rows.push(...request.wish.slots);
  }
  return packAcquireWith(names, rows, requests, command, plain);
}

/** `true` if the lease's text contains all that the request asks for, so that no further arguments are needed. */
function isPlain({ slots: [slot = 0], exactly }: SlotWish, permits: number): boolean {
  return !exactly && slot < permits;
}

function inDigits(slot: number): string {
  return String(slot).padStart(SLOT_DIGITS, '0');
}
