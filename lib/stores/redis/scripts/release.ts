import type { ReleaseRequest } from '../../../core/ports.js';
import type { TickMark } from '../../../core/tick.js';
import { queueKey, recordKey, tickKey } from '../lock-key.js';
import { LINGER_MS, RECORD, tickMark } from '../record.js';
import { CODE_FIRST, FOREIGN } from './lua.js';
import { WAKE } from './queue.js';
import type { Packed } from '../connection/command-channel.js';
import { script } from './script.js';

/**
 * Frees the records of each lease, and no records of other leases (S7). With `minHold` the records stay held for some
 * time. Tells the waiters when they can try. A freed record stays for {@link LINGER_MS}, with the last token.
 *
 * If a lease has run a tick of a schedule, then stores that tick, unless a later tick is stored. Does so even when
 * another lease now holds the keys. Writes that work when memory is short come first, then the messages (S7), and last
 * the writes that can fail.
 *
 * KEYS     for each lease: its n records, their n queues (none if ARGV[2] is 2), and, for a tick, the key of the last tick that ran
 * ARGV[1]  the prefix of channel names; empty on a Cluster
 * ARGV[2]  1 when every lease has one key and no further details: then each has one argument, else six. 2 for one lease with six
 *          arguments and without its queues, whose waiters get no message
 * ARGV     for each lease:
 *          - its id
 *          - n
 *          - milliseconds for which the records are kept (minHold), even if their lease would end earlier or later; 0 to free
 *            them
 *          - milliseconds after which the first waiter may try; 0 for no pause
 *          - milliseconds for which the tick is remembered; empty for none
 *          - the value to store for the tick: 16 digits of the tick, in milliseconds since 1970, a colon, and the owner; empty
 *            for none
 * Returns  for each lease the number of waiters that got a message, or without queues the number of keys with waiters, or an error.
 *          A single 0 if the answers for all leases are 0
 *
 * SET is needed: with PEXPIRE alone, a clock that is set back would make the record held again, for the time by which
 * the clock was set back. When memory is short, PEXPIRE comes first (S9): after the first write of a script no other
 * write fails because of memory.
 */
export const RELEASE = script(`
local call, pcall, sub, byte = redis.call, redis.pcall, string.sub, string.byte
local base, plain, queued = ARGV[1], ARGV[2] == '1', ARGV[2] ~= '2'
local answers, key, quiet = {}, 0, true
for at = 3, #ARGV, plain and 1 or 6 do
  local id, n, keep, pause, life = ARGV[at], 1, 0, 0
  if not plain then
    n, keep, pause, life = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  end
  local answer, woken = nil, 0
  for i = key + 1, key + n do
    local record = pcall('GET', KEYS[i])
    if record and record.err then
      answer = record
    elseif record and byte(record, 1) == ${RECORD.held} and sub(record, ${RECORD.id.join(', ')}) == id then
      -- Pass the time as a text: with a number, Redis takes 0.5 us longer (commandstats of a script with one SET).
      local state, left = 'F', '${LINGER_MS}'
      if keep > 0 then
        state, left = 'K', keep + ${LINGER_MS}
      end
      local freed = pcall('SET', KEYS[i], state .. sub(record, 2), 'PX', left)
      if freed.err and string.find(freed.err, 'OOM', 1, true) then
        call('PEXPIRE', KEYS[i], left)
        freed = pcall('SET', KEYS[i], state .. sub(record, 2), 'PX', left)
      end
      if freed.err then
        answer = freed
      end
      if byte(record, 2) == ${RECORD.waited} and not answer and not queued then
        woken = woken + 1
      elseif byte(record, 2) == ${RECORD.waited} and not answer then
        local queue, after, released = KEYS[n + i], math.max(pause, keep), id
        ${WAKE}
        woken = woken + told
      end
    end
  end
  if life then
    local ran, tick = KEYS[key + (queued and 2 or 1) * n + 1], ARGV[at + 5]
    local last = pcall('GET', ran)
    if last and last.err then
      answer = last
    elseif last and (byte(last, 17) ~= 58 or not tonumber(sub(last, 1, 16))) then
      answer = ${FOREIGN}
    elseif not last or sub(last, 1, 16) <= sub(tick, 1, 16) then
      local marked = pcall('SET', ran, tick, 'PX', life)
      if marked.err then
        answer = marked
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
  key = key + 2 * n + (life and 1 or 0)
end
-- Return no array if all answers are 0: an array takes 0.4 us more (commandstats, one release at a time).
return quiet and 0 or answers
`);

/** The number of keys, the keys and the arguments of {@link RELEASE}. */
export function packRelease(requests: readonly ReleaseRequest[], keyPrefix: string, base: string): Packed {
  const packed: [number, ...(string | number)[]] = [0];
  const args: (string | number)[] = [];
  const plain = requests.every(
    (request) =>
      request.lease.keys.length === 1 &&
      request.pause === 0 &&
      request.lease.keepFor === 0 &&
      !markOf(request),
  );
  for (const request of requests) {
    const { lease } = request;
    const { keys } = lease;
    const mark = markOf(request);
    for (const key of keys) packed.push(recordKey(keyPrefix, key));
    for (const key of keys) packed.push(queueKey(keyPrefix, key));
    args.push(lease.id);
    if (plain) continue;
    if (mark) packed.push(tickKey(keyPrefix, keys, mark));
    args.push(...details(request));
  }
  packed[0] = packed.length - 1;
  packed.push(base, plain ? 1 : 0, ...args);
  return packed;
}

function markOf({ lease, isSecond }: ReleaseRequest): TickMark | undefined {
  return isSecond === true ? undefined : lease.mark;
}

/** As {@link packRelease}, for one lease and without its queues. */
export function packReleaseWithoutQueue(request: ReleaseRequest, keyPrefix: string): Packed {
  const { id, keys } = request.lease;
  const mark = markOf(request);
  const names = keys.map((key) => recordKey(keyPrefix, key));
  if (mark) names.push(tickKey(keyPrefix, keys, mark));
  return [names.length, ...names, '', 2, id, ...details(request)];
}

/** The arguments of a lease after its id. */
function details(request: ReleaseRequest): (string | number)[] {
  const { lease, pause } = request;
  const { keys, keepFor } = lease;
  const mark = markOf(request);
  return [keys.length, keepFor, pause, mark?.life ?? '', mark ? tickMark(lease, mark) : ''];
}

/** `true` if a release without queues freed a key with waiters. */
export function leftWaiters(reply: unknown): boolean {
  return Number(releaseAnswer(reply, 0)) > 0;
}

/** The answer about one lease in the reply of {@link RELEASE}. */
export function releaseAnswer(reply: unknown, index: number): unknown {
  return Array.isArray(reply) ? (reply as readonly unknown[])[index] : reply;
}
