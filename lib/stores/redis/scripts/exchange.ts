import type { AcquireReply, AcquireRequest, Holder } from '../../../core/ports.js';
import { ID_LENGTH } from '../../../core/random-id.js';
import { LINGER_MS } from '../../../core/store-times.js';
import { LeaseNames } from '../lease-names.js';
import { detailsKey, holdersKey, recordKey } from '../lock-key.js';
import { leasePart, READER, RECORD } from '../record.js';
import { readAcquireReply } from './acquire-answer.js';
import {
  ADD_ANSWER,
  type AcquireCommand,
  BEGIN_ACQUIRE,
  END_ACQUIRE,
  packAcquireWith,
  REFUSE_UNFIT,
} from './acquire-command.js';
import { Arguments, number, text } from './arguments.js';
import { FOREIGN, tokenOf } from './lua.js';
import { ownerAt, PERMIT, PERMITS } from './permits.js';
import { type Packed, script } from './script.js';

/** A request of `LeaseExchange`, which is sent as an acquisition is: with a deadline, and under the restart guard. */
export interface Exchange extends AcquireRequest {
  readonly replaces: readonly string[];
}

export function isExchange(request: AcquireRequest): request is Exchange {
  return 'replaces' in request;
}

const NAMES = new LeaseNames({ name: recordKey, holders: holdersKey, details: detailsKey });

/** The first position of the time and the owner in the text of a lease (`leasePart`). */
const SINCE = ID_LENGTH + 2;
/** The position of the owner in that text. */
const OWNER = SINCE + 14;

const EXCHANGED = new Arguments<Exchange>({
  /** The id, the time and the owner of the lease, as they are in the record. */
  lease: text((request) => leasePart(request)),
  n: number(({ lease }) => lease.keys.length),
  /** The ids of the lease and of those that it replaces, one after the other. */
  known: text(({ lease, replaces }) => [lease.id, ...replaces].join('')),
});

/**
 * Puts one lease in the place of another, under all keys or under none: it gets the tokens, the slots and the ends of the
 * other. One script for all modes: each record shows its mode.
 *
 * KEYS     the node's marker and identity, if it has them; then the Redis keys of the lease (`NAMES`)
 * ARGV     the beginning of a command, see acquire-command.ts, then `EXCHANGED`
 * Returns  1 if the lease holds all keys now, 0 if they are not held by one of the known leases, `TOO_LATE`, `TOO_YOUNG`, or
 *          an error; and then the time in microseconds on this server's clock
 *
 * PEXPIRE comes first: it works when memory is short, and after the first write of a script no other write fails because
 * of memory (S9). A record without an expiry would be held for ever, so it gets one.
 */
export const EXCHANGE = script(`${BEGIN_ACQUIRE}
${EXCHANGED.locals('header + 1')}
local answers, id, answer = {}, sub(lease, 1, ${ID_LENGTH}), nil
local records, lefts, olds = {}, {}, {}
for i = 1, n do
  ${NAMES.locals(['name', 'holders', 'details'])}
  local record = not answer and pcall('GET', name)
  if record and record.err then
    answer = record
  elseif record and not (${tokenOf('record')}) then
    answer = ${FOREIGN}
  elseif record then
    local left, state, named = call('PTTL', name), byte(record, 1), sub(record, ${RECORD.id.join(', ')})
    local held = left > ${LINGER_MS} or left == -1
    local alone = state == ${RECORD.held} or state == ${RECORD.shared}
      or state == ${RECORD.permits} and byte(record, ${PERMITS.kind}) == ${PERMITS.alone}
    local several = state == ${RECORD.shared} and byte(record, ${RECORD.beside}) == ${RECORD.others}
      or state == ${RECORD.permits} and byte(record, ${PERMITS.kind}) == ${PERMITS.several}
    for from = 1, held and #known or 0, ${ID_LENGTH} do
      local each = sub(known, from, from + ${ID_LENGTH - 1})
      if alone and named == each then
        olds[i] = each
      elseif several and not olds[i] then
        local own, score = pcall('HGET', details, each), pcall('ZSCORE', holders, each)
        if own and not own.err and score and not score.err and tonumber(score) > now
          and (state == ${RECORD.shared} or byte(own, ${PERMIT.state}) ~= ${PERMITS.kept}) then
          olds[i] = each
        end
      end
    end
    records[i], lefts[i] = record, left == -1 and life + 0 or left
  end
  if not answer and not olds[i] then
    answer = 0
  end
end
${REFUSE_UNFIT}
for i = 1, answer and 0 or n do
  ${NAMES.locals(['name', 'holders', 'details'])}
  local record, left, old = records[i], lefts[i], olds[i]
  if old ~= id then
    call('PEXPIRE', name, left)
    local several = byte(record, 1) ~= ${RECORD.held}
    local own, score = several and call('HGET', details, old), several and call('ZSCORE', holders, old)
    if own and byte(record, 1) == ${RECORD.permits} then
      call('HSET', details, id, sub(own, 1, ${PERMIT.since[0] - 1}) .. sub(lease, ${SINCE}),
        tonumber(sub(own, ${PERMIT.slot.join(', ')})), sub(own, ${PERMIT.token.join(', ')}) .. ':' .. id)
      call('HDEL', details, old)
    elseif own then
      call('HSET', details, id, sub(own, 1, ${READER.since[0] - 1}) .. sub(lease, ${SINCE}))
      call('HDEL', details, old)
    end
    if score then
      call('ZADD', holders, score, id)
      call('ZREM', holders, old)
    end
    if sub(record, ${RECORD.id.join(', ')}) == old then
      local before, after = sub(record, 1, ${RECORD.id[0] - 1}) .. id .. sub(record, ${RECORD.beside}, ${RECORD.beside}), sub(lease, ${SINCE})
      if byte(record, 1) == ${RECORD.permits} then
        local count = tonumber(sub(record, ${PERMITS.count.join(', ')}))
        after = sub(lease, ${SINCE}, ${OWNER - 1}) .. sub(record, ${PERMITS.slot[0]}, ${ownerAt('record', 'count')} - 1)
          .. sub(lease, ${OWNER}) .. sub(record, ${PERMITS.ownerEnd + 1})
      end
      call('SET', name, before .. after, 'PX', left)
    end
  end
end
answer = answer or 1
${ADD_ANSWER}
${END_ACQUIRE}
`);

/** The number of keys, the keys and the arguments of {@link EXCHANGE}, for one request. */
export function packExchange([request]: readonly AcquireRequest[], command: AcquireCommand): Packed {
  const names: string[] = [];
  const rows: (string | number)[] = [];
  NAMES.push(names, (request as Exchange).lease.keys, command.keyPrefix);
  EXCHANGED.push(rows, request as Exchange);
  return packAcquireWith(names, rows, [request as Exchange], command, false);
}

/** The holder in a refusal, which nobody reads. */
const ANYBODY: Holder = { id: '', owner: '', remaining: 0 };

/** Reads an answer of {@link EXCHANGE}. Of a grant only the fact counts: the lease keeps its token. */
export function readExchangeReply(answer: unknown): AcquireReply | Error {
  if (answer instanceof Error || Array.isArray(answer)) return readAcquireReply(answer);
  return Number(answer) === 1 ? { granted: true, token: 0 } : { granted: false, holder: ANYBODY };
}
