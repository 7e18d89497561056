import { MARK_MS, STANDBY_MS } from '../../../core/store-times.js';
import { BEGIN, ID, inMicros, KEY, keyAt, MODE, NOW, OWNER, type Procedure, TEXT } from './procedure.js';

/**
 * Removes a waiter that has given up: it leaves the queues of its keys. Begins the turn of the next waiter if the key
 * is free.
 *
 * a_keys  a JSON array, sorted
 */
const LEAVE: Procedure = {
  name: 'leave',
  parameters: `a_keys ${TEXT}, a_waiter ${ID}`,
  body: `${BEGIN}
  call {lock_rows}(a_keys);
  call {quit}(a_keys, null, a_waiter, ${NOW});
  commit;`,
};

/**
 * Sets the mark of a waiter: later callers in other modes are refused if their mode admits several holders. The mark of
 * an earlier waiter stays (S22).
 *
 * Of several keys, only the first held key gets the mark, because an attempt finds this key held. The other marks of the
 * waiter are renewed. A mark on a free key would shut out its readers although they are not in the way of the waiter.
 *
 * a_keys   a JSON array, sorted; their rows are locked in this order
 * a_order  a JSON array of the same keys in the order of the lock
 * Selects  0 if the first held key has the mark of an earlier waiter, otherwise 1
 */
const HOLD_BACK: Procedure = {
  name: 'hold_back',
  parameters: `a_keys ${TEXT}, a_order ${TEXT}, a_waiter ${ID}, a_mode ${MODE}, a_owner ${OWNER}, a_waited bigint`,
  body: `
  declare v_at, v_came, v_mark_came, v_mark_ends bigint;
  declare v_mark ${ID};
  declare v_key ${KEY};
  declare v_i int default 0;
  declare v_count int default json_length(a_order);
  declare v_is_held, v_is_first, v_is_found tinyint default 0;
  declare v_is_marked tinyint default 1;
  declare v_marked int;
${BEGIN}
  set v_at = ${NOW}, v_came = v_at - a_waited, v_key = ${keyAt('a_order', '0')};
  select count(*) into v_marked from {locks}
    where k = v_key and mark_ends > v_at and mark <> a_waiter and mark_came <= v_came;
  if v_count = 1 and v_marked = 1 then
    -- Locks no row while the mark of an earlier waiter is set: such calls are frequent, and would delay acquisitions and
    -- releases.
    set v_is_marked = 0, v_count = 0;
  else
    call {lock_rows}(a_keys);
  end if;
  set v_at = ${NOW}, v_came = v_at - a_waited;
  while v_i < v_count do
    set v_key = ${keyAt('a_order', 'v_i')}, v_i = v_i + 1, v_is_held = null;
    select state <> 'free' and ends > v_at, mark, mark_came, mark_ends into v_is_held, v_mark, v_mark_came, v_mark_ends
      from {locks} where k = v_key;
    set v_is_first = not v_is_found and v_is_held is not null and (v_is_held or v_count = 1);
    set v_is_found = v_is_found or v_is_first;
    if v_is_held is not null then
      if v_mark_ends > v_at and v_mark = a_waiter
          or v_is_first and (v_mark_ends is null or v_mark_ends <= v_at or v_mark_came > v_came) then
        update {locks} set mark = a_waiter, mark_mode = a_mode, mark_owner = a_owner, mark_came = v_came,
          mark_ends = v_at + ${inMicros(MARK_MS)} where k = v_key;
      elseif v_is_first then
        set v_is_marked = 0;
      end if;
    end if;
  end while;
  commit;
  select v_is_marked as answer;`,
};

/** Removes the marks of a waiter that `hold_back` has set. */
const LET_PASS: Procedure = {
  name: 'let_pass',
  parameters: `a_keys ${TEXT}, a_waiter ${ID}`,
  body: `
  declare v_key ${KEY};
  declare v_i int default 0;
  declare v_count int default json_length(a_keys);
${BEGIN}
  call {lock_rows}(a_keys);
  while v_i < v_count do
    set v_key = ${keyAt('a_keys', 'v_i')}, v_i = v_i + 1;
    update {locks} set mark_ends = null where k = v_key and mark = a_waiter;
  end while;
  commit;`,
};

/**
 * Waits for messages to the waiters of a process: looks for them again and again, and answers as soon as there are
 * any. A message stays in the row of its waiter, so none is lost while nobody asks.
 *
 * a_known  the messages that the process has received, as `waiter@time` with commas between them. The times of messages
 *          are not in the order of their commits, so the last time would not be enough
 * a_wait   seconds until the answer, if there are no messages
 * a_step   seconds between two looks
 * Selects  JSON, an array of { waiter, told, after, turn, released }. A message that is read late, on a busy machine, gives the
 *          first waiter its time before the waiters behind it, too
 */
const LISTEN: Procedure = {
  name: 'listen',
  parameters: `a_process ${ID}, a_known ${TEXT}, a_wait double, a_step double`,
  body: `
  declare v_begun bigint default ${NOW};
  declare v_waited bigint default 0;
  declare v_count int;
  declare v_told ${TEXT};
  set transaction isolation level read committed;
  wait: loop
    select count(*) into v_count from (
      select 1 from {waiters} where process = a_process and told is not null limit 1) told;
    if v_count > 0 then
      select group_concat(json_object('waiter', waiter, 'told', told,
          'after', greatest(may - ${NOW}, least(may - told, ${inMicros(STANDBY_MS)})) / 1000,
          'turn', may = told, 'released', released)) into v_told
        from {waiters}
        where process = a_process and told is not null and not find_in_set(concat(waiter, '@', told), a_known);
    end if;
    -- On a busy server the looks take longer than the pauses. A clock that is set back ends the wait, too.
    set v_waited = ${NOW} - v_begun;
    if v_told is not null or v_waited < 0 or v_waited >= 1000000 * a_wait then
      leave wait;
    end if;
    do sleep(a_step);
  end loop;
  select concat('[', coalesce(v_told, ''), ']') as answer;`,
};

export const WAITING_PROCEDURES: readonly Procedure[] = [LEAVE, HOLD_BACK, LET_PASS, LISTEN];
