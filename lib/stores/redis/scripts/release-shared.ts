import type { ReleaseRequest } from '../../../core/ports.js';
import { LeaseNames } from '../lease-names.js';
import { detailsKey, holdersKey, queueKey, recordKey } from '../lock-key.js';
import { RECORD } from '../record.js';
import type { Packed } from '../connection/command-channel.js';
import { CODE_FIRST } from './lua.js';
import { WAKE } from './queue.js';
import { END_READER } from './readers.js';
import { script } from './script.js';

/**
 * Ends the leases of readers, and no leases of other holders (S7). The release of the last reader frees the lock, and
 * tells the waiters when they can try.
 *
 * KEYS     for each lease: its n records, their n sets of holders, n hashes of their details, and n queues
 * ARGV[1]  the prefix of channel names; empty on a Cluster
 * ARGV[2]  1 when every lease has one key and no further details: then each has one argument, else three
 * ARGV     for each lease its id, n, and the milliseconds after which the first waiter may try; 0 for no pause
 * Returns  as {@link RELEASE}
 */
export const RELEASE_SHARED = script(`
local call, base, plain = redis.call, ARGV[1], ARGV[2] == '1'
local answers, key, quiet = {}, 0, true
for at = 3, #ARGV, plain and 1 or 3 do
  local id, n, after = ARGV[at], 1, 0
  if not plain then
    n, after = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  end
  local answer, woken, released = nil, 0, id
  for i = key + 1, key + n do
    local name, holders, details, queue = KEYS[i], KEYS[n + i], KEYS[2 * n + i], KEYS[3 * n + i]
    local record = redis.pcall('GET', name)
    if record and record.err then
      answer = record
    elseif record and string.byte(record, 1) == ${RECORD.shared} then
      ${END_READER}
      if type(ended) == 'table' then
        answer = ended
      elseif over and string.byte(record, 2) == ${RECORD.waited} then
        ${WAKE}
        woken = woken + told
      end
    end
  end
  if answer then
    ${CODE_FIRST}
    if string.sub(answer.err, 1, 8) == 'READONLY' then
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

/** The number of keys, the keys and the arguments of {@link RELEASE_SHARED}. */
export function packReleaseShared(
  requests: readonly ReleaseRequest[],
  keyPrefix: string,
  base: string,
): Packed {
  const packed: [number, ...(string | number)[]] = [0];
  const plain = requests.every(({ lease, pause }) => lease.keys.length === 1 && pause === 0);
  packed.push(...KEYS.of(requests, keyPrefix));
  packed[0] = packed.length - 1;
  packed.push(base, plain ? 1 : 0);
  for (const { lease, pause } of requests) {
    packed.push(lease.id);
    if (!plain) packed.push(lease.keys.length, pause);
  }
  return packed;
}

const KEYS = new LeaseNames([recordKey, holdersKey, detailsKey, queueKey]);
