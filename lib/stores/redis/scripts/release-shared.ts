import type { ReleaseRequest } from '../../../core/ports.js';
import { LeaseNames } from '../lease-names.js';
import { detailsKey, holdersKey, queueKey, recordKey } from '../lock-key.js';
import { RECORD } from '../record.js';
import { Arguments, number, text } from './arguments.js';
import { WAKE } from './queue.js';
import { END_READER } from './readers.js';
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
  /** Milliseconds after which the first waiter may try; 0 for no pause. */
  after: number(({ pause }) => pause, '0'),
  held: WAS_HELD,
});

/**
 * Ends the leases of readers, and no leases of other holders (S7). The release of the last reader frees the lock, and
 * tells the waiters when they can try.
 *
 * KEYS     for each lease its Redis keys (`NAMES`)
 * ARGV     the beginning of a release, then for each lease `RELEASED`
 * Returns  as {@link RELEASE}
 */
export const RELEASE_SHARED = script(`
local call = redis.call
${BEGIN_RELEASE}
for at = ${FIRST_RELEASED}, #ARGV, ${RELEASED.step} do
  ${RELEASED.locals('at')}
  local answer, woken, released = nil, 0, id
  for i = key + 1, key + n do
    ${NAMES.locals(['name', 'holders', 'details', 'queue'], 'i')}
    local record, wakes = redis.pcall('GET', name), held == 1
    if record and record.err then
      answer = record
    elseif record and string.byte(record, 1) == ${RECORD.shared} then
      ${END_READER}
      if type(ended) == 'table' then
        answer = ended
      end
      wakes = over or wakes and ended == 0
    end
    if wakes and not answer and (not record or string.byte(record, 2) == ${RECORD.waited}) then
      ${WAKE}
      woken = woken + told
    end
  end
  ${ADD_RELEASED}
  key = key + ${NAMES.size} * n
end
${END_RELEASE}
`);

/** The number of keys, the keys and the arguments of {@link RELEASE_SHARED}. */
export function packReleaseShared(
  requests: readonly ReleaseRequest[],
  keyPrefix: string,
  base: string,
): Packed {
  const plain = requests.every(({ lease, pause }) => lease.keys.length === 1 && pause === 0);
  return packReleaseWith(NAMES.of(requests, keyPrefix), requests, RELEASED, base, plain ? 'plain' : 'other');
}
