import { STEPS_PER_SECOND } from '../../../core/fencing-token.js';
import type { AcquireReply, AcquireRequest } from '../../../core/ports.js';
import type { Tick } from '../../../core/tick.js';
import { NoTimeError, type YoungBecause } from '../../../core/errors.js';
import { ID_LENGTH } from '../../../core/random-id.js';
import { markKey, queueKey, recordKey, tickKey } from '../lock-key.js';
import { leasePart, LINGER_MS, ownerOfMark, ownerOfWaiter, RECORD, STATE, waiterName } from '../record.js';
import {
  ADD_ANSWER,
  type AcquireCommand,
  BEGIN_ACQUIRE,
  RAISE_MARKER,
  nodeKeys,
  packBegin,
  straightPath,
} from './acquire-command.js';
import { causeOf } from './identity.js';
import { digitsOf, FOREIGN, isForeignTick, tokenOf } from './lua.js';
import { LEAVE_QUEUES, passTurn, QUEUE_LIFE_MS, ADD_TO_QUEUE } from './queue.js';
import { namedBy } from './read.js';
import { type Packed, script } from './script.js';

/**
 * The first value of an answer about a lease that {@link ACQUIRE} did not store. If that value is positive, it is the
 * position of a held key.
 */
export const TOO_LATE = -1;
export const TOO_YOUNG = -2;
const ALREADY_RAN = -3;
export const TURN_OF_ANOTHER = -4;

/**
 * Stores leases, each under all its keys or under none, and gives each a fencing token. The node that keeps the queue
 * also keeps the order: it refuses a lease while an earlier caller waits, and adds a refused waiter to the queue.
 *
 * KEYS     the node's marker and identity, if it has them; then for each lease: its n records; at the node that keeps the queue their n queues,
 *          and, unless all leases are plain, their n marks (S22); for a tick of a schedule, the key of the last tick that ran
 * ARGV     the beginning of a command, see {@link AcquireCommand}
 * ARGV     for each lease:
 *          - its id, time and owner, as they are in the record
 *          - n
 *          - its tick, in milliseconds since 1970; empty for none
 *          - the name of its waiter in the queue; empty for none
 *          - milliseconds that this waiter has waited
 *          - milliseconds that the next waiter of the same process has waited, if that waiter takes over the position in the queue;
 *            empty for none
 * Returns  if the straight path (acquire-command.ts) stored every lease, only the clock of this server, in the form of a token:
 *          each lease then has that token or the proposed token, whichever is larger. Else an answer for each lease, and then
 *          the time in microseconds on this server's clock. An answer is one of
 *          token                       stored
 *          {0, token, waiting}         stored, and there are waiters; waiting is 2 if the next waiter of the process is the first
 *                                      of all these waiters, else 1
 *          {i, record, pttl}           the i-th key is held by another lease for pttl milliseconds more; -1 for ever
 *          {-1, milliseconds late}     the deadline had passed (S16)
 *          {-2, milliseconds to go, cause}    the node's data is younger than the guard (S12)
 *          {-3, value, pttl}           the tick or a later tick has run: the value of the tick's key, which lasts pttl
 *                                      milliseconds more
 *          {-4, waiter, milliseconds}  the lock is free, but the turn of that waiter excludes the lease for these milliseconds
 *                                      more
 *          an error
 *
 * The records are read first: a foreign value is an error and never overwritten (S19). A second run for the same lease,
 * such as after the client resent the command, grants the lease again with the same token. After the lease has ended,
 * the node refuses a duplicate because of the record. When the record has expired, the node refuses the duplicate
 * because the deadline of the duplicate has passed.
 *
 * An error does not undo the writes before it, so the write that can fail comes first: the write of the marker, or else
 * of the first record, fails when memory is short. After the first write of a script, later writes cannot fail. The
 * removal of a waiter from the queue is also a write, so a lock with waiters may be granted although memory is short.
 */
export const ACQUIRE = script(`${BEGIN_ACQUIRE}${straightPath({ keys: [2, 1], state: STATE.held })}
for at = first, #ARGV, plain and 1 or 6 do
  local lease, n, tick, waiter, came, next = ARGV[at], 1
  if not plain then
    n, tick, waiter = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]
    came, next = now - ARGV[at + 4], tonumber(ARGV[at + 5])
    if waiter == '' then
      waiter = nil
    end
  end
  local queues = key + n
  local marks = queues + n
  local ticks = not ordered and queues or plain and marks or marks + n
  local id = sub(lease, 1, ${ID_LENGTH})
  local token, mine, answer, refused, waits = heals and tonumber(ARGV[at + 4]) or least, 0

  if tick then
    local ran = pcall('GET', KEYS[ticks + 1])
    if ran and ran.err then
      answer = ran
    elseif ran and ${isForeignTick('ran')} then
      answer = ${FOREIGN}
    elseif ran and tonumber(sub(ran, 1, 16)) >= tick then
      answer = {${ALREADY_RAN}, ran, call('PTTL', KEYS[ticks + 1])}
    end
  end

  for i = 1, n do
    local record = not answer and (seen or pcall('GET', KEYS[key + i]))
    seen = nil
    if record then
      local last = not record.err and ${tokenOf('record')}
      if not last then
        answer = record.err and record or ${FOREIGN}
      else
        local state = byte(record, 1)
        local left = 0
        if state ~= ${RECORD.free} then
          left = call('PTTL', KEYS[key + i])
          left = left < 0 and math.huge or left - ${LINGER_MS}
        end
        if sub(record, ${RECORD.id.join(', ')}) == id and not (heals and state == ${RECORD.held} and left <= 0) then
          if state == ${RECORD.held} and left > 0 then
            mine, token = mine + 1, last
          else
            answer = redis.error_reply('ERR this lock was stored before, and has ended')
          end
        elseif left > 0 then
          answer, refused = {i, record, left == math.huge and -1 or left}, i
        else
          if last >= token then
            token = last + 1
          end
          if byte(record, 2) == ${RECORD.waited} then
            waits = waits or {}
            waits[i] = true
          end
        end
      end
    end
  end
  if mine == n then
    answer = token
  elseif mine > 0 then
    answer = redis.error_reply('ERR this lock was stored before, and some of its keys are gone')
  elseif not answer and late > 0 then
    answer = {${TOO_LATE}, math.ceil(late)}
  elseif not answer and young > 0 then
    answer = {${TOO_YOUNG}, math.ceil(young), why}
  end

  if waits and ordered and not answer then
    for i in pairs(waits) do
      local queue, woken = KEYS[queues + i], false
      while not answer do
        local front = call('ZRANGE', queue, 0, 1, 'WITHSCORES')
        local first, since, turn = front[1], front[2]
        if first and byte(first, 1) == 33 then
          turn, first, since = first, front[3], front[4]
        end
        if not first or first == waiter or byte(first, 1) == 63 or (waiter and came < tonumber(since)) then
          break
        end
        local before = first
        ${passTurn(TURN_OF_ANOTHER)}
      end
    end
  end

${ADD_TO_QUEUE}
  if not answer then
    local others = 0${RAISE_MARKER}${LEAVE_QUEUES}
    if next and not answer then
      waits = waits or {}
      pcall('ZADD', KEYS[queues + 1], string.format('%.3f', now - next), waiter)
      call('PEXPIRE', KEYS[queues + 1], ${QUEUE_LIFE_MS})
      waits[1], others = true, call('ZRANGE', KEYS[queues + 1], 0, 0)[1] == waiter and 2 or 1
    end
    local digits = not answer and ${digitsOf('token')} .. ':'
    for i = 1, answer and 0 or n do
      local stored = pcall('SET', KEYS[key + i], (waits and waits[i] and 'Hw' or 'H-') .. digits .. lease, 'PX', life)
      if stored.err then
        answer = stored
        break
      end
    end
    if not answer then
      answer = others == 0 and token or {0, token, others}
    end
  end
${ADD_ANSWER}  key = ticks + (tick and 1 or 0)
end
answers[#answers + 1] = seconds * 1000000 + micros
return answers
`);

/**
 * `true` if the request has one key, no tick, no position in the queue and no token of its own, so that the lease is its
 * only argument.
 */
export function isPlain({ lease, position, heals }: AcquireRequest, ordered: boolean): boolean {
  return lease.keys.length === 1 && !lease.tick && !(ordered && position) && heals !== true;
}

/** The number of keys, the keys and the arguments of {@link ACQUIRE}, for leases with the same ttl. */
export function packAcquire(requests: readonly AcquireRequest[], command: AcquireCommand): Packed {
  const { keyPrefix, ordered } = command;
  const plain = requests.every((request) => isPlain(request, ordered));
  const packed: [number, ...(string | number)[]] = [0];
  packed.push(...nodeKeys(command));
  for (const request of requests) {
    const { lease } = request;
    for (const key of lease.keys) packed.push(recordKey(keyPrefix, key));
    if (ordered) for (const key of lease.keys) packed.push(queueKey(keyPrefix, key));
    if (ordered && !plain) for (const key of lease.keys) packed.push(markKey(keyPrefix, key));
    const tick = tickOf(request);
    if (tick) packed.push(tickKey(keyPrefix, lease.keys, tick));
  }
  packed[0] = packed.length - 1;
  packed.push(...packBegin(requests, command, plain));
  for (const request of requests) {
    packed.push(leasePart(request));
    if (plain) continue;
    const { lease, position } = request;
    packed.push(lease.keys.length, tickOf(request)?.at ?? '');
    if (ordered && position)
      packed.push(waiterName(position.waiter), position.waited.toFixed(3), position.next?.toFixed(3) ?? '');
    else packed.push('', waitedOf(request), '');
  }
  return packed;
}

/** The tick that must not have run before; a lease that heals runs its tick already. */
function tickOf({ lease, heals }: AcquireRequest): Tick | undefined {
  return heals === true ? undefined : lease.tick;
}

/** The argument with the time that the waiter has waited; for a lease that heals, its token. */
export function waitedOf({ position, heals, proposal }: AcquireRequest): string | number {
  return heals === true ? proposal : (position?.waited.toFixed(3) ?? 0);
}

/**
 * Reads the reply of {@link ACQUIRE}: an answer for each request, and then the time in microseconds on the server's
 * clock.
 */
export function acquireAnswers(reply: unknown, requests: readonly AcquireRequest[]): readonly unknown[] {
  if (Array.isArray(reply)) return reply;
  const clock = Number(reply);
  const token = requests.reduce((most, { proposal }) => Math.max(most, proposal), clock);
  const answers: unknown[] = requests.map(() => token);
  answers.push((clock * 1_000_000) / STEPS_PER_SECOND);
  return answers;
}

/** `true` if the request arrived after its deadline, so that the node has done nothing. */
export function isTooLate(answer: unknown): boolean {
  return Array.isArray(answer) && Number(answer[0]) === TOO_LATE;
}

/** Milliseconds until the node may vote, because of its marker; `undefined` for any other answer. */
export function tooYoungFor(answer: unknown): number | undefined {
  return Array.isArray(answer) && Number(answer[0]) === TOO_YOUNG ? Number(answer[1]) : undefined;
}

/** The cause of an answer that the node is too young; `undefined` if the cause is not known. */
export function youngBecause(answer: unknown): YoungBecause | undefined {
  return causeOf((answer as readonly unknown[])[2]);
}

/**
 * Reads an answer about one lease, other than {@link TOO_YOUNG}. Numbers may be strings from a passed-in client
 * (`stringNumbers`).
 */
export function readAcquireReply(answer: unknown): AcquireReply | Error {
  if (answer instanceof Error) return answer;
  if (!Array.isArray(answer)) return grant(answer);
  const [outcome, detail, number] = answer as readonly (number | string)[];
  const code = Number(outcome);
  const remaining = Number(number);
  const text = String(detail);
  if (code === 0) {
    const granted = grant(detail);
    return granted instanceof Error ? granted : { ...granted, nextIsFirst: remaining > 1 };
  }
  if (code === TOO_LATE) return new NoTimeError(`got the request ${text} ms too late, and did nothing`);
  if (code === ALREADY_RAN)
    return { granted: false, ran: true, holder: { id: text, owner: ownerOfMark(text), remaining } };
  if (code === TURN_OF_ANOTHER)
    return { granted: false, holder: { id: text, owner: ownerOfWaiter(text), remaining } };
  return { granted: false, holder: namedBy(text, remaining) };
}

/** A grant without a token is an error. */
function grant(token: unknown): { readonly granted: true; readonly token: number } | Error {
  const number = Number(token);
  if (Number.isSafeInteger(number) && number > 0) return { granted: true, token: number };
  return new Error(`answered ${String(token)} instead of a fencing token`);
}

/** `true` if there were waiters for the lock at the time of the answer. */
export function showsWaiters(answer: unknown): boolean {
  if (!Array.isArray(answer)) return false;
  const [outcome, , waiting] = answer as readonly unknown[];
  const code = Number(outcome);
  return code === 0 ? Number(waiting) > 0 : code > 0 || code === TURN_OF_ANOTHER;
}
