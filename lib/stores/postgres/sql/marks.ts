import type { EntryPoint } from './sql-function.js';

/** The life of a mark, in milliseconds. Its waiter sets it again every second. */
const MARK_MS = 2_000;

/**
 * Sets the mark of a waiter: later callers in other modes are refused if their mode admits several holders. The mark of
 * an earlier waiter stays (S22).
 *
 * Returns  true if the waiter's mark is set for each key
 */
export const HOLD_BACK: EntryPoint = {
  signature: 'hold_back(keys text[], who text, wanted text, by text, waited double precision)',
  returns: 'boolean',
  body: `
declare
  at timestamptz;
  arrived timestamptz;
begin
  at := clock_timestamp();
  arrived := at - waited * interval '1 ms';
  -- Return early without locking rows, while the mark of an earlier waiter is set: such calls are frequent, and would
  -- delay acquisitions and releases.
  if cardinality(keys) = (
    select count(*) from locks
    where key = any (keys) and mark_ends > at and mark <> who and mark_came <= arrived
  ) then
    return false;
  end if;
  perform 1 from locks l where l.key = any (keys) order by l.key for update;
  at := clock_timestamp();
  arrived := at - waited * interval '1 ms';
  update locks set mark = who, mark_mode = wanted, mark_owner = by, mark_came = arrived,
      mark_ends = at + interval '${MARK_MS} ms'
    where key = any (keys) and (mark = who or mark_ends is null or mark_ends <= at or mark_came > arrived);
  return cardinality(keys) = (select count(*) from locks where key = any (keys) and mark_ends > at and mark = who);
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
