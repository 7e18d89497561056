import type { EntryPoint } from './sql-function.js';

/**
 * Frees the keys of a lease, and no keys of other leases (S7). Does so even if the lease has expired, unless another
 * lease has the keys now. With `keep` the keys stay held for some time (`minHold`). Tells the first waiter when it may
 * try.
 *
 * If the lease has run a tick of a schedule, then stores that tick, unless a later tick is stored. Does so even when
 * another lease now holds the keys.
 *
 * request  `id`, `keys`; `pause`: milliseconds after which the first waiter may try; `keep`: milliseconds that the keys are
 *          kept, 0 to free them; for a tick `schedule`, `tick` (milliseconds since 1970), `owner` and `life` (milliseconds)
 * Returns  true if there are waiters
 */
export const RELEASE: EntryPoint = {
  signature: 'release_lease(request jsonb, at timestamptz)',
  returns: 'boolean',
  body: `
declare
  r record;
  k text;
  l record;
  h record;
  others boolean := false;
  kept_until timestamptz;
begin
  select * into r from jsonb_to_record(request) as r(id text, keys text[], pause double precision,
    keep double precision, schedule text, tick bigint, owner text, life double precision);
  if r.keep > 0 then
    kept_until := at + r.keep * interval '1 ms';
  end if;
  foreach k in array r.keys loop
    update locks set state = case when kept_until is null then 'free' else 'kept' end, ended = r.id,
        ends = coalesce(kept_until, at)
      where key = k and mode = 'exclusive' and id = r.id and state = 'held'
      returning waited into l;
    if not found then
      select mode, waited into l from locks where key = k and mode <> 'exclusive';
      if found then
        if kept_until is null then
          delete from holders where key = k and id = r.id and not kept returning ends into h;
        else
          update holders set kept = true, ends = kept_until where key = k and id = r.id and not kept returning ends into h;
        end if;
        if found then
          perform settle(k, r.id, at);
        else
          continue;
        end if;
      else
        continue;
      end if;
    end if;
    if l.waited then
      others := true;
      perform freed(k, greatest(r.pause, r.keep), r.id, kept_until is not null, at);
    end if;
  end loop;
  if r.schedule is not null then
    insert into ticks as t (key, schedule, tick, owner, ends)
      values (r.keys[1], r.schedule, r.tick, r.owner, at + r.life * interval '1 ms')
      on conflict (key, schedule) do update set tick = excluded.tick, owner = excluded.owner, ends = excluded.ends
        where t.ends <= at or t.tick <= excluded.tick;
  end if;
  return others;
end`,
};

/**
 * Updates the row of a key with several holders, after one of them has ended or now expires at another time. The row
 * gets the expiry of the holder that ends last; without a holder the row becomes free.
 *
 * released  the id of the lease that was released; null if a later request may store this lease again
 */
export const SETTLE: EntryPoint = {
  signature: 'settle(k text, released text, at timestamptz)',
  returns: 'void',
  body: `
declare
  last timestamptz;
begin
  select max(ends) into last from holders where key = k and ends > at;
  update locks set state = case when last is null then 'free' else 'held' end, ends = coalesce(last, at), ended = released
    where key = k;
end`,
};

/** Frees a key of a lease. A later request may store the same lease again, with another slot. */
export const GIVE_UP: EntryPoint = {
  signature: 'give_up(k text, lease text, at timestamptz)',
  returns: 'void',
  body: `
begin
  delete from holders where key = k and id = lease and not kept;
  perform settle(k, null, at);
  perform freed(k, 0, null, false, at);
end`,
};
