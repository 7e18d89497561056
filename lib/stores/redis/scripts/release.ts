import type { ReleaseRequest } from '../../../core/ports.js';
import { LINGER_MS } from '../../../core/store-times.js';
import type { TickMark } from '../../../core/tick.js';
import { LeaseNames } from '../lease-names.js';
import { queueKey, recordKey, tickKey } from '../lock-key.js';
import { RECORD, TICK, tickValue } from '../record.js';
import { Arguments, number, text } from './arguments.js';
import { FOREIGN, isForeignTick, storeEvenIfFull } from './lua.js';
import { WAKE } from './queue.js';
import {
  ADD_RELEASED,
  BEGIN_RELEASE,
  END_RELEASE,
  FIRST_RELEASED,
  packReleaseWith,
  releaseAnswer,
  WAS_HELD,
} from './release-command.js';
import { type Packed, script } from './script.js';

const NAMES = new LeaseNames({ name: recordKey, queue: queueKey });
const WITHOUT_QUEUES = new LeaseNames({ name: recordKey });

/** The arguments of each lease; a plain lease has only its id. */
const RELEASED = new Arguments<ReleaseRequest>({
  id: text(({ lease }) => lease.id),
  n: number(({ lease }) => lease.keys.length, '1'),
  /**
   * Milliseconds for which the records are kept (minHold), even if their lease would end earlier or later; 0 to free
   * them.
   */
  keep: number(({ lease }) => lease.keepFor, '0'),
  /** Milliseconds after which the first waiter may try; 0 for no pause. */
  pause: number(({ pause }) => pause, '0'),
  /** Milliseconds for which the tick is remembered; empty for none. */
  life: number((request) => markOf(request)?.life ?? '', 'nil'),
  /**
   * The value to store for the tick: 16 digits of the tick, in milliseconds since 1970, a colon, and the owner; empty for
   * none.
   */
  tick: text((request) => tickOf(request), 'nil'),
  held: WAS_HELD,
});

/**
 * Frees the records of each lease, and no records of other leases (S7). With `minHold` the records stay held for some
 * time. Tells the waiters when they can try, also about a lock that this node does not store. A freed record stays for
 * {@link LINGER_MS}, with the last token.
 *
 * If a lease has run a tick of a schedule, then stores that tick, unless a later tick is stored. Does so even when
 * another lease now holds the keys. Writes that work when memory is short come first, then the messages (S7), and last
 * the writes that can fail.
 *
 * KEYS     for each lease: its Redis keys (`NAMES`; without queues `WITHOUT_QUEUES`), and, for a tick, the key of the last tick that ran
 * ARGV     the beginning of a release, then for each lease `RELEASED`
 * Returns  for each lease the number of waiters that got a message, or without queues the number of keys with waiters, or an error.
 *          A single 0 if the answers for all leases are 0
 *
 * SET is needed: with PEXPIRE alone, a clock that is set back would make the record held again, for the time by which
 * the clock was set back. When memory is short, PEXPIRE comes first (S9): after the first write of a script no other
 * write fails because of memory.
 */
export const RELEASE = script(`
local call, pcall, sub, byte = redis.call, redis.pcall, string.sub, string.byte
${BEGIN_RELEASE}
for at = ${FIRST_RELEASED}, #ARGV, ${RELEASED.step} do
  ${RELEASED.locals('at')}
  local answer, woken = nil, 0
  for i = key + 1, key + n do
    local name = ${NAMES.at('name', 'i')}
    local record, wakes = pcall('GET', name), false
    if record and record.err then
      answer = record
    elseif record and byte(record, 1) == ${RECORD.held} and sub(record, ${RECORD.id.join(', ')}) == id then
      local state, left = 'F', '${LINGER_MS}'
      if keep > 0 then
        state, left = 'K', keep + ${LINGER_MS}
      end
      local kept = state .. sub(record, 2)
      ${storeEvenIfFull('name', 'kept', 'left')}
      if stored.err then
        answer = stored
      end
      wakes = byte(record, 2) == ${RECORD.waited} and not answer
    elseif held == 1 then
      wakes = not record or byte(record, 2) == ${RECORD.waited} and sub(record, ${RECORD.id.join(', ')}) ~= id
    end
    if wakes and not queued then
      woken = woken + 1
    elseif wakes then
      local queue, after, released = ${NAMES.at('queue', 'i')}, math.max(pause, keep), id
      ${WAKE}
      woken = woken + told
    end
  end
  if life then
    local ran = KEYS[key + (queued and ${NAMES.size} or ${WITHOUT_QUEUES.size}) * n + 1]
    local last = pcall('GET', ran)
    if last and last.err then
      answer = last
    elseif last and ${isForeignTick('last')} then
      answer = ${FOREIGN}
    elseif not last or sub(last, ${TICK.at.join(', ')}) <= sub(tick, ${TICK.at.join(', ')}) then
      local remembered = pcall('SET', ran, tick, 'PX', life)
      if remembered.err then
        answer = remembered
      end
    end
  end
  ${ADD_RELEASED}
  key = key + ${NAMES.size} * n + (life and 1 or 0)
end
${END_RELEASE}
`);

/** The number of keys, the keys and the arguments of {@link RELEASE}. */
export function packRelease(requests: readonly ReleaseRequest[], keyPrefix: string, base: string): Packed {
  const names: string[] = [];
  const isPlain = requests.every(
    (request) =>
      request.lease.keys.length === 1 &&
      request.pause === 0 &&
      request.lease.keepFor === 0 &&
      !markOf(request),
  );
  for (const request of requests) {
    const { keys } = request.lease;
    NAMES.push(names, keys, keyPrefix);
    const mark = isPlain ? undefined : markOf(request);
    if (mark) names.push(tickKey(keyPrefix, keys, mark));
  }
  return packReleaseWith(names, requests, RELEASED, base, isPlain ? 'plain' : 'other');
}

function markOf({ lease, isSecond }: ReleaseRequest): TickMark | undefined {
  return isSecond === true ? undefined : lease.mark;
}

/** As {@link packRelease}, for one lease and without its queues. */
export function packReleaseWithoutQueue(request: ReleaseRequest, keyPrefix: string): Packed {
  const { keys } = request.lease;
  const mark = markOf(request);
  const names: string[] = [];
  WITHOUT_QUEUES.push(names, keys, keyPrefix);
  if (mark) names.push(tickKey(keyPrefix, keys, mark));
  return packReleaseWith(names, [request], RELEASED, '', 'withoutQueues');
}

function tickOf(request: ReleaseRequest): string {
  const mark = markOf(request);
  return mark ? tickValue(request.lease, mark) : '';
}

/** `true` if a release without queues freed a key with waiters. */
export function leftWaiters(reply: unknown): boolean {
  return Number(releaseAnswer(reply, 0)) > 0;
}
