import { ID, KEY, MODE, OWNER, SCHEDULE, STATE } from './procedure.js';

/**
 * The tables. A row of `locks` protects all data of its key: a procedure locks that row before it reads or changes any
 * of the data. It locks several rows in the order of their keys, so that no two procedures wait for each other. All
 * times are microseconds since 1970 on the server's clock.
 *
 * The rows of free keys stay for a minute, because they contain the last token.
 *
 * - `locks` has all data of an exclusive lock. For a shared lock and for permits it has the end of the last holder
 *   (`ends`) and the largest token. A lock is held while the row is not `free` and `ends` is in the future. The row is
 *   `kept` after the release, while `minHold` keeps the key.
 * - `ended` is the lease that was released last: a late duplicate of its acquisition must not store it again.
 * - `least` is the largest token of the key before the present holders with permits; the tokens of all their slots are
 *   larger.
 * - `turn` is the waiter whose turn it is, while nobody holds the key. `mark` is a waiter whose mode differs from the
 *   mode in which the key is held. Later callers for a shared lock or a permit are then refused, unless they have the
 *   mode of this waiter (S22).
 * - `waiters` also has the message to each waiter: it was `told` at that time that it `may` try from that time on,
 *   because the lease `released` has ended.
 *
 * The only row of `state` belongs to the removal of old rows. No token that was removed is larger than `forgotten`.
 * `until` is the time until which one process alone removes rows. `written` is the time of the last test if the server
 * writes.
 */
export const TABLES: Readonly<Record<string, string>> = {
  locks: `
  k ${KEY} not null primary key,
  mode ${MODE} not null default 'exclusive',
  state ${STATE} not null default 'free',
  id ${ID},
  owner ${OWNER},
  since bigint,
  token bigint not null default 0,
  ends bigint not null default 0,
  ended ${ID},
  permits int not null default 0,
  least bigint not null default 0,
  waited tinyint not null default 0,
  turn ${ID},
  turn_ends bigint,
  mark ${ID},
  mark_mode ${MODE},
  mark_owner ${OWNER},
  mark_came bigint,
  mark_ends bigint`,
  holders: `
  k ${KEY} not null,
  id ${ID} not null,
  owner ${OWNER} not null,
  since bigint not null,
  token bigint not null,
  slot int,
  kept tinyint not null default 0,
  ends bigint not null,
  primary key (k, id),
  key slots (k, slot)`,
  slots: `
  k ${KEY} not null,
  slot int not null,
  token bigint not null,
  primary key (k, slot)`,
  waiters: `
  k ${KEY} not null,
  waiter ${ID} not null,
  process ${ID} not null,
  mode ${MODE} not null,
  owner ${OWNER} not null,
  came bigint not null,
  seen bigint not null,
  told bigint,
  may bigint,
  released ${ID},
  primary key (k, waiter),
  key messages (process, told)`,
  ticks: `
  k ${KEY} not null,
  schedule ${SCHEDULE} not null,
  tick bigint not null,
  owner ${OWNER} not null,
  ends bigint not null,
  primary key (k, schedule)`,
  state: `
  one tinyint not null primary key,
  process ${ID},
  until bigint not null default 0,
  forgotten bigint not null default 0,
  written bigint`,
};

/** Makes the only row of `state`. Without it no lock of a new key can get a token. */
export const STATE_ROW = 'insert ignore into {state} (one) values (1)';

/** Finds if that row is missing: a backup without data has only tables. */
export const HAS_STATE_ROW = 'select count(*) as answer from {state}';
