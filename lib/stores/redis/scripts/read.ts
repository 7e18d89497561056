import type { KeyHolder, KeyState } from '../../../core/ports.js';
import { LINGER_MS } from '../../../core/store-times.js';
import { LeaseNames } from '../lease-names.js';
import { detailsKey, holdersKey, recordKey } from '../lock-key.js';
import { modeOfRecord, parseDetails, parseRecord, READER, RECORD } from '../record.js';
import { Arguments, text } from './arguments.js';
import { Fields } from './fields.js';
import { FOREIGN_KEY, tokenOf } from './lua.js';
import { parsePermit, parsePermitRecord, PERMITS, permitsOfRecord } from './permits.js';
import { type Packed, pack, script } from './script.js';

const NAMES = new LeaseNames({ name: recordKey, holders: holdersKey, details: detailsKey });

/** The cursor among the readers of the first lock. */
const BEGIN = new Arguments<string>({ cursor: text((from) => from) });

/** Approximate largest number of holders in one answer, so that the command takes one or two milliseconds. */
const PAGE = 1_000;

/** Largest number of holders whose details are read at a time: the server's Lua accepts only about 8,000 arguments. */
const MOST_TOLD = 1_000;

/**
 * The answer about one lock. `named` is the record, for `left` milliseconds more (-1 for ever), or an error without
 * `left`: the key is of another type, or has a value that is not a record. Without a holder there is no field.
 *
 * With several holders comes the `next` cursor, 0 after the last holder, and then the rows of {@link HOLDER}. For permits
 * these are all holders, the first to end first. For readers these are some of the readers, in any order, without the
 * reader that ends last: the record names that reader.
 */
const FOUND = new Fields('named', 'left', 'next');

/** A holder, with the milliseconds left of its lease. */
const HOLDER = new Fields('id', 'left', 'details');

/** The cursor at the beginning and at the end of a lock's holders. */
export const BEGINNING = '0';

/**
 * Reads the holders of locks, and changes nothing. Stops after a number of holders, because no other command can run at
 * the same time. The caller then asks again, from the lock at which the script stopped.
 *
 * KEYS     for each lock its Redis keys (`NAMES`)
 * ARGV     `BEGIN`
 * Returns  for each lock `FOUND`, in the order of KEYS, until the script stops
 *
 * ZSCAN returns every reader that is in the set all the time from the first page to the last page, perhaps twice. A
 * reader can move between the set and the record: when it is extended, or when a reader with a later end comes. Each
 * page also has the reader that the record names, so no reader is missing.
 */
export const READ = script(`
local call, found, room = redis.call, {}, ${PAGE}
${BEGIN.locals(1)}
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 1, #KEYS, ${NAMES.size} do
  if room <= 0 then
    break
  end
  local n = 1
  ${NAMES.locals(['name', 'holders', 'details'], 'i')}
  local record, answer = redis.pcall('GET', name), {}
  if not record then
    answer = {}
  elseif record.err then
    answer = {record.err}
  elseif not (${tokenOf('record')}) then
    answer = {'${FOREIGN_KEY}'}
  else
    local left, state = call('PTTL', name), string.byte(record, 1)
    if state ~= ${RECORD.free} and (left == -1 or left > ${LINGER_MS}) then
      answer = ${FOUND.lua({ named: 'record', left: `left == -1 and -1 or left - ${LINGER_MS}`, next: 'nil' })}
      local held
      if state == ${RECORD.shared} and string.byte(record, ${RECORD.beside}) == ${RECORD.others} then
        local own = redis.pcall('HGET', details, string.sub(record, ${RECORD.id.join(', ')}))
        if own and not own.err then
          ${FOUND.at('named', 'answer')} = string.sub(record, 1, ${RECORD.token[0] - 1}) .. string.sub(own, ${READER.token.join(', ')}) .. string.sub(record, ${RECORD.token[1] + 1})
        end
        held = redis.pcall('ZSCAN', holders, i == 1 and cursor or '${BEGINNING}', 'COUNT', room)
        if not held.err then
          ${FOUND.at('next', 'answer')}, held = held[1], held[2]
        end
      elseif state == ${RECORD.permits} and string.byte(record, ${PERMITS.kind}) == ${PERMITS.several} then
        -- Read all holders with permits in one command, so that no slot is returned twice.
        ${FOUND.at('next', 'answer')}, held = '${BEGINNING}', redis.pcall('ZRANGEBYSCORE', holders, string.format('(%.0f', now), '+inf', 'WITHSCORES')
      end
      if held and held.err then
        answer = {held.err}
      elseif held then
        room = room - #held / 2
        for from = 1, #held, ${2 * MOST_TOLD} do
          local ids, ends = {}, {}
          for j = from, math.min(from + ${2 * MOST_TOLD - 1}, #held), 2 do
            ids[#ids + 1], ends[#ends + 1] = held[j], held[j + 1]
          end
          local rows = redis.pcall('HMGET', details, unpack(ids))
          if rows.err then
            answer = {rows.err}
            break
          end
          for j = 1, #ids do
            local size, left = #answer, ends[j] - now
            if left > 0 then
              ${HOLDER.append('answer', 'size', { id: 'ids[j]', left: 'left', details: `rows[j] or ''` })}
            end
          end
        end
      end
    end
  end
  found[#found + 1] = answer
end
return found
`);

/**
 * The number of keys, the keys and the arguments of {@link READ}.
 *
 * @param from - the cursor among the readers of the first key
 */
export function packRead(keys: readonly string[], keyPrefix: string, from = BEGINNING): Packed {
  const names: string[] = [];
  for (const key of keys) NAMES.push(names, [key], keyPrefix);
  const args: string[] = [];
  BEGIN.push(args, from);
  return pack(names, args);
}

/**
 * Reads the answer of {@link READ} about one lock, and the next cursor. Numbers may be strings from a passed-in client
 * (`stringNumbers`).
 */
export function readPage(found: unknown): { readonly state: KeyState; readonly next: string } {
  const reply = found as readonly unknown[];
  const { named, left, next = BEGINNING } = FOUND.of(reply);
  return { state: stateOf(named, left, HOLDER.rows(reply, FOUND.size)), next: String(next) };
}

function stateOf(first: unknown, left: unknown, told: ReturnType<typeof HOLDER.rows>): KeyState {
  if (first === undefined) return undefined;
  const record = String(first);
  if (left === undefined) return new Error(record);
  const mode = modeOfRecord(record);
  const named = namedBy(record, Number(left));
  if (mode === 'exclusive') return { mode, holders: [named] };
  const holders: KeyHolder[] = [];
  for (const row of told) {
    const [id, details, remaining] = [String(row.id), String(row.details), Number(row.left)];
    if (details === '') continue;
    if (mode === 'permits') holders.push(parsePermit(id, details, remaining));
    else holders.push({ ...parseDetails(details), id, remaining, mode });
  }
  if (mode === 'shared') return { mode, holders: [...holders.toSorted(firstToEnd), named] };
  return { mode, permits: permitsOfRecord(record), holders: holders.length > 0 ? holders : [named] };
}

function firstToEnd(some: KeyHolder, other: KeyHolder): number {
  return some.remaining - other.remaining;
}

/** Parses the holder that a record names. A `pttl` of -1 means no expiry. */
export function namedBy(record: string, pttl: number): KeyHolder {
  const remaining = pttl < 0 ? Infinity : pttl;
  const mode = modeOfRecord(record);
  return mode === 'permits'
    ? parsePermitRecord(record, remaining)
    : { ...parseRecord(record), remaining, mode };
}
