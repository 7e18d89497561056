import { tokenAtSql } from './acquire.js';
import { BEGIN, ID, KEY, NOW, type Procedure, SCHEDULE } from './procedure.js';

/**
 * Microseconds for which the row of a key is kept after the end of its lock. It is longer than the deadline of any
 * request (S16) and than the life of a waiter. Later tokens do not depend on it: `forgotten` keeps them larger.
 */
const KEPT_FOR_US = 60_000_000;

/**
 * Lets one process at a time remove rows. This process keeps the sweep with each call. A claim that ends too late is from
 * a clock that was set back.
 *
 * a_lasts  microseconds until another process may remove rows, if this process does not call again
 * Selects  1 if the process may remove rows, otherwise 0
 */
const CLAIM_SWEEP: Procedure = {
  name: 'take_sweep_turn',
  parameters: `a_process ${ID}, a_lasts bigint`,
  body: `
  declare v_at bigint;
  declare v_one tinyint;
${BEGIN}
  set v_at = ${NOW};
  select one into v_one from {state} where one = 1 and (process = a_process or until <= v_at or until > v_at + a_lasts) for update skip locked;
  update {state} set process = a_process, until = v_at + a_lasts where one = v_one;
  commit;
  select v_one is not null as answer;`,
};

/**
 * Examines the next `a_most` rows of `locks` in the order of their keys, and removes those that are no longer needed,
 * with all data of their keys. Waits for no row: a locked row stays for the next sweep.
 *
 * A token that is ahead of the server's clock is kept, so that the tokens of other keys stay near the clock.
 *
 * a_after  the last key of the previous call; '' to begin
 * Selects  the last key in hexadecimal digits; null after the last row
 */
const SWEEP_LOCKS: Procedure = {
  name: 'sweep_locks',
  parameters: `a_after ${KEY}, a_most int`,
  body: `
  declare v_before bigint default ${NOW} - ${KEPT_FOR_US};
  declare v_clock bigint default ${tokenAtSql('v_before')};
  declare v_examined int;
  declare v_last, v_key ${KEY};
  declare v_token, v_highest bigint default 0;
  declare v_is_over tinyint default 0;
  declare the_old cursor for
    select k, token from {locks} where k > a_after and k <= v_last and ends < v_before and token < v_clock
      and not exists (select 1 from {waiters} w where w.k = {locks}.k and w.seen > v_before)
    order by k for update skip locked;
  declare continue handler for not found set v_is_over = 1;
${BEGIN}
  select count(*), max(k) into v_examined, v_last from (select k from {locks} where k > a_after order by k limit a_most) page;
  open the_old;
  each_row: loop
    fetch the_old into v_key, v_token;
    if v_is_over then
      leave each_row;
    end if;
    delete from {slots} where k = v_key;
    delete from {waiters} where k = v_key;
    delete from {holders} where k = v_key;
    delete from {locks} where k = v_key;
    set v_highest = greatest(v_highest, v_token);
  end loop;
  close the_old;
  update {state} set forgotten = v_highest where forgotten < v_highest;
  commit;
  select if(v_examined = a_most, hex(v_last), null) as answer;`,
};

/**
 * Like `sweep_locks` for a table whose key is a lock key and a second column.
 *
 * a_after, a_second  the last row of the previous call; '' to begin
 * Selects            the last row, both columns in hexadecimal digits, with a comma between them; null after the last row
 */
function sweepOf(table: string, second: string, type: string, before: string): Procedure {
  return {
    name: `sweep_${table}`,
    parameters: `a_after ${KEY}, a_second ${type}, a_most int`,
    body: `
  declare v_before bigint default ${before};
  declare v_examined int;
  declare v_last, v_key ${KEY};
  declare v_last_second, v_second ${type};
  declare v_is_over tinyint default 0;
  declare the_old cursor for
    select k, ${second} from {${table}}
    where (k > a_after or (k = a_after and ${second} > a_second))
      and (k < v_last or (k = v_last and ${second} <= v_last_second)) and ends < v_before
    order by k, ${second} for update skip locked;
  declare continue handler for not found set v_is_over = 1;
${BEGIN}
  select count(*) into v_examined from (${page(table, second)}) page;
  select k, ${second} into v_last, v_last_second from (${page(table, second)}) page order by k desc, ${second} desc limit 1;
  open the_old;
  each_row: loop
    fetch the_old into v_key, v_second;
    if v_is_over then
      leave each_row;
    end if;
    delete from {${table}} where k = v_key and ${second} = v_second;
  end loop;
  close the_old;
  commit;
  select if(v_examined = a_most, concat(hex(v_last), ',', hex(v_last_second)), null) as answer;`,
  };
}

function page(table: string, second: string): string {
  return `
    select k, ${second} from {${table}} where k > a_after or (k = a_after and ${second} > a_second)
    order by k, ${second} limit a_most`;
}

export const SWEEPS: readonly Procedure[] = [
  CLAIM_SWEEP,
  SWEEP_LOCKS,
  sweepOf('holders', 'id', ID, `${NOW} - ${KEPT_FOR_US}`),
  sweepOf('ticks', 'schedule', SCHEDULE, NOW),
];
