/**
 * The tables. A row of `locks` protects all data of its key: a statement locks that row before it reads or changes any
 * of the data. It locks several rows in the order of their keys, so that no two statements wait for each other.
 *
 * The rows of free keys stay for a minute, because they contain the last token. Half of each page is left free, and no
 * index contains `ends`. So an update stays in its page (HOT), and PostgreSQL removes the old version without a vacuum.
 *
 * - `locks` has all data of an exclusive lock. For a shared lock and for permits it has the end of the last holder
 *   (`ends`) and the largest token. A lock is held while the row is not `free` and `ends` is in the future. The row is
 *   `kept` after the release, while `minHold` keeps the key.
 * - `ended` is the lease that was released last: a late duplicate of its acquisition must not store it again.
 * - `floor` is the largest token of the key before the present holders with permits; the tokens of all their slots are
 *   larger.
 * - `turn` is the waiter whose turn it is, while nobody holds the key. `mark` is a waiter whose mode differs from the
 *   mode in which the key is held. Later callers for a shared lock or a permit are then refused, unless they have the
 *   mode of this waiter (S22).
 *
 * The only row of `sweeping` belongs to the removal of old rows. No token that was removed is larger than `forgotten`.
 * `until` is the time until which one process alone removes rows. `position` is for processes of the schema versions 1 to 5.
 */
export const TABLES = `
create table if not exists locks (
  key text collate "C" primary key,
  mode text not null default 'exclusive',
  state text not null default 'free',
  id text,
  owner text,
  since bigint,
  token bigint not null default 0,
  ends timestamptz not null default '-infinity',
  ended text,
  permits integer not null default 0,
  floor bigint not null default 0,
  waited boolean not null default false,
  turn text,
  turn_ends timestamptz,
  mark text,
  mark_mode text,
  mark_owner text,
  mark_came timestamptz,
  mark_ends timestamptz
) with (fillfactor = 50);

create table if not exists holders (
  key text collate "C",
  id text,
  owner text not null,
  since bigint not null,
  token bigint not null,
  slot integer,
  kept boolean not null default false,
  ends timestamptz not null,
  primary key (key, id)
) with (fillfactor = 50);

create table if not exists slots (
  key text collate "C",
  slot integer,
  token bigint not null,
  primary key (key, slot)
) with (fillfactor = 50);

create table if not exists waiters (
  key text collate "C",
  waiter text,
  channel text not null,
  mode text not null,
  owner text not null,
  came timestamptz not null,
  seen timestamptz not null,
  primary key (key, waiter)
);

create table if not exists ticks (
  key text collate "C",
  schedule text,
  tick bigint not null,
  owner text not null,
  ends timestamptz not null,
  primary key (key, schedule)
);

create table if not exists probe (
  one boolean primary key default true check (one),
  written timestamptz
);
insert into probe default values on conflict do nothing;

create table if not exists sweeping (
  one boolean primary key default true check (one),
  process text,
  until timestamptz not null default '-infinity',
  forgotten bigint not null default 0,
  position text
);
insert into sweeping default values on conflict do nothing;
`;

export const TABLE_NAMES = ['locks', 'holders', 'slots', 'waiters', 'ticks', 'probe', 'sweeping'];
