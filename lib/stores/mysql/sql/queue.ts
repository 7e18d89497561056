import { SAME_CALL_MS, STANDBY_MS, TURN_MS, WAITER_LIFE_MS } from '../../../core/store-times.js';
import { ID, inMicros, KEY, keyAt, MODE, OWNER, type Procedure, TEXT, together } from './procedure.js';

const FIRST = (column: string): string =>
  `(select ${column} from {waiters} where k = a_key order by came, waiter limit 1)`;

/** Sets `o_yes` to 1 if a key has room for one more holder of a mode; waiters do not count. */
const ADMITS: Procedure = {
  name: 'admits',
  parameters: `a_key ${KEY}, a_mode ${MODE}, a_at bigint, out o_yes tinyint`,
  body: `
  declare v_mode ${MODE};
  declare v_permits int;
  select mode, permits into v_mode, v_permits from {locks} where k = a_key and state <> 'free' and ends > a_at;
  set o_yes = case
    when v_mode is null then 1
    when not ${together('v_mode', 'a_mode')} then 0
    when v_mode = 'shared' then 1
    else (select count(*) < v_permits from {holders} where k = a_key and ends > a_at and slot < v_permits)
  end;`,
};

/**
 * Begins the turn of the first waiter, and tells it when it may try. If it is a reader, all readers directly behind it
 * get the same message. Otherwise the two waiters behind it get a later time, in case it does not react.
 *
 * a_after     microseconds until the turn begins
 * a_released  the lease whose end begins the turn; null when there is none
 */
const WAKE: Procedure = {
  name: 'wake',
  parameters: `a_key ${KEY}, a_after bigint, a_released ${ID}, a_at bigint`,
  body: `
  declare v_first, v_other ${ID};
  declare v_mode ${MODE};
  declare v_came bigint;
  delete from {waiters} where k = a_key and seen < a_at - ${inMicros(WAITER_LIFE_MS)};
  select waiter, mode into v_first, v_mode from {waiters} where k = a_key order by came, waiter limit 1;
  if v_first is null then
    update {locks} set waited = 0, turn = null where k = a_key;
  else
    update {locks} set turn = v_first, turn_ends = a_at + a_after + ${inMicros(TURN_MS)} where k = a_key;
    update {waiters} set told = a_at, may = a_at + a_after, released = a_released where k = a_key and waiter = v_first;
    if v_mode = 'shared' then
      select waiter, came into v_other, v_came from {waiters} where k = a_key and mode <> 'shared' order by came, waiter limit 1;
      update {waiters} set told = a_at, may = a_at + a_after, released = a_released
        where k = a_key and mode = 'shared' and (v_other is null or came < v_came or (came = v_came and waiter < v_other));
    else
      update {waiters} set told = a_at, may = a_at + a_after + ${inMicros(STANDBY_MS)}, released = a_released
        where k = a_key and waiter <> v_first order by came, waiter limit 2;
    end if;
  end if;`,
};

/**
 * Records that a holder has freed the key, or will free it in some time. Tells the first waiter if there is room for it.
 */
const FREED: Procedure = {
  name: 'freed',
  parameters: `a_key ${KEY}, a_after bigint, a_released ${ID}, a_will_end tinyint, a_at bigint`,
  body: `
  declare v_mode ${MODE} default ${FIRST('mode')};
  declare v_yes tinyint default a_will_end;
  if v_mode is null then
    update {locks} set waited = 0, turn = null where k = a_key and waited = 1;
  else
    if v_yes = 0 then
      call {admits}(a_key, v_mode, a_at, v_yes);
    end if;
    if v_yes then
      call {wake}(a_key, a_after, a_released, a_at);
    end if;
  end if;`,
};

/** Tells the first waiter that it may try, unless it has just been told. */
const PASS_ON: Procedure = {
  name: 'pass_on',
  parameters: `a_key ${KEY}, a_at bigint`,
  body: `
  declare v_first ${ID} default ${FIRST('waiter')};
  if v_first is null or not exists (select 1 from {locks} where k = a_key and turn = v_first and turn_ends > a_at) then
    call {freed}(a_key, 0, null, 0, a_at);
  end if;`,
};

/**
 * Removes a waiter from the queues of keys, except that of one key. Then tells the first waiter of each queue that it
 * may try, unless it has just been told.
 *
 * a_keys    a JSON array
 * a_except  the excepted key; null if there is none
 */
const QUIT: Procedure = {
  name: 'quit',
  parameters: `a_keys ${TEXT}, a_except ${KEY}, a_waiter ${ID}, a_at bigint`,
  body: `
  declare v_key ${KEY};
  declare v_i int default 0;
  declare v_count int default json_length(a_keys);
  while v_i < v_count do
    set v_key = ${keyAt('a_keys', 'v_i')};
    if a_except is null or v_key <> a_except then
      delete from {waiters} where k = v_key and waiter = a_waiter;
      if row_count() > 0 then
        update {locks} set turn = null where k = v_key and turn = a_waiter;
        call {pass_on}(v_key, a_at);
      end if;
    end if;
    set v_i = v_i + 1;
  end while;`,
};

/** Adds a waiter to the queue of the key that refused it, and to no other queue. */
const STAND: Procedure = {
  name: 'stand',
  parameters:
    `a_key ${KEY}, a_keys ${TEXT}, a_waiter ${ID}, a_process ${ID}, a_mode ${MODE}, a_owner ${OWNER}, ` +
    'a_came bigint, a_at bigint',
  body: `
  insert into {waiters} (k, waiter, process, mode, owner, came, seen)
    values (a_key, a_waiter, a_process, a_mode, a_owner, a_came, a_at)
    on duplicate key update came = a_came, seen = a_at, told = null, may = null, released = null;
  update {locks} set waited = 1 where k = a_key and waited = 0;
  if json_length(a_keys) > 1 then
    call {quit}(a_keys, a_key, a_waiter, a_at);
  end if;`,
};

/**
 * Finds the waiter that the caller must not overtake, on a key whose holders leave room for the caller: the first
 * waiter of the queue. Sets `o_ahead` to null if the caller may pass. Removes a first waiter that has not used its turn. Moves
 * the entry of an earlier call of the caller's process, which gave up, to the place of the caller.
 *
 * a_mode    the mode of the caller
 * a_permits the number of permits that the caller asks for; null in other modes
 * a_waiter  the caller's name as a waiter; null if the caller is no waiter
 * a_came    the caller's arrival; a number after all times if the caller is no waiter
 * o_ahead   `{ id, owner, remaining }`: the milliseconds left of the waiter's turn, or until the last holder's end while
 *           holders exclude the waiter from the key
 */
const AHEAD: Procedure = {
  name: 'ahead',
  parameters: `a_key ${KEY}, a_mode ${MODE}, a_permits int, a_waiter ${ID}, a_came bigint, a_at bigint, out o_ahead ${TEXT}`,
  body: `
  declare v_first, v_turn ${ID};
  declare v_mode ${MODE};
  declare v_owner ${OWNER};
  declare v_turn_ends, v_ends, v_left, v_in_front, v_apart bigint;
  declare v_yes tinyint;
  set o_ahead = null;
  search: loop
    set v_first = ${FIRST('waiter')};
    if v_first is null then
      update {locks} set waited = 0, turn = null where k = a_key;
      leave proc;
    end if;
    if v_first = a_waiter then
      if exists (select 1 from {waiters} where k = a_key and waiter = a_waiter
          and a_came <= came + ${inMicros(SAME_CALL_MS)}) then
        leave proc;
      end if;
      update {waiters} set came = a_came, seen = a_at, told = null, may = null, released = null
        where k = a_key and waiter = a_waiter;
      update {locks} set turn = null where k = a_key and turn = a_waiter;
      iterate search;
    end if;
    select mode, owner into v_mode, v_owner from {waiters} where k = a_key and waiter = v_first;
    select count(*), coalesce(sum(not ${together('mode', 'a_mode')}), 0) into v_in_front, v_apart
      from {waiters} where k = a_key and not (waiter <=> a_waiter) and came <= a_came;
    if v_in_front = 0 or (v_apart = 0 and (a_mode = 'shared' or v_in_front < a_permits - (
        select count(*) from {holders} where k = a_key and ends > a_at and slot < a_permits))) then
      leave proc;
    end if;
    select turn, turn_ends, ends into v_turn, v_turn_ends, v_ends from {locks} where k = a_key;
    call {admits}(a_key, v_mode, a_at, v_yes);
    if not v_yes then
      set v_left = v_ends - a_at;
    elseif not (v_turn <=> v_first) then
      -- The last holder has expired, so no release has told the waiter.
      call {wake}(a_key, 0, null, a_at);
      iterate search;
    elseif v_turn_ends <= a_at then
      delete from {waiters} where k = a_key and waiter = v_first;
      iterate search;
    else
      set v_left = v_turn_ends - a_at;
    end if;
    set o_ahead = json_object('id', v_first, 'owner', v_owner, 'remaining', v_left / 1000);
    leave proc;
  end loop;`,
};

/** The waiters for a key are in `waiters`, in the order of their arrival. */
export const QUEUE: readonly Procedure[] = [ADMITS, WAKE, FREED, PASS_ON, QUIT, STAND, AHEAD];
