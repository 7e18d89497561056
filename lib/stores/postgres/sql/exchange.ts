import type { EntryPoint } from './sql-function.js';

/**
 * Puts a lease in the place of another, under all keys or under none. The other one has its tokens, slots and ends.
 *
 * known     the id of the lease, and then the ids of those that it replaces
 * deadline  in milliseconds since 1970 on the server's clock: nothing is changed after it (S16)
 * Returns   `at`: the server's time when the rows were locked, in milliseconds since 1970; `late`: true after the deadline;
 *           `done`: true if the lease holds all keys now
 */
export const EXCHANGE: EntryPoint = {
  signature: 'exchange(keys text[], known text[], by text, asked bigint, deadline double precision)',
  returns: 'jsonb',
  body: `
declare
  at timestamptz;
  now_ms double precision;
  held integer;
begin
  perform 1 from locks l where l.key = any (keys) order by l.key for update;
  at := clock_timestamp();
  now_ms := extract(epoch from at) * 1000;
  if now_ms > deadline then
    return jsonb_build_object('at', now_ms, 'late', true, 'done', false);
  end if;
  select count(*) into held from locks l
    where l.key = any (keys) and l.state <> 'free' and l.ends > at and case when l.mode = 'exclusive'
      then l.state = 'held' and l.id = any (known)
      else exists (select from holders h where h.key = l.key and h.id = any (known) and not h.kept and h.ends > at) end;
  if held = cardinality(keys) then
    update locks l set id = known[1], owner = by, since = asked
      where l.key = any (keys) and l.mode = 'exclusive' and l.id <> known[1];
    update holders h set id = known[1], owner = by, since = asked
      where h.key = any (keys) and h.id = any (known) and h.id <> known[1] and not h.kept and h.ends > at;
  end if;
  return jsonb_build_object('at', now_ms, 'late', false, 'done', held = cardinality(keys));
end`,
};
