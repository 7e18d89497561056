import type { AcquireRequest } from '../../../core/ports.js';
import type { Tick } from '../../../core/tick.js';
import { ID_LENGTH } from '../../../core/random-id.js';
import { LINGER_MS } from '../../../core/store-times.js';
import { LeaseNames } from '../lease-names.js';
import { markKey, queueKey, recordKey, tickKey } from '../lock-key.js';
import { leasePart, RECORD, STANDBYS, STATE, TICK, TURN, waiterName } from '../record.js';
import { ALREADY_RAN, HELD, STORED } from './acquire-answer.js';
import {
  ADD_ANSWER,
  type AcquireCommand,
  BEGIN_ACQUIRE,
  END_ACQUIRE,
  packAcquireWith,
  RAISE_MARKER,
  IS_COPY,
  REFUSE_UNFIT,
  straightPath,
} from './acquire-command.js';
import { Arguments, number, text } from './arguments.js';
import { digitsOf, FOREIGN, isForeignTick, tokenOf } from './lua.js';
import { ADD_TO_QUEUE, INHERIT, KEEP_PLACE, LEAVE_QUEUES, PASS_TURN } from './queue.js';
import { type Packed, script } from './script.js';

const RECORDS = new LeaseNames({ name: recordKey });
const QUEUES = new LeaseNames({ name: recordKey, queue: queueKey });
const ALL = new LeaseNames({ name: recordKey, queue: queueKey, mark: markKey });

/** A lease of a command. */
export interface Leased {
  readonly request: AcquireRequest;
  /** `true` at the node that keeps the queue. */
  readonly ordered: boolean;
}

/** The name of the waiter in the queue; empty for none. */
export const waiterOf = ({ request: { position }, ordered }: Leased): string =>
  ordered && position ? waiterName(position.waiter) : '';

/** Milliseconds that the waiter has waited; for a lease that heals, its token. */
export const waitedOf = ({ request: { position, heals, proposal } }: Leased): string | number =>
  heals === true ? proposal : (position?.waited.toFixed(3) ?? 0);

/**
 * Milliseconds that the next waiter of the same process has waited, if that waiter takes over the position in the queue;
 * empty for none.
 */
export const nextOf = ({ request: { position }, ordered }: Leased): string =>
  ordered ? (position?.next?.toFixed(3) ?? '') : '';

/** The arguments of each lease; a plain lease has only the first. */
const LEASED = new Arguments<Leased>({
  /** The id, the time and the owner of the lease, as they are in the record. */
  lease: text(({ request }) => leasePart(request)),
  n: number(({ request }) => request.lease.keys.length, '1'),
  /** The tick of the lease, in milliseconds since 1970; empty for none. */
  tick: number(({ request }) => tickOf(request)?.at ?? '', 'nil'),
  waiter: text(waiterOf, "''"),
  waited: number(waitedOf, '0'),
  next: number(nextOf, 'nil'),
});

/**
 * Stores leases, each under all its keys or under none, and gives each a fencing token. The node that keeps the queue
 * also keeps the order: it refuses a lease while an earlier caller waits, and adds a refused waiter to the queue.
 *
 * KEYS     the node's marker and identity, if it has them; then for each lease its Redis keys (`RECORDS`; at the node that keeps
 *          the queue `ALL`, or `QUEUES` if all leases are plain), and for a tick of a schedule the key of the last tick that ran
 * ARGV     the beginning of a command, see acquire-command.ts, then for each lease `LEASED`
 * Returns  if the straight path (acquire-command.ts) stored every lease, only the clock of this server, in the form of a token:
 *          each lease then has that token or the proposed token, whichever is larger. Else an answer for each lease, and then
 *          the time in microseconds on this server's clock. An answer is one of
 *          token       stored
 *          `STORED`    stored, and there are waiters
 *          `HELD`, `TOO_LATE`, `TOO_YOUNG`, `ALREADY_RAN`, `TURN_OF_ANOTHER` (acquire-answer.ts)
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
export const ACQUIRE =
  script(`${BEGIN_ACQUIRE}${straightPath({ keys: [QUEUES.size, RECORDS.size], state: STATE.held })}
for at = first, #ARGV, ${LEASED.step} do
  ${LEASED.locals('at')}
  waiter = waiter ~= '' and waiter or nil
  local came, queues, marks = now - waited, ${ALL.before('queue')}, ${ALL.before('mark')}
  local ticks = key + (not ordered and ${RECORDS.size} or plain and ${QUEUES.size} or ${ALL.size}) * n
  local id = sub(lease, 1, ${ID_LENGTH})
  local token, mine, answer, refused, waits = heals and waited or least, 0

  if tick then
    local ran = pcall('GET', KEYS[ticks + 1])
    if ran and ran.err then
      answer = ran
    elseif ran and ${isForeignTick('ran')} then
      answer = ${FOREIGN}
    elseif ran and tonumber(sub(ran, ${TICK.at.join(', ')})) >= tick then
      answer = ${ALREADY_RAN.lua({ value: 'ran', left: `call('PTTL', KEYS[ticks + 1])` })}
    end
  end

  for i = 1, n do
    local record = not answer and (seen or pcall('GET', ${RECORDS.at('name')}))
    seen = nil
    if record then
      local last = not record.err and ${tokenOf('record')}
      if not last then
        answer = record.err and record or ${FOREIGN}
      else
        local state = byte(record, 1)
        local left = 0
        if state ~= ${RECORD.free} then
          left = call('PTTL', ${RECORDS.at('name')})
          left = left < 0 and math.huge or left - ${LINGER_MS}
        end
        if sub(record, ${RECORD.id.join(', ')}) == id and not (heals and state == ${RECORD.held} and left <= 0) then
          if state == ${RECORD.held} and left > 0 then
            mine, token = mine + 1, last
          else
            answer = redis.error_reply('ERR this lock was stored before, and has ended')
          end
        elseif left > 0 then
          answer, refused = ${HELD.lua({ position: 'i', record: 'record', left: 'left == math.huge and -1 or left' })}, i
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
    answer = not (${IS_COPY}) and token
  elseif mine > 0 then
    answer = redis.error_reply('ERR this lock was stored before, and some of its keys are gone')
  end
${REFUSE_UNFIT}

  if waits and ordered and not answer then
    for i in pairs(waits) do
      local queue, woken = KEYS[queues + i], false
      while not answer do
        local line, turn, j, place = call('ZRANGE', queue, 0, 1, 'WITHSCORES'), nil, 1, came
        if line[1] and byte(line[1], 1) == ${TURN.letter} then
          turn, j = line[1], 3
        end
        local first = line[j]
        ${KEEP_PLACE}
        if not first or byte(first, 1) == ${STANDBYS} or waiter and place < tonumber(line[j + 1]) then
          break
        end
        local before = first
        ${PASS_TURN}
      end
    end
  end

${ADD_TO_QUEUE}
  if not answer then
    local others = 0${RAISE_MARKER}${LEAVE_QUEUES}
${INHERIT}
    local digits = not answer and ${digitsOf('token')} .. ':'
    for i = 1, answer and 0 or n do
      local stored = pcall('SET', ${RECORDS.at('name')}, (waits and waits[i] and 'Hw' or 'H-') .. digits .. lease, 'PX', life)
      if stored.err then
        answer = stored
        break
      end
    end
    if not answer then
      answer = others == 0 and token or ${STORED.lua({ token: 'token', waiting: 'others' })}
    end
  end
${ADD_ANSWER}  key = ticks + (tick and 1 or 0)
end
${END_ACQUIRE}
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
  const kinds = !ordered ? RECORDS : plain ? QUEUES : ALL;
  const names: string[] = [];
  const rows: (string | number)[] = [];
  for (const request of requests) {
    const { keys } = request.lease;
    kinds.push(names, keys, keyPrefix);
    const tick = tickOf(request);
    if (tick) names.push(tickKey(keyPrefix, keys, tick));
    LEASED.push(rows, { request, ordered }, plain);
  }
  return packAcquireWith(names, rows, requests, command, plain);
}

/** The tick that must not have run before; a lease that heals runs its tick already. */
function tickOf({ lease, heals }: AcquireRequest): Tick | undefined {
  return heals === true ? undefined : lease.tick;
}
