import { STEPS_PER_SECOND } from '../../../core/fencing-token.js';
import type { EntryPoint } from './sql-function.js';

/**
 * Time for which the last token of a key is kept after the end of its lock. A token is kept longer while it is ahead of
 * the server's clock, or behind that clock by less than this time. A new token is never behind the clock. So every new
 * token is larger than the removed token, unless the clock was set back by more than this time.
 */
const KEPT_FOR = '1 hour';

/**
 * Removes keys, holders and ticks that are no longer needed, at most `most` of each. Locked rows stay for the next
 * sweep. Only one process at a time sweeps.
 *
 * Returns  true if there are more rows to remove
 */
export const SWEEP: EntryPoint = {
  signature: 'sweep(most integer)',
  returns: 'boolean',
  body: `
declare
  at constant timestamptz := clock_timestamp();
  before constant timestamptz := at - interval '${KEPT_FOR}';
  gone text[];
begin
  if not pg_try_advisory_xact_lock(hashtextextended('nestjs-redlock sweep ' || current_schema(), 0)) then
    return false;
  end if;
  gone := array(
    select key from locks l
    where l.ends < before and l.token < extract(epoch from before) * ${STEPS_PER_SECOND}
      and not exists (select from waiters w where w.key = l.key and w.seen > before)
    limit most for update skip locked
  );
  delete from locks where key = any (gone);
  delete from slots where key = any (gone);
  delete from waiters where key = any (gone);
  delete from holders h using (
    select o.key, o.id from holders o join locks l on l.key = o.key
    where o.ends < before limit most for update of l skip locked
  ) as o where h.key = o.key and h.id = o.id;
  delete from holders where key = any (gone);
  delete from ticks where ctid = any (array(select ctid from ticks where ends < at limit most for update skip locked));
  return cardinality(gone) = most;
end`,
};
