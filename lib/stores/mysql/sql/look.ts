import { WAITER_LIFE_MS } from '../../../core/store-times.js';
import { inMicros, keysOf, NOW } from './procedure.js';

/** Largest number of waiters of a key in one answer. */
const MOST_OF_QUEUE = 100;

// These statements read, and change nothing. A statement has one time, also for all its rows.

/**
 * Reads the holders of keys.
 *
 * Parameter  a JSON array of keys
 * Selects    JSON, an array of { i, mode, permits, id, owner, since, token, slot, remaining } with the number of the key, from
 *            1 on, in the order of the ends
 */
export const READ = `select concat('[', coalesce(group_concat(json_object('i', keys_.i, 'mode', l.mode, 'permits', l.permits,
    'id', coalesce(h.id, l.id), 'owner', coalesce(h.owner, l.owner), 'since', coalesce(h.since, l.since),
    'token', coalesce(h.token, l.token), 'slot', h.slot, 'remaining', (coalesce(h.ends, l.ends) - ${NOW}) / 1000)
    order by keys_.i, coalesce(h.ends, l.ends), h.slot), ''), ']') as answer
  from ${keysOf('?')}
    straight_join {locks} l on l.k = cast(keys_.k as binary) and l.state <> 'free' and l.ends > ${NOW}
    left join {holders} h on h.k = l.k and l.mode <> 'exclusive' and h.ends > ${NOW}
  where l.mode = 'exclusive' or h.id is not null`;

/**
 * Examines the next keys with a prefix, in their order.
 *
 * Parameters  the prefix twice, the last key of the previous call or '' to begin, and the largest number of keys
 * Selects     JSON: { keys, next }: the held ones of these keys, and the last key; next is null after the last key
 */
export const SCAN_PAGE = (most: number): string => `select concat('{"keys":[',
    coalesce(group_concat(if(state <> 'free' and ends > ${NOW}, json_quote(convert(k using utf8mb4)), null) order by k), ''),
    '],"next":', if(count(*) = ${most}, json_quote(convert(max(k) using utf8mb4)), 'null'), '}') as answer
  from (
    select k, state, ends from {locks}
    where k >= cast(? as binary) and k < concat(cast(? as binary), x'ff') and k > cast(? as binary)
    order by k limit ${most}
  ) page`;

/**
 * Reads the waiters of keys.
 *
 * Parameter  a JSON array of keys
 * Selects    JSON, an array of { i, waiter, owner, mode, since } with the number of the key, from 1 on, in the order of the
 *            queue
 */
export const WAITING = `select concat('[', coalesce(group_concat(json_object('i', i, 'waiter', waiter, 'owner', owner,
    'mode', mode, 'since', came / 1000) order by i, place), ''), ']') as answer
  from (
    select keys_.i, w.waiter, w.owner, w.mode, w.came,
      row_number() over (partition by keys_.i order by w.came, w.waiter) as place
    from ${keysOf('?')}
      straight_join {waiters} w on w.k = cast(keys_.k as binary) and w.seen >= ${NOW} - ${inMicros(WAITER_LIFE_MS)}
  ) queues
  where place <= ${MOST_OF_QUEUE}`;

/** A query for those of these keys that have a row, in hexadecimal digits with commas between them. */
export function ROWS_OF(keys: readonly string[]): string {
  const literals = keys.map((key) => `x'${Buffer.from(key).toString('hex')}'`);
  return `select group_concat(hex(k)) as answer from {locks} force index (primary) where k in (${literals.join(', ')})`;
}

/** The end of such a query, for rows that nobody has locked. */
export const UNLOCKED = ' for update skip locked';
