import { STEPS_PER_SECOND } from '../../../core/fencing-token.js';
import type { EntryPoint } from './sql-function.js';

/**
 * Stores a lease under all its keys or under none, and gives it a fencing token. With `ordered` it refuses a lease
 * while an earlier caller waits, and adds a refused waiter to the queue.
 *
 * request  `id`, `keys`, `owner`, `mode`;
 *          `since`: the time of the request by the owner's clock, in milliseconds since 1970;
 *          `ttl` in milliseconds;
 *          `deadline`: the time on this server's clock, in milliseconds since 1970, after which no caller waits for the answer (S16);
 *          `ordered`;
 *          for permits `permits`; `wish`: the slots with which the search begins, one for each key; `exactly`: only these slots;
 *          for a tick `schedule` and `tick` (milliseconds since 1970);
 *          for several stores `proposal`: the smallest token that the lease may get;
 *          for a waiter `waiter`, `waiter_owner`, `channel`; `waited`: milliseconds that it has waited; `next`: milliseconds that
 *          the next waiter of the same process has waited, if that waiter takes over the position in the queue
 * Returns  one of
 *          { token, slots, permits, waits, first }
 *                                             stored. Only with permits: slots, and permits (the largest number that any lease
 *                                             has asked for, if this lease has asked for another number). waits: true if there
 *                                             are waiters. first: true if the next waiter of the process is the first waiter
 *          { holder, others, permits }        refused because of { id, owner, remaining, since, token, mode, slot }, or because of
 *                                             the waiter whose turn it is: { id, owner, remaining }. permits: the largest number
 *                                             that any lease has asked for
 *          { ran }                            the tick or a later tick has run: { id, owner, remaining }
 *          { late }                           the milliseconds by which the deadline had passed
 *          { error }
 *
 * A repeated request for the same lease gets the same grant. After the lease has ended, a duplicate of the request is
 * refused: because of the id of the lease, while the row still contains the id, and later because of the deadline.
 */
export const ACQUIRE: EntryPoint = {
  signature: 'acquire_lease(request jsonb, at timestamptz)',
  returns: 'jsonb',
  body: `
declare
  r record;
  l record;
  h record;
  k text;
  i integer;
  came timestamptz;
  now_ms constant double precision := extract(epoch from at) * 1000;
  until timestamptz;
  is_live boolean;
  mine integer := 0;
  got bigint := 0;
  least bigint := floor(extract(epoch from at) * ${STEPS_PER_SECOND});
  joins boolean := true;
  is_new boolean := false;
  has_waiters boolean := false;
  place integer;
  given integer[] := '{}';
  refusal jsonb;
  first text;
  is_first boolean := false;
begin
  select * into r from jsonb_to_record(request) as r(id text, keys text[], owner text, mode text, since bigint,
    ttl double precision, deadline double precision, ordered boolean, proposal bigint, permits integer, wish integer[], exactly boolean,
    schedule text, tick bigint, waiter text, waiter_owner text, channel text, waited double precision, next double precision);
  until := at + r.ttl * interval '1 ms';
  came := case when r.waiter is null then 'infinity' else at - r.waited * interval '1 ms' end;

  if r.schedule is not null then
    select t.* into h from ticks t
      where t.key = r.keys[1] and t.schedule = r.schedule and t.ends > at and t.tick >= r.tick;
    if found then
      return jsonb_build_object('ran', jsonb_build_object('id', h.tick || ':' || h.owner, 'owner', h.owner,
        'remaining', extract(epoch from h.ends - at) * 1000));
    end if;
  end if;

  if r.exactly then
    for h in select key from holders
      where key = any (r.keys) and id = r.id and not kept and ends > at
        and exists (select from holders o, unnest(r.keys, r.wish) as w(key, slot)
          where o.key = w.key and o.id = r.id and not o.kept and o.ends > at and o.slot <> w.slot)
    loop
      perform give_up(h.key, r.id, at);
    end loop;
  end if;

  for i in 1 .. cardinality(r.keys) loop
    k := r.keys[i];
    select * into l from locks where key = k;
    is_live := l.state <> 'free' and l.ends > at;
    place := null;
    if l.mode = 'exclusive' then
      if l.id = r.id then
        if not is_live or l.state <> 'held' then
          return jsonb_build_object('error', 'this lock was stored before, and has ended');
        end if;
        mine := mine + 1;
        got := l.token;
        continue;
      end if;
    else
      select * into h from holders where key = k and id = r.id;
      if found then
        if not is_live or h.kept or h.ends <= at then
          return jsonb_build_object('error', 'this lock was stored before, and has ended');
        end if;
        mine := mine + 1;
        got := h.token;
        given := given || h.slot;
        continue;
      end if;
    end if;
    if l.ended = r.id then
      return jsonb_build_object('error', 'this lock was stored before, and has ended');
    end if;

    if r.mode = 'permits' then
      place := free_slot(k, r.permits, coalesce(r.wish[i], 0), coalesce(r.exactly, false),
        is_live and l.mode = 'permits', at);
      given := given || place;
    end if;
    if is_live and not (together(l.mode, r.mode) and (r.mode = 'shared' or place is not null)) then
      refusal := holders_in_the_way(k, case when l.mode = r.mode then r.permits end,
        case when r.exactly then r.wish[i] end, at);
    elsif r.mode <> 'exclusive' and l.mark_ends > at and not together(l.mark_mode, r.mode)
        and came >= l.mark_came then
      refusal := jsonb_build_object('holder', jsonb_build_object('id', l.mark, 'owner', l.mark_owner,
        'remaining', extract(epoch from l.mark_ends - at) * 1000));
    end if;
    exit when refusal is not null;

    has_waiters := has_waiters or l.waited;
    if is_live and r.mode = 'shared' then
      -- A reader that joins other readers gets their token (S21).
      got := greatest(got, l.token);
    else
      joins := false;
      is_new := is_new or l.token = 0;
      if r.mode = 'permits' and l.mode = 'permits' then
        got := greatest(got, l.floor + 1,
          (select token + 1 from slots where slots.key = k and slots.slot = place));
      else
        got := greatest(got, l.token + 1);
      end if;
    end if;
  end loop;

  if mine = cardinality(r.keys) then
    return jsonb_build_object('token', got, 'slots', case when r.mode = 'permits' then given end);
  elsif mine > 0 then
    return jsonb_build_object('error', 'this lock was stored before, and some of its keys are gone');
  elsif refusal is null and now_ms > r.deadline then
    return jsonb_build_object('late', now_ms - r.deadline);
  end if;

  if refusal is null and r.ordered and has_waiters then
    foreach k in array r.keys loop
      continue when not exists (select from locks where key = k and waited);
      refusal := ahead(k, r.mode, r.permits, r.waiter, came, at);
      if refusal is not null then
        refusal := jsonb_build_object('holder', refusal);
        exit;
      end if;
    end loop;
  end if;
  if refusal is not null then
    if r.ordered and r.waiter is not null and now_ms <= r.deadline then
      perform stand(k, r.keys, r.waiter, r.channel, r.mode, r.waiter_owner, came, at);
    end if;
    return refusal;
  end if;

  if is_new then
    -- The last token of the key may have been removed with its row.
    select greatest(least, forgotten + 1) into least from sweeping;
  end if;
  if not joins then
    got := greatest(got, least, r.proposal);
  end if;
  if got > 9007199254740991 then
    return jsonb_build_object('error', 'fencing token out of range: the token or the clock of this server is wrong');
  end if;
  for i in 1 .. cardinality(r.keys) loop
    k := r.keys[i];
    if r.mode = 'exclusive' then
      update locks set mode = 'exclusive', state = 'held', id = r.id, owner = r.owner, since = r.since, token = got,
        ends = until where key = k returning mode into l;
    else
      perform join_holders(k, r.id, r.mode, r.permits, r.owner, r.since, got, given[i], until, at);
    end if;
  end loop;

  if r.ordered and (has_waiters or r.next is not null) then
    if r.waiter is not null then
      delete from waiters where key = any (r.keys) and waiter = r.waiter;
      update locks set turn = null where key = any (r.keys) and turn = r.waiter;
      if r.next is not null then
        insert into waiters
          values (r.keys[1], r.waiter, r.channel, r.mode, r.waiter_owner, at - r.next * interval '1 ms', at);
        update locks set waited = true where key = r.keys[1] and not waited;
      end if;
    end if;
    has_waiters := false;
    foreach k in array r.keys loop
      select waiter into first from waiters where key = k order by waiters.came, waiter limit 1;
      if found then
        has_waiters := true;
        is_first := is_first or (r.next is not null and k = r.keys[1] and first = r.waiter);
      end if;
      -- If there is room for one more holder, tell the first waiter.
      perform pass_on(k, at);
    end loop;
  end if;
  return jsonb_build_object('token', got, 'slots', case when r.mode = 'permits' then given end,
    'permits', case when r.mode = 'permits' then nullif((select max(permits) from locks where key = any (r.keys)), r.permits) end,
    'waits', has_waiters,
    'first', is_first);
end`,
};

/**
 * Finds the next free slot from `wished` on; with `exactly`, only `wished` itself. Returns null if there is none.
 *
 * are_taken  true while permits are held, so that slots can be taken
 */
const FREE_SLOT: EntryPoint = {
  signature:
    'free_slot(k text, n integer, wished integer, exactly boolean, are_taken boolean, at timestamptz)',
  returns: 'integer',
  body: `
begin
  if not are_taken then
    return wished;
  end if;
  if exactly then
    return case when not exists (select from holders where key = k and slot = wished and ends > at) then wished end;
  end if;
  return (
    select s from generate_series(0, n - 1) as s
    where not exists (select from holders where key = k and slot = s and ends > at)
    order by s < wished, s limit 1
  );
end`,
};

/**
 * Finds the holders that exclude a lease. Exclusive lock: its holder. Shared lock: the reader whose lock expires last.
 * Permits: up to ten holders whose release makes room, first the holder whose lock expires first.
 *
 * n     the requested number of permits; null if the lease has another mode than the holders
 * just  the only slot that the lease may get; null if it may get any slot
 */
const HOLDERS_IN_THE_WAY: EntryPoint = {
  signature: 'holders_in_the_way(k text, n integer, just integer, at timestamptz)',
  returns: 'jsonb',
  body: `
declare
  l record;
  named jsonb;
begin
  select * into l from locks where key = k;
  if l.mode = 'exclusive' then
    return jsonb_build_object('holder', jsonb_build_object('id', l.id, 'owner', l.owner, 'since', l.since,
      'token', l.token, 'mode', l.mode, 'remaining', extract(epoch from l.ends - at) * 1000));
  end if;
  select jsonb_agg(jsonb_build_object('id', h.id, 'owner', h.owner, 'since', h.since, 'token', h.token, 'mode', l.mode,
      'slot', h.slot, 'remaining', extract(epoch from h.ends - at) * 1000) order by h.ends, h.slot) into named
  from (
    select * from holders where key = k and ends > at and (n is null or slot < n) and (just is null or slot = just)
    order by case when n is null then ends end desc, ends, slot limit case when n is null then 1 else 10 end
  ) as h;
  return jsonb_build_object('holder', named -> 0, 'others', named - 0, 'permits', nullif(l.permits, 0));
end`,
};

/** Adds a holder to a lock that admits several holders. */
const JOIN_HOLDERS: EntryPoint = {
  signature:
    'join_holders(k text, lease text, wanted text, n integer, by text, since bigint, got bigint, place integer, ' +
    'until timestamptz, at timestamptz)',
  returns: 'void',
  body: `
declare
  l record;
  goes_on boolean;
begin
  select * into l from locks where key = k;
  goes_on := l.state <> 'free' and l.ends > at;
  -- Expired readers stay until no reader is left, because there may be thousands of them.
  delete from holders where key = k and (not goes_on or (slot is not null and ends <= at));
  insert into holders values (k, lease, by, since, got, place, false, until);
  if place is not null then
    insert into slots values (k, place, got) on conflict (key, slot) do update set token = excluded.token;
  end if;
  update locks set mode = wanted, state = 'held', token = greatest(l.token, got),
      ends = case when goes_on then greatest(l.ends, until) else until end,
      permits = case when place is null then 0 when l.mode = 'permits' then greatest(l.permits, n) else n end,
      -- The last token of the key may have been removed with its row. The tokens of all slots must be larger than that.
      floor = case when place is null or l.mode = 'permits' then l.floor
        when l.token = 0 then coalesce((select forgotten from sweeping), 0) else l.token end
    where key = k;
end`,
};

export const ACQUIRE_PARTS: readonly EntryPoint[] = [FREE_SLOT, HOLDERS_IN_THE_WAY, JOIN_HOLDERS];
