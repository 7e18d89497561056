import type { ReleaseRequest } from '../../../core/ports.js';
import { LeaseNames } from '../lease-names.js';
import { detailsKey, holdersKey, queueKey, recordKey } from '../lock-key.js';
import { LINGER_MS, RECORD } from '../record.js';
import type { Packed } from '../connection/command-channel.js';
import { CODE_FIRST } from './lua.js';
import { END_PERMIT, KEEP_BOTH, NAME_LAST, PERMITS } from './permits.js';
import { WAKE } from './queue.js';
import { script } from './script.js';

/**
 * Frees the slots of each lease, and no slots of other leases (S7). With `minHold` the slots stay taken for some time.
 * For each freed or kept slot, tells the first waiter when it can try. When no holder is left, the record stays for
 * `LINGER_MS`, with its token.
 *
 * KEYS     for each lease: its n records, their n sets of holders, n hashes of their details, and n queues
 * ARGV[1]  the prefix of channel names; empty on a Cluster
 * ARGV[2]  1 when every lease has one key and no further details: then each has one argument, else four
 * ARGV     for each lease:
 *          - its id
 *          - n
 *          - milliseconds for which the slots stay taken (minHold), even if their lease would end earlier or later; 0 to free them
 *          - milliseconds after which the first waiter may try; 0 for no pause
 * Returns  as {@link RELEASE}
 */
export const RELEASE_PERMITS = script(`
local call, pcall, sub, byte = redis.call, redis.pcall, string.sub, string.byte
local base, plain = ARGV[1], ARGV[2] == '1'
local answers, key, quiet = {}, 0, true
for at = 3, #ARGV, plain and 1 or 4 do
  local id, n, keep, pause = ARGV[at], 1, 0, 0
  if not plain then
    n, keep, pause = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  end
  local answer, woken = nil, 0
  for i = key + 1, key + n do
    local name, holders, details = KEYS[i], KEYS[n + i], KEYS[2 * n + i]
    local record = pcall('GET', name)
    local own, slot
    if record and record.err then
      answer = record
    elseif record and byte(record, 1) == ${RECORD.permits} then
      local kind = byte(record, ${PERMITS.kind})
      if kind == ${PERMITS.several} then
        own = pcall('HGET', details, id)
        if own and own.err then
          answer, own = own, nil
        elseif own and byte(own, 17) ~= ${PERMITS.kept} then
          slot = tonumber(sub(own, 18, 21))
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
        call('HSET', details, id, sub(own, 1, 16) .. 'K' .. sub(own, 18))
        ${NAME_LAST}
      else
        record = sub(record, 1, ${PERMITS.kind - 1}) .. 'K' .. sub(record, ${PERMITS.kind + 1})
        local stored = pcall('SET', name, record, 'PX', keep + ${LINGER_MS})
        if stored.err and string.find(stored.err, 'OOM', 1, true) then
          call('PEXPIRE', name, keep + ${LINGER_MS})
          stored = pcall('SET', name, record, 'PX', keep + ${LINGER_MS})
        end
        failure = stored.err and stored
      end
      if failure then
        answer = failure
      elseif byte(record, 2) == ${RECORD.waited} then
        local queue, after, released = KEYS[3 * n + i], math.max(pause, keep), id
        ${WAKE}
        woken = woken + told
      end
    end
  end
  if answer then
    ${CODE_FIRST}
    if sub(answer.err, 1, 8) == 'READONLY' then
      -- Return this error as the reply to the whole command: clients look for it there (\`reconnectOnError\`).
      return answer
    end
  end
  answers[#answers + 1] = answer or woken
  quiet = quiet and not answer and woken == 0
  key = key + 4 * n
end
-- Return no array if all answers are 0, as in RELEASE.
return quiet and 0 or answers
`);

/** The number of keys, the keys and the arguments of {@link RELEASE_PERMITS}. */
export function packReleasePermits(
  requests: readonly ReleaseRequest[],
  keyPrefix: string,
  base: string,
): Packed {
  const packed: [number, ...(string | number)[]] = [0];
  const plain = requests.every(
    ({ lease, pause }) => lease.keys.length === 1 && pause === 0 && lease.keepFor === 0,
  );
  packed.push(...KEYS.of(requests, keyPrefix));
  packed[0] = packed.length - 1;
  packed.push(base, plain ? 1 : 0);
  for (const { lease, pause } of requests) {
    packed.push(lease.id);
    if (!plain) packed.push(lease.keys.length, lease.keepFor, pause);
  }
  return packed;
}

const KEYS = new LeaseNames([recordKey, holdersKey, detailsKey, queueKey]);
