import { BEGIN, ID, KEY, MODE, NOW, type Procedure, TEXT } from './procedure.js';

/**
 * Releases a key by force for the holders with these ids, and tells the first waiter.
 *
 * a_ids    the ids, with commas between them
 * Selects  the ids for which the key was held, with commas between them
 */
export const FORCE_RELEASE: Procedure = {
  name: 'force_release',
  parameters: `a_key ${KEY}, a_ids ${TEXT}`,
  body: `
  declare v_at bigint;
  declare v_mode ${MODE};
  declare v_id ${ID};
  declare v_gone ${TEXT};
${BEGIN}
  select mode into v_mode from {locks} where k = a_key for update;
  set v_at = ${NOW};
  if v_mode = 'exclusive' then
    set v_gone = (select id from {locks} where k = a_key and state <> 'free' and ends > v_at and find_in_set(id, a_ids));
    update {locks} set state = 'free', ended = id, ends = v_at where k = a_key and id = v_gone;
  elseif v_mode is not null then
    set v_gone = (select group_concat(id) from {holders} where k = a_key and ends > v_at and find_in_set(id, a_ids));
    if v_gone is not null then
      delete from {holders} where k = a_key and ends > v_at and find_in_set(id, a_ids);
      set v_id = substring_index(v_gone, ',', 1);
      call {settle}(a_key, v_id, v_at);
    end if;
  end if;
  if v_gone is not null then
    call {freed}(a_key, 0, null, 0, v_at);
  end if;
  commit;
  select coalesce(v_gone, '') as answer;`,
};
