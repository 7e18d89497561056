import { ID, JSON_TEXT, KEY, keyAt, MODE, type Procedure, SCHEDULE, TEXT } from './procedure.js';

/**
 * Frees the keys of a lease, and no keys of other leases (S7). Does so even if the lease has expired, unless another
 * lease has the keys now. With `keep` the keys stay held for some time (`minHold`). Tells the first waiter when it may
 * try.
 *
 * If the lease has run a tick of a schedule, then stores that tick, unless a later tick is stored. Does so even when
 * another lease now holds the keys.
 *
 * a_request  JSON: `id`, `keys`; `pause`: milliseconds after which the first waiter may try; `keep`: milliseconds that the
 *            keys are kept, 0 to free them; for a tick `schedule`, `tick` (milliseconds since 1970), `owner` and `life`
 *            (milliseconds)
 * o_waited   1 if there are waiters
 */
export const RELEASE: Procedure = {
  name: 'release',
  parameters: `a_request ${JSON_TEXT}, a_at bigint, out o_waited tinyint`,
  body: `
  declare v_id ${ID} default json_value(a_request, '$.id');
  declare v_keys ${TEXT} default json_extract(a_request, '$.keys');
  declare v_keep bigint default round(1000 * json_value(a_request, '$.keep'));
  declare v_pause bigint default round(1000 * json_value(a_request, '$.pause'));
  declare v_schedule ${SCHEDULE} default json_unquote(json_extract(a_request, '$.schedule'));
  declare v_kept_until bigint default if(v_keep > 0, a_at + v_keep, null);
  declare v_count int default json_length(v_keys);
  declare v_i int default 0;
  declare v_key ${KEY};
  declare v_mode ${MODE};
  declare v_is_waited, v_is_mine, v_is_later tinyint;
  declare v_tick, v_ends bigint;
  set o_waited = 0;
  while v_i < v_count do
    set v_key = ${keyAt('v_keys', 'v_i')}, v_i = v_i + 1, v_mode = null;
    select mode, waited into v_mode, v_is_waited from {locks} where k = v_key;
    if v_mode = 'exclusive' then
      update {locks} set state = if(v_kept_until is null, 'free', 'kept'), ended = v_id, ends = coalesce(v_kept_until, a_at)
        where k = v_key and id = v_id and state = 'held';
    elseif v_kept_until is null then
      delete from {holders} where k = v_key and id = v_id and kept = 0;
    else
      update {holders} set kept = 1, ends = v_kept_until where k = v_key and id = v_id and kept = 0;
    end if;
    set v_is_mine = row_count() > 0;
    if v_is_mine and v_mode <> 'exclusive' then
      call {settle}(v_key, v_id, a_at);
    end if;
    if v_is_mine and v_is_waited then
      set o_waited = 1;
      call {freed}(v_key, greatest(v_pause, v_keep), v_id, v_kept_until is not null, a_at);
    end if;
  end while;
  if v_schedule is not null then
    set v_key = ${keyAt('v_keys', '0')}, v_tick = json_value(a_request, '$.tick');
    set v_ends = a_at + round(1000 * json_value(a_request, '$.life'));
    set v_is_later = exists (select 1 from {ticks} where k = v_key and schedule = v_schedule and ends > a_at and tick > v_tick);
    if not v_is_later then
      insert into {ticks} (k, schedule, tick, owner, ends)
        values (v_key, v_schedule, v_tick, json_unquote(json_extract(a_request, '$.owner')), v_ends)
        on duplicate key update tick = values(tick), owner = values(owner), ends = values(ends);
    end if;
  end if;`,
};

/**
 * Updates the row of a key with several holders, after one of them has ended or now expires at another time. The row
 * gets the expiry of the holder that ends last; without a holder the row becomes free.
 *
 * a_released  the id of the lease that was released; null if a later request may store this lease again
 */
export const SETTLE: Procedure = {
  name: 'settle',
  parameters: `a_key ${KEY}, a_released ${ID}, a_at bigint`,
  body: `
  declare v_last bigint default (select max(ends) from {holders} where k = a_key and ends > a_at);
  update {locks} set state = if(v_last is null, 'free', 'held'), ends = coalesce(v_last, a_at), ended = a_released
    where k = a_key;`,
};

/** Frees a key of a lease. A later request may store the same lease again, with another slot. */
export const GIVE_UP: Procedure = {
  name: 'give_up',
  parameters: `a_key ${KEY}, a_id ${ID}, a_at bigint`,
  body: `
  delete from {holders} where k = a_key and id = a_id and kept = 0;
  call {settle}(a_key, null, a_at);
  call {freed}(a_key, 0, null, 0, a_at);`,
};
