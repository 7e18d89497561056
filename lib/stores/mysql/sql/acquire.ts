import { STEPS_PER_SECOND } from '../../../core/fencing-token.js';
import {
  ID,
  JSON_TEXT,
  KEY,
  keyAt,
  MODE,
  OWNER,
  type Procedure,
  SCHEDULE,
  STATE,
  TEXT,
  together,
} from './procedure.js';

/** The largest number that JavaScript represents exactly. */
const LARGEST_TOKEN = Number.MAX_SAFE_INTEGER;

/** The arrival of a caller that is no waiter: after all waiters. */
const NEVER_CAME = Number.MAX_SAFE_INTEGER;

/** The smallest token for a time in microseconds since 1970. A decimal number, because `bigint` would overflow. */
export function tokenAtSql(at: string): string {
  return `floor(${at} * ${STEPS_PER_SECOND / 1_000_000})`;
}

const ENDED = `'{"error":"this lock was stored before, and has ended"}'`;

/**
 * Stores a lease under all its keys or under none, and gives it a fencing token. With `ordered` it refuses a lease
 * while an earlier caller waits, and adds a refused waiter to the queue. The rows of the keys are locked already.
 *
 * a_request  JSON: `id`, `keys`, `owner`, `mode`;
 *            `since`: the time of the request by the owner's clock, in milliseconds since 1970;
 *            `ttl` in milliseconds;
 *            `deadline`: the time on this server's clock, in milliseconds since 1970, after which no caller waits for the
 *            answer (S16);
 *            `ordered`;
 *            for permits `permits`; `wish`: the slots with which the search begins, one for each key; `exactly`: only these
 *            slots;
 *            for a tick `schedule` and `tick` (milliseconds since 1970);
 *            for several stores `proposal`: the smallest token that the lease may get;
 *            for a waiter `waiter`, `waiter_owner`, `channel`; `waited`: milliseconds that it has waited; `next`: milliseconds
 *            that the next waiter of the same process has waited, if that waiter takes over the position in the queue
 * o_answer   JSON, one of
 *            { token, slots, permits, waits, first }
 *                                        stored. Only with permits: slots, and permits (the largest number that any lease has
 *                                        asked for, if this lease has asked for another number). waits: true if there are
 *                                        waiters. first: true if the next waiter of the process is the first waiter
 *            { holders, several, permits }
 *                                        refused because of the first one of { id, owner, remaining, since, token, mode, slot },
 *                                        or because of the waiter whose turn it is: { id, owner, remaining }. With several, the
 *                                        other ones have the mode of the lease. permits: the largest number that any lease has
 *                                        asked for
 *            { ran }                     the tick or a later tick has run: { id, owner, remaining }
 *            { late }                    the milliseconds by which the deadline had passed
 *            { error }
 *
 * A repeated request for the same lease gets the same grant. After the lease has ended, a duplicate of the request is
 * refused: because of the id of the lease, while the row still contains the id, and later because of the deadline.
 */
export const ACQUIRE: Procedure = {
  name: 'acquire',
  parameters: `a_request ${JSON_TEXT}, a_at bigint, out o_answer ${TEXT}`,
  body: `
  declare v_id ${ID} default json_value(a_request, '$.id');
  declare v_keys ${TEXT} default json_extract(a_request, '$.keys');
  declare v_count int default json_length(v_keys);
  declare v_mode ${MODE} default json_value(a_request, '$.mode');
  declare v_owner ${OWNER} default json_unquote(json_extract(a_request, '$.owner'));
  declare v_since bigint default json_value(a_request, '$.since');
  declare v_until bigint default a_at + round(1000 * json_value(a_request, '$.ttl'));
  declare v_deadline bigint default round(1000 * json_value(a_request, '$.deadline'));
  declare v_ordered tinyint default json_value(a_request, '$.ordered');
  declare v_permits int default json_value(a_request, '$.permits');
  declare v_wish ${TEXT} default json_extract(a_request, '$.wish');
  declare v_exactly tinyint default coalesce(json_value(a_request, '$.exactly'), 0);
  declare v_schedule ${SCHEDULE} default json_unquote(json_extract(a_request, '$.schedule'));
  declare v_tick bigint default json_value(a_request, '$.tick');
  declare v_waiter ${ID} default json_value(a_request, '$.waiter');
  declare v_waiter_owner ${OWNER} default json_unquote(json_extract(a_request, '$.waiter_owner'));
  declare v_channel ${ID} default json_value(a_request, '$.channel');
  declare v_came bigint default coalesce(a_at - round(1000 * json_value(a_request, '$.waited')), ${NEVER_CAME});
  declare v_next bigint default round(1000 * json_value(a_request, '$.next'));
  declare v_i, v_mine int default 0;
  declare v_token bigint default 0;
  declare v_floor bigint default ${tokenAtSql('a_at')};
  declare v_forgotten bigint;
  declare v_joins tinyint default 1;
  declare v_is_new, v_has_waiters, v_is_first, v_is_misplaced, v_is_live tinyint default 0;
  declare v_key ${KEY};
  declare l_mode, l_mark_mode ${MODE};
  declare l_state ${STATE};
  declare l_id, l_ended, l_mark ${ID};
  declare l_mark_owner, t_owner ${OWNER};
  declare l_token, l_ends, l_least, l_mark_came, l_mark_ends, h_ends, h_token, t_tick, t_ends bigint;
  declare l_waited, h_kept tinyint;
  declare h_slot, v_slot, v_wished, v_most int;
  declare v_given ${TEXT} default '';
  declare v_refusal, v_ahead ${TEXT};
  declare v_first ${ID};

  if v_schedule is not null then
    set v_key = ${keyAt('v_keys', '0')};
    select tick, owner, ends into t_tick, t_owner, t_ends
      from {ticks} where k = v_key and schedule = v_schedule and ends > a_at and tick >= v_tick;
    if t_tick is not null then
      set o_answer = concat('{"ran":', json_object('id', concat(t_tick, ':', t_owner), 'owner', t_owner,
        'remaining', (t_ends - a_at) / 1000), '}');
      leave proc;
    end if;
  end if;

  if v_exactly then
    while v_i < v_count do
      set v_key = ${keyAt('v_keys', 'v_i')}, v_wished = json_extract(v_wish, concat('$[', v_i, ']')), v_i = v_i + 1;
      set v_is_misplaced = v_is_misplaced or exists (
        select 1 from {holders} where k = v_key and id = v_id and kept = 0 and ends > a_at and slot <> v_wished);
    end while;
    while v_is_misplaced and v_i > 0 do
      set v_i = v_i - 1, v_key = ${keyAt('v_keys', 'v_i')};
      if exists (select 1 from {holders} where k = v_key and id = v_id and kept = 0 and ends > a_at) then
        call {give_up}(v_key, v_id, a_at);
      end if;
    end while;
  end if;

  set v_i = 0;
  each_key: while v_i < v_count do
    set v_key = ${keyAt('v_keys', 'v_i')}, v_wished = coalesce(json_extract(v_wish, concat('$[', v_i, ']')), 0);
    set v_i = v_i + 1, v_slot = null;
    select mode, state, id, token, ends, ended, least, waited, mark, mark_mode, mark_owner, mark_came, mark_ends
      into l_mode, l_state, l_id, l_token, l_ends, l_ended, l_least, l_waited, l_mark, l_mark_mode, l_mark_owner, l_mark_came, l_mark_ends
      from {locks} where k = v_key;
    set v_is_live = l_state <> 'free' and l_ends > a_at;
    if l_mode = 'exclusive' then
      if l_id = v_id then
        if not v_is_live or l_state <> 'held' then
          set o_answer = ${ENDED};
          leave proc;
        end if;
        set v_mine = v_mine + 1, v_token = l_token;
        iterate each_key;
      end if;
    else
      set h_ends = null;
      select ends, kept, token, slot into h_ends, h_kept, h_token, h_slot from {holders} where k = v_key and id = v_id;
      if h_ends is not null then
        if not v_is_live or h_kept or h_ends <= a_at then
          set o_answer = ${ENDED};
          leave proc;
        end if;
        set v_mine = v_mine + 1, v_token = h_token, v_given = concat_ws(',', nullif(v_given, ''), h_slot);
        iterate each_key;
      end if;
    end if;
    if l_ended = v_id then
      set o_answer = ${ENDED};
      leave proc;
    end if;

    if v_mode = 'permits' then
      call {free_slot}(v_key, v_permits, v_wished, v_exactly, v_is_live and l_mode = 'permits', a_at, v_slot);
      set v_given = concat_ws(',', nullif(v_given, ''), coalesce(v_slot, 'null'));
    end if;
    if v_is_live and not (${together('l_mode', 'v_mode')} and (v_mode = 'shared' or v_slot is not null)) then
      call {holders_in_the_way}(v_key, if(l_mode = v_mode, v_permits, null), if(v_exactly, v_wished, null), a_at, v_refusal);
    elseif v_mode <> 'exclusive' and l_mark_ends > a_at and not ${together('l_mark_mode', 'v_mode')} and v_came >= l_mark_came then
      set v_refusal = concat('{"holders":[', json_object('id', l_mark, 'owner', l_mark_owner,
        'remaining', (l_mark_ends - a_at) / 1000), ']}');
    end if;
    if v_refusal is not null then
      leave each_key;
    end if;

    set v_has_waiters = v_has_waiters or l_waited;
    if v_is_live and v_mode = 'shared' then
      -- A reader that joins other readers gets their token (S21).
      set v_token = greatest(v_token, l_token);
    else
      set v_joins = 0, v_is_new = v_is_new or l_token = 0;
      if v_mode = 'permits' and l_mode = 'permits' then
        set v_token = greatest(v_token, l_least + 1,
          coalesce((select token + 1 from {slots} where k = v_key and slot = v_slot), 0));
      else
        set v_token = greatest(v_token, l_token + 1);
      end if;
    end if;
  end while;

  if v_mine = v_count then
    set o_answer = concat('{"token":', v_token, if(v_mode = 'permits', concat(',"slots":[', v_given, ']'), ''), '}');
    leave proc;
  elseif v_mine > 0 then
    set o_answer = '{"error":"this lock was stored before, and some of its keys are gone"}';
    leave proc;
  elseif v_refusal is null and a_at > v_deadline then
    set o_answer = concat('{"late":', (a_at - v_deadline) / 1000, '}');
    leave proc;
  end if;

  if v_refusal is null and v_ordered and v_has_waiters then
    set v_i = 0;
    each_queue: while v_i < v_count do
      set v_key = ${keyAt('v_keys', 'v_i')}, v_i = v_i + 1;
      if exists (select 1 from {locks} where k = v_key and waited = 1) then
        call {ahead}(v_key, v_mode, v_permits, v_waiter, v_came, a_at, v_ahead);
        if v_ahead is not null then
          set v_refusal = concat('{"holders":[', v_ahead, ']}');
          leave each_queue;
        end if;
      end if;
    end while;
  end if;
  if v_refusal is not null then
    if v_ordered and v_waiter is not null and a_at <= v_deadline then
      call {stand}(v_key, v_keys, v_waiter, v_channel, v_mode, v_waiter_owner, v_came, a_at);
    end if;
    set o_answer = v_refusal;
    leave proc;
  end if;

  if v_is_new then
    -- The last token of the key may have been removed with its row.
    select forgotten into v_forgotten from {state};
    set v_floor = greatest(v_floor, v_forgotten + 1);
  end if;
  if not v_joins then
    set v_token = greatest(v_token, v_floor, coalesce(cast(json_value(a_request, '$.proposal') as signed), 0));
  end if;
  if v_token > ${LARGEST_TOKEN} then
    set o_answer = '{"error":"fencing token out of range: the token or the clock of this server is wrong"}';
    leave proc;
  end if;
  set v_i = 0;
  while v_i < v_count do
    set v_key = ${keyAt('v_keys', 'v_i')};
    if v_mode = 'exclusive' then
      update {locks} set mode = 'exclusive', state = 'held', id = v_id, owner = v_owner, since = v_since, token = v_token,
        ends = v_until where k = v_key;
    else
      set v_slot = if(v_mode = 'permits', json_extract(concat('[', v_given, ']'), concat('$[', v_i, ']')), null);
      call {join_holders}(v_key, v_id, v_mode, v_permits, v_owner, v_since, v_token, v_slot, v_until, a_at);
    end if;
    set v_i = v_i + 1;
  end while;

  if v_ordered and (v_has_waiters or v_next is not null) then
    set v_i = 0;
    while v_waiter is not null and v_i < v_count do
      set v_key = ${keyAt('v_keys', 'v_i')}, v_i = v_i + 1;
      delete from {waiters} where k = v_key and waiter = v_waiter;
      update {locks} set turn = null where k = v_key and turn = v_waiter;
      if v_i = 1 and v_next is not null then
        insert into {waiters} (k, waiter, process, mode, owner, came, seen)
          values (v_key, v_waiter, v_channel, v_mode, v_waiter_owner, a_at - v_next, a_at);
        update {locks} set waited = 1 where k = v_key and waited = 0;
      end if;
    end while;
    set v_i = 0, v_has_waiters = 0;
    while v_i < v_count do
      set v_key = ${keyAt('v_keys', 'v_i')}, v_i = v_i + 1;
      set v_first = (select waiter from {waiters} where k = v_key order by came, waiter limit 1);
      if v_first is not null then
        set v_has_waiters = 1, v_is_first = v_is_first or (v_i = 1 and v_next is not null and v_first <=> v_waiter);
      end if;
      -- If there is room for one more holder, tell the first waiter.
      call {pass_on}(v_key, a_at);
    end while;
  end if;
  set o_answer = concat('{"token":', v_token);
  if v_mode = 'permits' then
    set v_i = 0, v_most = 0;
    while v_i < v_count do
      set v_key = ${keyAt('v_keys', 'v_i')}, v_i = v_i + 1;
      set v_most = greatest(v_most, (select permits from {locks} where k = v_key));
    end while;
    set o_answer = concat(o_answer, ',"slots":[', v_given, if(v_most <> v_permits, concat('],"permits":', v_most), ']'));
  end if;
  set o_answer = concat(o_answer, if(v_has_waiters, ',"waits":true', ''), if(v_is_first, ',"first":true', ''), '}');`,
};

/**
 * Finds the next free slot from the wished one on; with `a_exactly`, only the wished one itself. Sets `o_slot` to null if
 * there is none.
 *
 * a_taken  1 while permits are held, so that slots can be taken
 */
const FREE_SLOT: Procedure = {
  name: 'free_slot',
  parameters: `a_key ${KEY}, a_permits int, a_wished int, a_exactly tinyint, a_taken tinyint, a_at bigint, out o_slot int`,
  body: `
  if not a_taken then
    set o_slot = a_wished;
    leave proc;
  end if;
  if (a_exactly or a_wished < a_permits)
      and not exists (select 1 from {holders} where k = a_key and slot = a_wished and ends > a_at) then
    set o_slot = a_wished;
  elseif a_exactly then
    set o_slot = null;
  else
    -- A free slot is the first one, or follows a taken one.
    set o_slot = (
      select candidate from (
        select 0 as candidate
        union select slot + 1 from {holders} where k = a_key and ends > a_at and slot is not null
      ) candidates
      where candidate < a_permits
        and not exists (select 1 from {holders} h where h.k = a_key and h.slot = candidate and h.ends > a_at)
      order by candidate < a_wished, candidate limit 1);
  end if;`,
};

/** The columns of a holder as JSON. */
function holderJson(alias: string, mode: string, slot: string): string {
  return (
    `json_object('id', ${alias}.id, 'owner', ${alias}.owner, 'since', ${alias}.since, 'token', ${alias}.token, ` +
    `'mode', ${mode}, ${slot}'remaining', (${alias}.ends - a_at) / 1000)`
  );
}

/**
 * Finds the holders that exclude a lease. Exclusive lock: its holder. Shared lock: the reader whose lock expires last.
 * Permits: up to ten holders whose release makes room, first the holder whose lock expires first.
 *
 * a_permits  the requested number of permits; null if the lease has another mode than the holders
 * a_slot     the only slot that the lease may get; null if it may get any slot
 */
const HOLDERS_IN_THE_WAY: Procedure = {
  name: 'holders_in_the_way',
  parameters: `a_key ${KEY}, a_permits int, a_slot int, a_at bigint, out o_refusal ${TEXT}`,
  body: `
  declare l_mode ${MODE};
  declare l_permits int;
  declare v_most int default if(a_permits is null, 1, 10);
  select mode, permits into l_mode, l_permits from {locks} where k = a_key;
  if l_mode = 'exclusive' then
    set o_refusal = (select concat('{"holders":[', ${holderJson('l', 'l.mode', '')}, ']}') from {locks} l where l.k = a_key);
  else
    set o_refusal = concat('{"several":true,"permits":', l_permits, ',"holders":[', (
      select group_concat(${holderJson('h', 'l_mode', `'slot', h.slot, `)} order by h.ends, h.slot separator ',')
      from (
        select * from {holders}
        where k = a_key and ends > a_at and (a_permits is null or slot < a_permits) and (a_slot is null or slot = a_slot)
        order by case when a_permits is null then -ends end, ends, slot limit v_most
      ) h), ']}');
  end if;
  -- Without a text the lease would be granted.
  set o_refusal = coalesce(o_refusal, '{"error":"the key is held, but no row names its holder: wait until it expires"}');`,
};

/** Adds a holder to a lock that admits several holders. */
const JOIN_HOLDERS: Procedure = {
  name: 'join_holders',
  parameters:
    `a_key ${KEY}, a_id ${ID}, a_mode ${MODE}, a_permits int, a_owner ${OWNER}, a_since bigint, a_token bigint, ` +
    'a_slot int, a_until bigint, a_at bigint',
  body: `
  declare l_mode ${MODE};
  declare l_token, l_least bigint;
  declare v_goes_on tinyint;
  select mode, token, state <> 'free' and ends > a_at into l_mode, l_token, v_goes_on from {locks} where k = a_key;
  -- The last token of the key may have been removed with its row. The tokens of all slots must be larger than that.
  if l_token = 0 then
    select forgotten into l_least from {state};
  else
    set l_least = l_token;
  end if;
  -- Expired readers stay until no reader is left, because there may be thousands of them.
  if not v_goes_on then
    delete from {holders} where k = a_key;
  elseif a_slot is not null then
    delete from {holders} where k = a_key and slot is not null and ends <= a_at;
  end if;
  insert into {holders} (k, id, owner, since, token, slot, ends)
    values (a_key, a_id, a_owner, a_since, a_token, a_slot, a_until);
  if a_slot is not null then
    insert into {slots} (k, slot, token) values (a_key, a_slot, a_token) on duplicate key update token = a_token;
  end if;
  update {locks} set
      permits = case when a_slot is null then 0 when l_mode = 'permits' then greatest(permits, a_permits) else a_permits end,
      least = if(a_slot is not null and l_mode <> 'permits', l_least, least),
      ends = if(v_goes_on, greatest(ends, a_until), a_until),
      token = greatest(l_token, a_token), mode = a_mode, state = 'held'
    where k = a_key;`,
};

export const ACQUIRE_PARTS: readonly Procedure[] = [FREE_SLOT, HOLDERS_IN_THE_WAY, JOIN_HOLDERS];
