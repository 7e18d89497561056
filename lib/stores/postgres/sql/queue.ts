import { SAME_CALL_MS, STANDBY_MS, TURN_MS, WAITER_LIFE_MS } from '../../../core/store-times.js';
import type { EntryPoint } from './sql-function.js';

/** True if holders in these two modes can hold a key at the same time. */
const TOGETHER: EntryPoint = {
  signature: 'together(one text, other text)',
  returns: 'boolean',
  body: `
begin
  return one = other and one <> 'exclusive';
end`,
};

/** True if a key has room for one more holder of a mode; waiters do not count. */
const ADMITS: EntryPoint = {
  signature: 'admits(k text, wanted text, at timestamptz)',
  returns: 'boolean',
  body: `
declare
  l record;
begin
  select mode, permits into l from locks where key = k and state <> 'free' and ends > at;
  if not found then
    return true;
  end if;
  if not together(l.mode, wanted) then
    return false;
  end if;
  return l.mode = 'shared'
    or (select count(*) < l.permits from holders where key = k and ends > at and slot < l.permits);
end`,
};

/**
 * Begins the turn of the first waiter, and sends it the milliseconds until it may try. If it is a reader, all readers
 * directly behind it get the same message. Otherwise the two waiters behind it get a later time, in case it does not
 * react.
 *
 * after     milliseconds until the turn begins
 * released  the lease whose end begins the turn; null when there is none
 */
const WAKE: EntryPoint = {
  signature: 'wake(k text, after double precision, released text, at timestamptz)',
  returns: 'void',
  body: `
declare
  w record;
  told integer := 0;
  with_readers boolean;
  later double precision := ceil(after);
begin
  delete from waiters where key = k and seen < at - interval '${WAITER_LIFE_MS} ms';
  for w in select * from waiters where key = k order by came, waiter loop
    if told = 0 then
      update locks set turn = w.waiter, turn_ends = at + (after + ${TURN_MS}) * interval '1 ms' where key = k;
      with_readers := w.mode = 'shared';
    elsif with_readers then
      exit when w.mode <> 'shared';
    else
      exit when told = 3;
      later := ceil(after) + ${STANDBY_MS};
    end if;
    perform pg_notify(w.channel, later || ' ' || coalesce(released, '-') || ' ' || w.waiter);
    told := told + 1;
  end loop;
  if told = 0 then
    update locks set waited = false, turn = null where key = k;
  end if;
end`,
};

/**
 * Records that a holder has freed the key, or will free it in some milliseconds. Tells the first waiter if there is
 * room for it.
 */
const FREED: EntryPoint = {
  signature: 'freed(k text, after double precision, released text, will_end boolean, at timestamptz)',
  returns: 'void',
  body: `
declare
  first text;
begin
  select mode into first from waiters where key = k order by came, waiter limit 1;
  if not found then
    update locks set waited = false, turn = null where key = k and waited;
  elsif will_end or admits(k, first, at) then
    perform wake(k, after, released, at);
  end if;
end`,
};

/** Tells the first waiter that it may try, unless it has just been told. */
const PASS_ON: EntryPoint = {
  signature: 'pass_on(k text, at timestamptz)',
  returns: 'void',
  body: `
declare
  first text;
begin
  select waiter into first from waiters where key = k order by came, waiter limit 1;
  if not found or not exists (select from locks where key = k and turn = first and turn_ends > at) then
    perform freed(k, 0, null, false, at);
  end if;
end`,
};

/** Adds a waiter to the queue of the key that refused it, and to no other queue. */
const STAND: EntryPoint = {
  signature:
    'stand(refused text, keys text[], who text, channel text, mode text, owner text, came timestamptz, at timestamptz)',
  returns: 'void',
  body: `
begin
  insert into waiters values (refused, who, channel, mode, owner, came, at)
    on conflict (key, waiter) do update set came = excluded.came, seen = excluded.seen;
  update locks set waited = true where key = refused and not waited;
  if cardinality(keys) > 1 then
    perform quit(who, array_remove(keys, refused), at);
  end if;
end`,
};

/**
 * Removes a waiter from the queues of keys. Then tells the first waiter of each queue that it may try, unless it has
 * just been told.
 */
const QUIT: EntryPoint = {
  signature: 'quit(who text, keys text[], at timestamptz)',
  returns: 'void',
  body: `
declare
  k text;
begin
  foreach k in array keys loop
    delete from waiters where key = k and waiter = who;
    continue when not found;
    update locks set turn = null where key = k and turn = who;
    perform pass_on(k, at);
  end loop;
end`,
};

/**
 * Finds the waiter that the caller must not overtake, on a key whose holders leave room for the caller: the first
 * waiter of the queue. Returns null if the caller may pass. Removes a first waiter that has not used its turn. Moves the entry
 * of an earlier call of the caller's process, which gave up, to the place of the caller.
 *
 * wanted   the mode of the caller
 * n        the number of permits that the caller asks for; null in other modes
 * who      the caller's name as a waiter; null if the caller is no waiter
 * came     the caller's arrival; infinity if the caller is no waiter
 * Returns  `{ id, owner, remaining }`: the milliseconds left of the waiter's turn, or until the last holder's end while holders
 *          exclude the waiter from the key
 */
const AHEAD: EntryPoint = {
  signature: 'ahead(k text, wanted text, n integer, who text, came timestamptz, at timestamptz)',
  returns: 'jsonb',
  body: `
declare
  head record;
  l record;
  in_front bigint;
  all_together boolean;
  left_over double precision;
  woken boolean := false;
begin
  loop
    select * into head from waiters w where w.key = k order by w.came, w.waiter limit 1;
    if not found then
      update locks set waited = false, turn = null where key = k;
      return null;
    end if;
    if head.waiter = who then
      exit when ahead.came <= head.came + interval '${SAME_CALL_MS} ms';
      update waiters set came = ahead.came, seen = ahead.at where key = k and waiter = who;
      update locks set turn = null where key = k and turn = who;
      continue;
    end if;
    select count(*), coalesce(bool_and(together(w.mode, wanted)), true) into in_front, all_together
      from waiters w where w.key = k and w.waiter is distinct from who and w.came <= ahead.came;
    if in_front = 0 or (all_together and (wanted = 'shared'
        or in_front < n - (select count(*) from holders h where h.key = k and h.ends > at and h.slot < n))) then
      return null;
    end if;
    select turn, turn_ends, ends into l from locks where key = k;
    if not admits(k, head.mode, at) then
      left_over := extract(epoch from l.ends - at) * 1000;
    elsif l.turn is distinct from head.waiter then
      -- The last holder has expired, so no release has told the waiter.
      perform wake(k, 0, null, at);
      continue;
    elsif l.turn_ends <= at then
      delete from waiters where key = k and waiter = head.waiter;
      continue;
    else
      left_over := extract(epoch from l.turn_ends - at) * 1000;
    end if;
    return jsonb_build_object('id', head.waiter, 'owner', head.owner, 'remaining', left_over);
  end loop;
  return null;
end`,
};

/** The waiters for a key are in `waiters`, in the order of their arrival. */
export const QUEUE: readonly EntryPoint[] = [TOGETHER, ADMITS, WAKE, FREED, PASS_ON, STAND, QUIT, AHEAD];
