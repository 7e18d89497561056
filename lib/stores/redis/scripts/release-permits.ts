import type { ReleaseRequest } from '../../../core/ports.js';
import { LINGER_MS } from '../../../core/store-times.js';
import { LeaseNames } from '../lease-names.js';
import { detailsKey, holdersKey, queueKey, recordKey } from '../lock-key.js';
import { RECORD } from '../record.js';
import { storeEvenIfFull } from './lua.js';
import { Arguments, number, text } from './arguments.js';
import { END_PERMIT, KEEP_BOTH, NAME_LAST, PERMIT, PERMITS } from './permits.js';
import { WAKE } from './queue.js';
import {
  ADD_RELEASED,
  BEGIN_RELEASE,
  END_RELEASE,
  FIRST_RELEASED,
  packReleaseWith,
  WAS_HELD,
} from './release-command.js';
import { type Packed, script } from './script.js';

const NAMES = new LeaseNames({
  name: recordKey,
  holders: holdersKey,
  details: detailsKey,
  queue: queueKey,
});

/** The arguments of each lease; a plain lease has only its id. */
const RELEASED = new Arguments<ReleaseRequest>({
  id: text(({ lease }) => lease.id),
  n: number(({ lease }) => lease.keys.length, '1'),
  /**
   * Milliseconds for which the slots stay taken (minHold), even if their lease would end earlier or later; 0 to free
   * them.
   */
  keep: number(({ lease }) => lease.keepFor, '0'),
  /** Milliseconds after which the first waiter may try; 0 for no pause. */
  pause: number(({ pause }) => pause, '0'),
  held: WAS_HELD,
});

/**
 * Frees the slots of each lease, and no slots of other leases (S7). With `minHold` the slots stay taken for some time.
 * For each freed or kept slot, tells the first waiter when it can try. When no holder is left, the record stays for
 * `LINGER_MS`, with its token.
 *
 * KEYS     for each lease its Redis keys (`NAMES`)
 * ARGV     the beginning of a release, then for each lease `RELEASED`
 * Returns  as {@link RELEASE}
 */
export const RELEASE_PERMITS = script(`
local call, pcall, sub, byte = redis.call, redis.pcall, string.sub, string.byte
${BEGIN_RELEASE}
for at = ${FIRST_RELEASED}, #ARGV, ${RELEASED.step} do
  ${RELEASED.locals('at')}
  local answer, woken = nil, 0
  for i = key + 1, key + n do
    ${NAMES.locals(['name', 'holders', 'details', 'queue'], 'i')}
    local record, wakes = pcall('GET', name), held == 1
    local own, slot
    if record and record.err then
      answer = record
    elseif record and byte(record, 1) == ${RECORD.permits} then
      local kind = byte(record, ${PERMITS.kind})
      if kind == ${PERMITS.several} then
        own = pcall('HGET', details, id)
        if own and own.err then
          answer, own = own, nil
        elseif own and byte(own, ${PERMIT.state}) ~= ${PERMITS.kept} then
          slot = tonumber(sub(own, ${PERMIT.slot.join(', ')}))
        end
      elseif kind == ${PERMITS.alone} and sub(record, ${RECORD.id.join(', ')}) == id then
        -- The slot of a single holder does not matter: all slots are free after its release.
        slot = 0
      end
    end
    if slot then
      local failure
      if keep == 0 then
        ${END_PERMIT}
        failure = failed
      elseif own then
        local time, over = call('TIME'), false
        local ends, lives = time[1] * 1000 + math.floor(time[2] / 1000) + keep, tonumber(call('HGET', details, 'e'))
        ${KEEP_BOTH}
        call('ZADD', holders, ends, id)
        call('HSET', details, id, sub(own, ${PERMIT.token.join(', ')}) .. 'K' .. sub(own, ${PERMIT.slot[0]}))
        ${NAME_LAST}
      else
        record = sub(record, 1, ${PERMITS.kind - 1}) .. 'K' .. sub(record, ${PERMITS.kind + 1})
        ${storeEvenIfFull('name', 'record', `keep + ${LINGER_MS}`)}
        failure = stored.err and stored
      end
      answer, wakes = failure or answer, true
    elseif own or record and not record.err and sub(record, ${RECORD.id.join(', ')}) == id then
      -- The slot was freed before, or minHold keeps it.
      wakes = false
    end
    if wakes and not answer and (not record or byte(record, 2) == ${RECORD.waited}) then
      local after, released = math.max(pause, keep), id
      ${WAKE}
      woken = woken + told
    end
  end
  ${ADD_RELEASED}
  key = key + ${NAMES.size} * n
end
${END_RELEASE}
`);

/** The number of keys, the keys and the arguments of {@link RELEASE_PERMITS}. */
export function packReleasePermits(
  requests: readonly ReleaseRequest[],
  keyPrefix: string,
  base: string,
): Packed {
  const plain = requests.every(
    ({ lease, pause }) => lease.keys.length === 1 && pause === 0 && lease.keepFor === 0,
  );
  return packReleaseWith(NAMES.of(requests, keyPrefix), requests, RELEASED, base, plain ? 'plain' : 'other');
}
