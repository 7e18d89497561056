import { WAITER_LIFE_MS } from '../../../core/store-times.js';
import type { EntryPoint } from './sql-function.js';

/** Largest number of waiters of a key in one answer. */
const MOST_OF_QUEUE = 100;

/**
 * Reads the holders of keys, and changes nothing.
 *
 * Returns  an array, in the order of the keys: null, or { mode, permits, holders } with the holders in the order of their ends
 */
export const READ: EntryPoint = {
  signature: 'read(keys text[])',
  returns: 'jsonb',
  body: `
declare
  at constant timestamptz := clock_timestamp();
begin
  return (
    select jsonb_agg(
      case when l.key is not null then
        jsonb_build_object('mode', l.mode, 'permits', l.permits, 'holders',
          case when l.mode = 'exclusive' then
            jsonb_build_array(jsonb_build_object('id', l.id, 'owner', l.owner, 'since', l.since, 'token', l.token,
              'mode', l.mode, 'remaining', extract(epoch from l.ends - at) * 1000))
          else (
            select coalesce(jsonb_agg(jsonb_build_object('id', h.id, 'owner', h.owner, 'since', h.since, 'token', h.token,
              'mode', l.mode, 'slot', h.slot, 'remaining', extract(epoch from h.ends - at) * 1000) order by h.ends, h.slot), '[]')
            from holders h where h.key = l.key and h.ends > at
          ) end)
      end order by k.i)
    from unnest(keys) with ordinality as k(key, i)
      left join locks l on l.key = k.key and l.state <> 'free' and l.ends > at
  );
end`,
};

/**
 * Finds the keys whose rows other transactions have locked, and changes nothing. A statement for all keys would wait for
 * one of them until its time limit.
 *
 * Returns  an array of keys
 */
export const BLOCKED: EntryPoint = {
  signature: 'blocked(keys text[])',
  returns: 'jsonb',
  body: `
declare
  free text[];
begin
  free := array(select key from locks where key = any(keys) for update skip locked);
  return (select coalesce(jsonb_agg(key), '[]') from locks where key = any(keys) and key <> all(free));
end`,
};

/**
 * Examines the next `most` keys with a prefix, in their order.
 *
 * after    the position of the previous call; '' to begin
 * Returns  { keys, next }: the held ones of these keys, and the position; next is null after the last key
 */
export const SCAN_PAGE: EntryPoint = {
  signature: 'scan_page(prefix text, after text, most integer)',
  returns: 'jsonb',
  body: `
declare
  at constant timestamptz := clock_timestamp();
  -- All keys with the prefix come before this text: U+10FFFF is the largest character, and no key has more than eight
  -- of them after the prefix.
  last constant text := prefix || repeat(chr(1114111), 8);
begin
  return (
    select jsonb_build_object(
      'keys', coalesce(jsonb_agg(key order by key) filter (where state <> 'free' and ends > at and starts_with(key, prefix)), '[]'),
      'next', case when count(*) = most then max(key) end)
    from (
      select key, state, ends from locks where key > after and key >= prefix and key < last order by key limit most
    ) as page
  );
end`,
};

/**
 * For processes of the schema versions 1 to 5: lists in order the held keys that begin with a prefix and come after a
 * given key.
 */
export const SCAN: EntryPoint = {
  signature: 'scan(prefix text, after text, page integer)',
  returns: 'text[]',
  body: `
declare
  at constant timestamptz := clock_timestamp();
  -- All keys with the prefix come before this text: U+10FFFF is the largest character, and no key has more than eight
  -- of them after the prefix.
  last constant text := prefix || repeat(chr(1114111), 8);
begin
  return array(
    select key from locks
    where key > after and key >= prefix and key < last and starts_with(key, prefix) and state <> 'free' and ends > at
    order by key limit page
  );
end`,
};

/**
 * Reads the waiters of keys, in order.
 *
 * Returns  an array, in the order of the keys, of arrays of { waiter, owner, mode, since }
 */
export const WAITING: EntryPoint = {
  signature: 'waiting(keys text[])',
  returns: 'jsonb',
  body: `
declare
  at constant timestamptz := clock_timestamp();
begin
  return (
    select jsonb_agg((
      select coalesce(jsonb_agg(jsonb_build_object('waiter', w.waiter, 'owner', w.owner, 'mode', w.mode,
        'since', extract(epoch from w.came) * 1000) order by w.came, w.waiter), '[]')
      from (
        select * from waiters
        where key = k.key and seen >= at - interval '${WAITER_LIFE_MS} ms'
        order by came, waiter limit ${MOST_OF_QUEUE}
      ) w
    ) order by k.i)
    from unnest(keys) with ordinality as k(key, i)
  );
end`,
};
