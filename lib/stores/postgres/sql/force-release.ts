import type { EntryPoint } from './sql-function.js';

/**
 * Releases a key by force for the holders with these ids, and tells the first waiter. Returns the ids for which the key
 * was held.
 */
export const FORCE_RELEASE: EntryPoint = {
  signature: 'force_release(k text, ids text[])',
  returns: 'text[]',
  body: `
declare
  at timestamptz;
  gone text[];
begin
  perform 1 from locks where key = k for update;
  at := clock_timestamp();
  with exclusive as (
    update locks set state = 'free', ended = id, ends = at
    where key = k and mode = 'exclusive' and state <> 'free' and ends > at and id = any (ids) returning id
  ), others as (
    delete from holders h using locks l
    where l.key = k and l.mode <> 'exclusive' and h.key = k and h.ends > at and h.id = any (ids) returning h.id
  )
  select array(select id from exclusive union all select id from others) into gone;
  if cardinality(gone) > 0 then
    if exists (select from locks where key = k and mode <> 'exclusive') then
      perform settle(k, gone[1], at);
    end if;
    perform freed(k, 0, null, false, at);
  end if;
  return gone;
end`,
};
