import type { EntryPoint } from './sql-function.js';

/**
 * Extends each lease that holds all its keys: these keys are then held for at least its ttl from now.
 *
 * asked    an array of `{ id, keys, ttl, slots }`: ttl in milliseconds; slots only with permits, as far as they are known
 * Returns  an array with true for each lease that holds all its keys, and false for each other; null if there are no leases
 *
 * Only a held lease is extended: a late extension must not restore a released or expired lease. A longer life is not
 * shortened: a delayed extension must not undo a later one. One statement extends all exclusive locks, and another one
 * all other locks.
 */
export const EXTEND: EntryPoint = {
  signature: 'extend_leases(asked jsonb, at timestamptz)',
  returns: 'jsonb',
  body: `
declare
  outcomes jsonb;
  part record;
begin
  if asked is null then
    return null;
  end if;
  -- Free each slot that is not the agreed slot of its lease.
  for part in
    select k.key, a.id
    from jsonb_to_recordset(asked) as a(id text, keys text[], slots integer[])
      cross join unnest(a.keys, a.slots) as k(key, slot)
      join holders h on h.key = k.key and h.id = a.id and not h.kept and h.ends > at
    where h.slot <> k.slot
  loop
    perform give_up(part.key, part.id, at);
  end loop;
  with leases as (
    select row_number() over () as i, a.id, a.keys, at + a.ttl * interval '1 ms' as ends
    from jsonb_to_recordset(asked) as a(id text, keys text[], ttl double precision)
  ), parts as (
    select a.i, a.id, k.key, a.ends,
      l.key is not null as is_exclusive, l.key is not null or h.key is not null as is_held
    from leases a cross join unnest(a.keys) as k(key)
      left join locks l
        on l.key = k.key and l.id = a.id and l.mode = 'exclusive' and l.state = 'held' and l.ends > at
      left join holders h on h.key = k.key and h.id = a.id and not h.kept and h.ends > at
  ), outcome as (
    select i, bool_and(is_held) as held from parts group by i
  ), exclusive as (
    update locks l set ends = p.ends
    from parts p join outcome o using (i)
    where o.held and p.is_exclusive and l.key = p.key and l.ends < p.ends
  ), others as (
    update holders h set ends = p.ends
    from parts p join outcome o using (i)
    where o.held and not p.is_exclusive and h.key = p.key and h.id = p.id and h.ends < p.ends
  ), last as (
    select p.key, max(p.ends) as ends from parts p join outcome o using (i)
    where o.held and not p.is_exclusive group by p.key
  ), keys as (
    update locks l set ends = p.ends from last p where l.key = p.key and l.ends < p.ends
  )
  select jsonb_agg(held order by i) into outcomes from outcome;
  return outcomes;
end`,
};
