import type { KeyHolder, KeyState } from '../../../core/ports.js';
import { detailsKey, holdersKey, recordKey } from '../lock-key.js';
import { LINGER_MS, modeOfRecord, parseDetails, parseRecord, RECORD } from '../record.js';
import type { Packed } from '../connection/command-channel.js';
import { tokenOf } from './lua.js';
import { script } from './script.js';

/** So many at a time of what is told of holders: the server's Lua takes no more than about 8,000 arguments. */
const MOST_TOLD = 1_000;

/**
 * Tells who holds locks, without changing anything.
 *
 * KEYS     for each lock its record, the set of its holders, and the hash of what is told of them
 * Returns  for each lock, in this order:
 *          {}                  nobody
 *          {record, pttl}      for pttl milliseconds more; -1 for ever
 *          {error}             it is of another type, or has a value that is not a record
 *          {record, pttl, n, id, left, details, ...}
 *                              where several can hold it: n is how many permits there are, or empty; then, first to end first,
 *                              the id, milliseconds until it ends, and what is told of each holder; of readers each but the
 *                              one whom the record names, who ends last
 */
export const READ = script(`
local call, found = redis.call, {}
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 1, #KEYS, 3 do
  local record, answer = redis.pcall('GET', KEYS[i]), {}
  if not record then
    answer = {}
  elseif record.err then
    answer = {record.err}
  elseif not (${tokenOf('record')}) then
    answer = {'the key has a value that is not a lock of this package'}
  else
    local left, state = call('PTTL', KEYS[i]), string.byte(record, 1)
    if state ~= ${RECORD.free} and (left == -1 or left > ${LINGER_MS}) then
      answer = {record, left == -1 and -1 or left - ${LINGER_MS}}
      if state == ${RECORD.shared} or state == ${RECORD.permits} then
        local set, told = KEYS[i + 1], KEYS[i + 2]
        local n = redis.pcall('HGET', told, 'n')
        local held = redis.pcall('ZRANGEBYSCORE', set, string.format('(%.0f', now), '+inf', 'WITHSCORES')
        if n and n.err or held.err then
          answer = {n and n.err or held.err}
        else
          answer[3] = state == ${RECORD.permits} and n or ''
          for from = 1, #held, ${2 * MOST_TOLD} do
            local ids, ends = {}, {}
            for j = from, math.min(from + ${2 * MOST_TOLD - 1}, #held), 2 do
              ids[#ids + 1], ends[#ends + 1] = held[j], held[j + 1]
            end
            local details = call('HMGET', told, unpack(ids))
            for j = 1, #ids do
              local last = #answer
              answer[last + 1], answer[last + 2], answer[last + 3] = ids[j], ends[j] - now, details[j] or ''
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

/** The number of keys and the keys of {@link READ}. */
export function packRead(keys: readonly string[], keyPrefix: string): Packed {
  const names = keys.flatMap((key) => [
    recordKey(keyPrefix, key),
    holdersKey(keyPrefix, key),
    detailsKey(keyPrefix, key),
  ]);
  return [names.length, ...names];
}

/** What {@link READ} says of one lock; numbers may come as strings from a client of the user's (`stringNumbers`). */
export function readKeyState(found: unknown): KeyState {
  const [text, pttl, permits, ...told] = found as readonly (number | string)[];
  if (text === undefined) return undefined;
  const record = String(text);
  if (pttl === undefined) return new Error(record);
  const mode = modeOfRecord(record);
  const holders: KeyHolder[] = [];
  for (let at = 0; at < told.length; at += 3) {
    const details = String(told[at + 2]);
    if (details === '') continue;
    const holder = parseDetails(details, mode === 'permits');
    holders.push({ ...holder, id: String(told[at]), remaining: Number(told[at + 1]), mode });
  }
  const remaining = Number(pttl) === -1 ? Infinity : Number(pttl);
  // With permits where what is told of them is gone: the lock is held all the same.
  if (mode !== 'permits' || holders.length === 0) holders.push({ ...parseRecord(record), remaining, mode });
  return mode === 'permits' ? { mode, permits: Number(permits), holders } : { mode, holders };
}
