import { MARK_MS } from '../../../core/store-times.js';
import type { EntryPoint } from './sql-function.js';

/**
 * Sets the mark of a waiter: later callers in other modes are refused if their mode admits several holders. The mark of
 * an earlier waiter stays (S22).
 *
 * Of several keys, only the first held key gets the mark, because an attempt finds this key held. The other marks of the
 * waiter are renewed. A mark on a free key would shut out its readers although they are not in the way of the waiter.
 *
 * Returns  false if the first held key has the mark of an earlier waiter
 */
export const HOLD_BACK: EntryPoint = {
  signature: 'hold_back(keys text[], who text, wanted text, by text, waited double precision)',
  returns: 'boolean',
  body: `
declare
  at timestamptz;
  arrived timestamptz;
  first text;
  found record;
begin
  at := clock_timestamp();
  arrived := at - waited * interval '1 ms';
  -- Return early without locking rows, while the mark of an earlier waiter is set: such calls are frequent, and would
  -- delay acquisitions and releases.
  select key, mark_ends > at and mark <> who and mark_came <= arrived as taken into found from locks
    where key = any (keys) and (cardinality(keys) = 1 or (state <> 'free' and ends > at))
    order by array_position(keys, key) limit 1;
  if found.taken and not exists (select from locks where key = any (keys) and mark_ends > at and mark = who) then
    return false;
  end if;
  perform 1 from locks l where l.key = any (keys) order by l.key for update;
  at := clock_timestamp();
  arrived := at - waited * interval '1 ms';
  select key into first from locks
    where key = any (keys) and (cardinality(keys) = 1 or (state <> 'free' and ends > at))
    order by array_position(keys, key) limit 1;
  update locks set mark = who, mark_mode = wanted, mark_owner = by, mark_came = arrived,
      mark_ends = at + interval '${MARK_MS} ms'
    where key = any (keys) and case when mark_ends > at and mark = who then true
      else key = first and (mark_ends is null or mark_ends <= at or mark_came > arrived) end;
  return first is null or exists (select from locks where key = first and mark_ends > at and mark = who);
end`,
};

/** Removes the marks of a waiter that `hold_back` has set. */
export const LET_PASS: EntryPoint = {
  signature: 'let_pass(keys text[], who text)',
  returns: 'void',
  body: `
begin
  perform 1 from locks l where l.key = any (keys) order by l.key for update;
  update locks set mark_ends = null where key = any (keys) and mark = who;
end`,
};
