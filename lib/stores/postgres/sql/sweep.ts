import { STEPS_PER_SECOND } from '../../../core/fencing-token.js';
import type { EntryPoint } from './sql-function.js';

/**
 * Time for which the row of a key is kept after the end of its lock. It is longer than the deadline of any request (S16)
 * and than the life of a waiter. Later tokens do not depend on it: `forgotten` keeps them larger.
 */
const KEPT_FOR = '1 minute';

/**
 * Lets one process at a time remove rows. This process keeps the sweep with each call. A claim that would last longer
 * than `lasts` was made before the server's clock was set back, and does not count.
 *
 * who      the process
 * lasts    milliseconds until another process may remove rows, if this process does not call again
 * Returns  true if the process may remove rows
 */
const CLAIM_SWEEP: EntryPoint = {
  signature: 'take_sweep_turn(who text, lasts double precision)',
  returns: 'boolean',
  body: `
declare
  at constant timestamptz := clock_timestamp();
  ends constant timestamptz := at + lasts * interval '1 ms';
begin
  perform from sweeping where process = who or until <= at or until > ends for update skip locked;
  if not found then
    return false;
  end if;
  update sweeping set process = who, until = ends;
  return true;
end`,
};

/**
 * Examines the next `most` rows of `locks` in the order of their keys, and removes those that are no longer needed, with
 * all data of their keys. Waits for no row: a locked row stays for the next sweep.
 *
 * A token that is ahead of the server's clock is kept, so that the tokens of other keys stay near the clock.
 *
 * after    the position of the previous call, an array of the key; an array of '' to begin
 * Returns  the position; null after the last row
 */
const SWEEP_LOCKS: EntryPoint = {
  signature: 'sweep_locks(after text[], most integer)',
  returns: 'text[]',
  body: `
declare
  before constant timestamptz := clock_timestamp() - interval '${KEPT_FOR}';
  clock constant double precision := extract(epoch from before) * ${STEPS_PER_SECOND};
  examined bigint;
  last text;
  old text[];
  highest bigint;
begin
  select count(*), max(key), array_agg(key) filter (where ends < before and token < clock) into examined, last, old
    from (select key, ends, token from locks where key > after[1] order by key limit most) as page;
  select array_agg(key), max(token) into old, highest
    from (
      select key, token from locks l
      where key = any (old) and ends < before and token < clock
        and not exists (select from waiters w where w.key = l.key and w.seen > before)
      for update skip locked
    ) as locked;
  update sweeping set forgotten = highest where forgotten < highest;
  delete from locks where key = any (old);
  delete from slots where key = any (old);
  delete from waiters where key = any (old);
  delete from holders where key = any (old);
  return case when examined = most then array[last] end;
end`,
};

/**
 * Like `sweep_locks` for `holders`: the expired holders of keys that are still held.
 *
 * after    an array of the key and the id
 */
const SWEEP_HOLDERS: EntryPoint = {
  signature: 'sweep_holders(after text[], most integer)',
  returns: 'text[]',
  body: keysetSweep('holders', 'id', `clock_timestamp() - interval '${KEPT_FOR}'`),
};

/**
 * Like `sweep_locks` for `ticks`.
 *
 * after    an array of the key and the schedule
 */
const SWEEP_TICKS: EntryPoint = {
  signature: 'sweep_ticks(after text[], most integer)',
  returns: 'text[]',
  body: keysetSweep('ticks', 'schedule', 'clock_timestamp()'),
};

function keysetSweep(table: string, second: string, before: string): string {
  return `
declare
  before constant timestamptz := ${before};
  page ${table}[];
begin
  page := array(
    select t from ${table} t where (t.key, t.${second}) > (after[1], after[2]) order by t.key, t.${second} limit most
  );
  delete from ${table} t using (
    select o.key, o.${second} from unnest(page) as p join ${table} o on o.key = p.key and o.${second} = p.${second}
    where p.ends < before and o.ends < before for update of o skip locked
  ) as old where t.key = old.key and t.${second} = old.${second};
  return case when cardinality(page) = most then array[page[most].key, page[most].${second}] end;
end`;
}

/**
 * For processes of the schema versions 1 to 5, which remove rows over their connection for locks: `most` rows are
 * examined in each call.
 *
 * Returns  true until all rows are examined
 */
const SWEEP: EntryPoint = {
  signature: 'sweep(most integer)',
  returns: 'boolean',
  body: `
declare
  reached text[];
begin
  select array[coalesce(position, '')] into reached from sweeping for update skip locked;
  if not found then
    return false;
  end if;
  reached := sweep_locks(reached, most);
  update sweeping set position = reached[1];
  return reached is not null;
end`,
};

export const SWEEPS: readonly EntryPoint[] = [CLAIM_SWEEP, SWEEP_LOCKS, SWEEP_HOLDERS, SWEEP_TICKS, SWEEP];
