import { STEPS_PER_SECOND } from '../../../core/fencing-token.js';
import type { EntryPoint } from './sql-function.js';

/**
 * How long the last token of a key is kept after its lock ended. One that the clock had not passed so long ago is kept, too:
 * it was given while the clock was ahead. So what comes later is larger by the clock alone, unless the clock of the server
 * is set back by more than this.
 */
const KEPT_FOR = '1 hour';

/**
 * Removes what nobody needs any more, up to so many rows of each table. Rows that somebody works on are left for the next
 * time; one process at a time sweeps.
 *
 * Returns  whether there is more
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
