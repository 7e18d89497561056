import { BEGIN, BY_PRIMARY, ID, keysOf, NOW, OWNER, type Procedure, TEXT } from './procedure.js';

/** Joins the rows of the keys. */
const ROWS = `${keysOf('a_keys')} straight_join {locks} l ${BY_PRIMARY} on l.k = cast(keys_.k as binary)`;

/** True for a holder that one of the known leases is. */
const IS_KNOWN = `find_in_set(h.id, a_known) and h.kept = 0 and h.ends > v_at`;

/**
 * Puts a lease in the place of another, under all keys or under none. The other one has its tokens, slots and ends.
 *
 * a_keys      a JSON array, sorted
 * a_id        the id of the lease
 * a_known     this id and the ids of the leases that it replaces, with commas between them
 * a_deadline  in microseconds on the server's clock: nothing is changed after it (S16)
 * Selects     JSON: `at`, the server's time when the rows were locked, in milliseconds since 1970; `late`, 1 after the deadline;
 *             `done`, 1 if the lease holds all keys now
 */
export const EXCHANGE: Procedure = {
  name: 'exchange',
  parameters: `a_keys ${TEXT}, a_id ${ID}, a_known ${TEXT}, a_owner ${OWNER}, a_since bigint, a_deadline bigint`,
  body: `
  declare v_at bigint;
  declare v_is_late, v_is_held tinyint default 0;
${BEGIN}
  call {lock_rows}(a_keys);
  set v_at = ${NOW};
  set v_is_late = v_at > a_deadline;
  select not v_is_late and json_length(a_keys) = count(*) into v_is_held from ${ROWS}
    where l.state <> 'free' and l.ends > v_at
      and ((l.mode = 'exclusive' and l.state = 'held' and find_in_set(l.id, a_known))
        or (l.mode <> 'exclusive' and exists (select 1 from {holders} h ${BY_PRIMARY} where h.k = l.k and ${IS_KNOWN})));
  if v_is_held then
    update ${ROWS} set l.id = a_id, l.owner = a_owner, l.since = a_since
      where l.mode = 'exclusive' and l.id <> a_id;
    update ${keysOf('a_keys')} straight_join {holders} h ${BY_PRIMARY} on h.k = cast(keys_.k as binary)
      set h.id = a_id, h.owner = a_owner, h.since = a_since
      where ${IS_KNOWN} and h.id <> a_id;
  end if;
  commit;
  select concat('{"at":', v_at / 1000, ',"late":', v_is_late, ',"done":', v_is_held, '}') as answer;`,
};
