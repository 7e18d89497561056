import { tokenAtSql } from './acquire.js';
import {
  BEGIN,
  BY_PRIMARY,
  ID,
  JSON_TEXT,
  KEY,
  keysOf,
  MODE,
  NOW,
  OWNER,
  type Procedure,
  STATE,
  TEXT,
  UTF8,
} from './procedure.js';

/**
 * Locks the rows of keys in the order of the array, which all processes sort alike.
 *
 * The update changes nothing. MySQL does not lock the rows of a SELECT with json_table, and a statement for each key takes
 * longer.
 *
 * a_keys  a JSON array
 */
const LOCK_ROWS: Procedure = {
  name: 'lock_rows',
  parameters: `a_keys ${JSON_TEXT}`,
  body: `
  update ${keysOf('a_keys')} straight_join {locks} l ${BY_PRIMARY} on l.k = cast(keys_.k as binary) set l.token = l.token;`,
};

/** The columns of a request in a list, as far as the fast statements need them. A `straight_join` follows, as in {@link keysOf}. */
function requestsIn(list: string, columns = ''): string {
  return (
    `json_table(${list}, '$[*]' columns (i for ordinality, plain tinyint path '$.plain', id ${ID} path '$.id', ` +
    `k varchar(2048) ${UTF8} path '$.keys[0]'${columns})) r`
  );
}

/** The column with the whole request. */
const REQUEST = `, request json path '$'`;

const TERMS_OF_ACQUISITION =
  `, owner ${OWNER} path '$.owner', since bigint path '$.since', ttl double path '$.ttl', ` +
  `deadline double path '$.deadline'`;

/** Joins the row of the first key of a request. */
const ROW = `{locks} l ${BY_PRIMARY} on l.k = cast(r.k as binary)`;

/** The token of a plain acquisition. */
const NEXT_TOKEN = `greatest(l.token + 1, v_floor, if(l.token = 0, v_forgotten + 1, 0))`;

/** True if a plain request holds its key. */
const HOLDS = `(l.mode = 'exclusive' and l.state = 'held' and l.id = r.id and l.ends > v_at)`;

/**
 * Runs the collected requests of a process in one transaction. Releases come first, then extensions, then acquisitions,
 * each in the order of the requests.
 *
 * a_keys          a JSON array of all keys of all requests, sorted; their rows are locked first
 * a_releases      a JSON array of requests to `release`, or null
 * a_parts         a JSON array for `extend`, or null
 * a_acquisitions  a JSON array of requests to `acquire`, or null. A request is `plain` if it is for one exclusive key,
 *                 without `minHold`, a tick and a next waiter, and no other acquisition of the array has that key
 * Selects  JSON: `at`, the server's time when the rows were locked, in milliseconds since 1970; `waited`: the numbers of the
 *          released leases for which there are waiters; `held`: the numbers of the leases that are held; `acquired`: pairs
 *          of the number of an acquisition and its answer
 *
 * A few statements run all plain requests for keys without waiters that are free. Without them a batch of 64
 * acquisitions and releases took three times as long. The others follow one by one.
 *
 * Missing rows are created only if there is an acquisition. The clock is read when the rows are locked: a time from
 * before the wait for a row would revive an expired lock, and would store a lease after its deadline.
 */
export const TURN: Procedure = {
  name: 'turn',
  parameters: `a_keys ${JSON_TEXT}, a_releases ${JSON_TEXT}, a_parts ${JSON_TEXT}, a_acquisitions ${JSON_TEXT}`,
  body: `
  declare v_at, v_floor, v_forgotten bigint;
  declare v_i, v_number, v_count int default 0;
  declare v_waited tinyint;
  declare v_request ${JSON_TEXT};
  declare v_answer, v_released, v_held, v_acquired ${TEXT} default '';
  declare the_releases cursor for
    select r.i, r.request from ${requestsIn('a_releases', REQUEST)}
    where r.plain is null
      or exists (select 1 from {locks} l ${BY_PRIMARY} where l.k = cast(r.k as binary) and (l.mode <> 'exclusive' or l.waited = 1))
    order by r.i;
  declare the_acquisitions cursor for
    select r.i, r.request from ${requestsIn('a_acquisitions', REQUEST)} straight_join ${ROW}
    where r.plain is null or not ${HOLDS} order by r.i;
${BEGIN}
  if a_acquisitions is not null then
    insert into {locks} (k) select cast(keys_.k as binary) from ${keysOf('a_keys')} order by keys_.i
      on duplicate key update token = {locks}.token;
  else
    call {lock_rows}(a_keys);
  end if;
  set v_at = ${NOW};
  if a_releases is not null then
    update ${requestsIn('a_releases')} straight_join ${ROW}
      set l.state = 'free', l.ended = r.id, l.ends = v_at
      where r.plain = 1 and l.mode = 'exclusive' and l.waited = 0 and l.id = r.id and l.state = 'held';
    -- Usually the statement has run all of them.
    if row_count() < json_length(a_releases) then
      set v_count = (
        select count(*) from ${requestsIn('a_releases')}
        where r.plain is null
          or exists (select 1 from {locks} l ${BY_PRIMARY} where l.k = cast(r.k as binary) and (l.mode <> 'exclusive' or l.waited = 1)));
    end if;
    if v_count > 0 then
      open the_releases;
      while v_i < v_count do
        fetch the_releases into v_number, v_request;
        call {release}(v_request, v_at, v_waited);
        set v_released = concat_ws(',', nullif(v_released, ''), if(v_waited, v_number - 1, null)), v_i = v_i + 1;
      end while;
      close the_releases;
    end if;
  end if;
  if a_parts is not null then
    call {extend}(a_parts, v_at, v_held);
  end if;
  if a_acquisitions is not null then
    set v_floor = ${tokenAtSql('v_at')}, v_i = 0;
    select forgotten into v_forgotten from {state};
    update ${requestsIn('a_acquisitions', TERMS_OF_ACQUISITION)} straight_join ${ROW}
      set l.token = ${NEXT_TOKEN}, l.mode = 'exclusive', l.state = 'held', l.id = r.id, l.owner = r.owner, l.since = r.since,
        l.ends = v_at + round(1000 * r.ttl)
      where r.plain = 1 and (l.state = 'free' or l.ends <= v_at) and l.waited = 0
        and not (l.id <=> r.id) and not (l.ended <=> r.id) and v_at <= round(1000 * r.deadline)
        and ${NEXT_TOKEN} <= ${Number.MAX_SAFE_INTEGER};
    select coalesce(group_concat('[', r.i - 1, ',{"token":', l.token, '}]'), ''), count(*) into v_acquired, v_count
      from ${requestsIn('a_acquisitions')} straight_join ${ROW} where r.plain = 1 and ${HOLDS};
    set v_count = json_length(a_acquisitions) - v_count;
    if v_count > 0 then
      open the_acquisitions;
      while v_i < v_count do
        fetch the_acquisitions into v_number, v_request;
        call {acquire}(v_request, v_at, v_answer);
        set v_acquired = concat_ws(',', nullif(v_acquired, ''), concat('[', v_number - 1, ',', v_answer, ']')), v_i = v_i + 1;
      end while;
      close the_acquisitions;
    end if;
  end if;
  commit;
  select concat('{"at":', v_at / 1000, ',"waited":[', v_released, '],"held":[', v_held, '],"acquired":[', v_acquired, ']}') as answer;`,
};

/**
 * Acquires one exclusive key, without a tick and without a next waiter: the most frequent acquisition. While nobody
 * holds the key or waits for it, this takes a third of the server's time that `turn` takes. Otherwise `acquire` decides.
 *
 * a_ttl, a_deadline  in microseconds
 * a_request          the same request as JSON
 * Selects            as `turn` does
 */
const LOCK: Procedure = {
  name: 'lock',
  parameters: `a_key ${KEY}, a_id ${ID}, a_owner ${OWNER}, a_since bigint, a_ttl bigint, a_deadline bigint, a_request ${TEXT}`,
  body: `
  declare v_at, v_token, v_forgotten, l_token, l_ends bigint;
  declare l_state ${STATE};
  declare l_id, l_ended ${ID};
  declare l_waited tinyint;
  declare v_answer ${TEXT};
${BEGIN}
  select state, id, token, ends, ended, waited into l_state, l_id, l_token, l_ends, l_ended, l_waited
    from {locks} where k = a_key for update;
  if l_state is null then
    insert into {locks} (k) values (a_key) on duplicate key update token = {locks}.token;
    select state, id, token, ends, ended, waited into l_state, l_id, l_token, l_ends, l_ended, l_waited
      from {locks} where k = a_key;
  end if;
  set v_at = ${NOW};
  set v_token = greatest(l_token + 1, ${tokenAtSql('v_at')});
  if l_token = 0 then
    select forgotten into v_forgotten from {state};
    set v_token = greatest(v_token, v_forgotten + 1);
  end if;
  if (l_state = 'free' or l_ends <= v_at) and l_waited = 0 and not (l_id <=> a_id) and not (l_ended <=> a_id)
      and v_at <= a_deadline and v_token <= ${Number.MAX_SAFE_INTEGER} then
    update {locks} set mode = 'exclusive', state = 'held', id = a_id, owner = a_owner, since = a_since, token = v_token,
      ends = v_at + a_ttl where k = a_key;
    set v_answer = concat('{"token":', v_token, '}');
  else
    call {acquire}(a_request, v_at, v_answer);
  end if;
  commit;
  select concat('{"at":', v_at / 1000, ',"acquired":[[0,', v_answer, ']]}') as answer;`,
};

/**
 * Releases one exclusive key, without `minHold` and without a tick: the most frequent release. If callers wait for the
 * key, `release` does it.
 *
 * a_request  the same request as JSON
 * Selects    as `turn` does
 */
const UNLOCK: Procedure = {
  name: 'unlock',
  parameters: `a_key ${KEY}, a_id ${ID}, a_request ${TEXT}`,
  body: `
  declare v_at bigint;
  declare v_waited tinyint default 0;
  declare l_mode ${MODE};
  declare l_waited tinyint;
${BEGIN}
  select mode, waited into l_mode, l_waited from {locks} where k = a_key for update;
  set v_at = ${NOW};
  if l_mode = 'exclusive' and l_waited = 0 then
    update {locks} set state = 'free', ended = a_id, ends = v_at where k = a_key and id = a_id and state = 'held';
  elseif l_mode is not null then
    call {release}(a_request, v_at, v_waited);
  end if;
  commit;
  select concat('{"at":', v_at / 1000, ',"waited":[', if(v_waited, 0, ''), ']}') as answer;`,
};

export const TURNS: readonly Procedure[] = [LOCK_ROWS, TURN, LOCK, UNLOCK];
