import type { LockHolder, LockInfo } from '../../core/lock-info.js';
import type { HolderRow, LockRow, Renewal, WaiterRow } from './messages.js';

/** Largest number of characters of a key or an owner. Longer texts are cut, except in the details of a lock. */
const MOST_CHARACTERS = 200;

/** Largest number of holders, and of waiters, that are sent for one lock. Of the others, only the number is sent. */
const MOST_HOLDERS = 20;

/** Largest number of locks that are sent. */
export const MOST_ROWS = 20_000;

/**
 * Largest number of keys that have a row number. With more keys, free keys lose their row numbers, the oldest first,
 * until half as many keys have one.
 */
const MOST_NUMBERS = 5 * MOST_ROWS;

/**
 * Milliseconds by which two looks at the store may disagree about the end of the same hold, because each look takes
 * some time. A larger difference is an extension.
 */
const TOLERANCE_MS = 250;

/**
 * A holder that renews has usually at least two thirds of its ttl left, so its ttl is at most this multiple of the time
 * left.
 */
const MOST_OF_LEFT = 1.5;

/** The least fraction of its ttl by which a renewal usually moves the end of a lock. */
const LEAST_EXTENSION = 0.2;

/** The fields of a holder that an extension changes. */
const RENEWED: ReadonlySet<string> = new Set<keyof HolderRow>(['ends', 'ttl', 'renewals']);

interface Holding {
  ends: number;
  renewals: number;
  /** Estimate of the ttl in milliseconds; `Infinity` when the key has no expiry. */
  ttl: number;
}

/** A lock as the last look at the store found it. */
interface Entry {
  readonly info: LockInfo;
  readonly row: LockRow;
  readonly holdings: ReadonlyMap<string, Holding>;
  /** The row as JSON, without the fields that each extension changes. */
  readonly shape: string;
}

/** A holder that appeared or disappeared between two looks. */
export interface HolderChange {
  readonly key: string;
  readonly holder: LockHolder;
  /** The latest time at which the hold ends, unless it is extended. */
  readonly ends: number;
}

/** The difference between a look at the store and the look before it. */
export interface TableChange {
  readonly rows: readonly LockRow[];
  readonly renewed: readonly Renewal[];
  readonly gone: readonly number[];
  readonly begun: readonly HolderChange[];
  readonly ended: readonly HolderChange[];
}

/** Facts about locks that are not in a {@link LockInfo}. */
export interface Beside {
  /** The ids of the holders in this process. */
  readonly held: ReadonlySet<string>;
  readonly waitersOf: (key: string) => readonly WaiterRow[];
}

/** The locks at the last look. */
export class LockTable {
  #entries = new Map<string, Entry>();
  /**
   * The number of each key. A key keeps its number while it is free for a moment, so that the page recognizes the lock.
   */
  readonly #numbers = new Map<string, number>();
  readonly #keys = new Map<number, string>();
  #last = 0;
  #hasMore = false;

  /** `true` if the last look at the store found more locks than are sent. */
  get hasMore(): boolean {
    return this.#hasMore;
  }

  /** The rows that are sent: one for each lock of the last look, up to {@link MOST_ROWS}. */
  get rows(): LockRow[] {
    const rows: LockRow[] = [];
    for (const { row } of this.#entries.values()) rows.push(row);
    return rows;
  }

  /** All holders of all locks that are sent. */
  get holders(): HolderChange[] {
    return [...this.#entries.values()].flatMap((entry) =>
      entry.info.holders.map((holder) => changeOf(entry.info.key, holder, entry)),
    );
  }

  /** Returns the key with that number. */
  keyOf(n: number): string | undefined {
    return this.#keys.get(n);
  }

  /** Returns the answers of the nodes about a key; `undefined` for a key that is not in the table. */
  infoOf(key: string): LockInfo | undefined {
    return this.#entries.get(key)?.info;
  }

  /** Returns all holders of a key, with the whole names of their owners. */
  holdersOf(key: string, held: Beside['held']): HolderRow[] {
    const entry = this.#entries.get(key);
    if (!entry) return [];
    return entry.info.holders.map((holder) =>
      holderRow(holder, entry.holdings.get(holder.id), held.has(holder.id), whole),
    );
  }

  /** Returns the number of a key. The first call for a key gives it a number. */
  numberOf(key: string): number {
    const known = this.#numbers.get(key);
    if (known !== undefined) return known;
    const n = ++this.#last;
    this.#numbers.set(key, n);
    this.#keys.set(n, key);
    return n;
  }

  /**
   * Takes over the result of a look, which may have stopped after {@link MOST_ROWS} + 1 locks.
   *
   * @param now - the time at which the look began, in milliseconds since 1970
   */
  update(infos: ReadonlyMap<string, LockInfo>, beside: Beside, now: number): TableChange {
    const rows: LockRow[] = [];
    const renewed: Renewal[] = [];
    const gone: number[] = [];
    const begun: HolderChange[] = [];
    const ended: HolderChange[] = [];
    const entries = new Map<string, Entry>();
    this.#hasMore = infos.size > MOST_ROWS;
    for (const info of infos.values()) {
      if (entries.size >= MOST_ROWS) break;
      const before = this.#entries.get(info.key);
      const entry = this.#entryOf(info, before, beside, now);
      entries.set(info.key, entry);
      if (entry.shape !== before?.shape) rows.push(entry.row);
      else renewed.push(...renewalsOf(entry, before));
      for (const holder of info.holders)
        if (!before?.holdings.has(holder.id)) begun.push(changeOf(info.key, holder, entry));
    }
    for (const [key, before] of this.#entries) {
      const entry = entries.get(key);
      for (const holder of before.info.holders)
        if (!entry?.holdings.has(holder.id)) ended.push(changeOf(key, holder, before));
      if (entry) continue;
      gone.push(before.row.n);
    }
    this.#entries = entries;
    this.#forget();
    return { rows, renewed, gone, begun, ended };
  }

  #entryOf(info: LockInfo, before: Entry | undefined, beside: Beside, now: number): Entry {
    const holdings = new Map<string, Holding>();
    for (const holder of info.holders)
      holdings.set(holder.id, holdingOf(before?.holdings.get(holder.id), holder, now));
    const row = rowOf(before?.row.n ?? this.numberOf(info.key), info, holdings, beside);
    const shape = JSON.stringify(row, (name, value: unknown) => (RENEWED.has(name) ? undefined : value));
    return { info, row, holdings, shape };
  }

  /** Drops the oldest numbers of keys that are not held, when there are too many. */
  #forget(): void {
    if (this.#numbers.size <= MOST_NUMBERS) return;
    for (const [key, n] of this.#numbers) {
      if (this.#entries.has(key)) continue;
      this.#numbers.delete(key);
      this.#keys.delete(n);
      if (this.#numbers.size <= MOST_NUMBERS / 2) return;
    }
  }
}

function holdingOf(before: Holding | undefined, { since, remaining }: LockHolder, now: number): Holding {
  const ends = now + remaining;
  if (!before) return { ends, renewals: 0, ttl: firstEstimate(remaining, ends - since.getTime()) };
  if (Math.abs(ends - before.ends) <= TOLERANCE_MS || ends === before.ends) return before;
  // A lock that ends sooner than before is kept for `minHold` after its release.
  if (ends < before.ends) return { ...before, ends };
  // After an extension the whole ttl is left. A small difference may only come from a slow look.
  const isWhole = ends - before.ends > remaining * LEAST_EXTENSION;
  return {
    ends,
    renewals: before.renewals + 1,
    ttl: isWhole ? remaining : Math.max(remaining, before.ttl),
  };
}

/**
 * Estimates the ttl of a holder that an earlier look did not find. If the holder has not renewed yet, its ttl is the
 * time from the start of the hold to its end. If it has, that time is too long.
 *
 * @param span - milliseconds from the start of the hold, by the holder's clock, to its end
 */
function firstEstimate(remaining: number, span: number): number {
  return Math.max(remaining, Math.min(span, MOST_OF_LEFT * remaining));
}

function rowOf(
  n: number,
  { key, held: isHeld, mode, permits, holders, votes }: LockInfo,
  holdings: ReadonlyMap<string, Holding>,
  { held, waitersOf }: Beside,
): LockRow {
  const shown = holders.slice(0, MOST_HOLDERS);
  const waiters = waitersOf(key);
  const have = votes.filter(({ vote }) => vote === 'held').length;
  return {
    n,
    key: cut(key),
    ...(key.length > MOST_CHARACTERS && { length: key.length }),
    mode: isHeld ? (mode ?? null) : null,
    ...(permits !== undefined && { permits }),
    holders: shown.map((holder) => holderRow(holder, holdings.get(holder.id), held.has(holder.id), cut)),
    ...(holders.length > MOST_HOLDERS && { more: holders.length - MOST_HOLDERS }),
    waiters: waiters.slice(0, MOST_HOLDERS).map((waiter) => ({ ...waiter, owner: cut(waiter.owner) })),
    ...(waiters.length > MOST_HOLDERS && { moreWaiters: waiters.length - MOST_HOLDERS }),
    nodes: [have, votes.length],
  };
}

/** @param shown - returns the part of an owner that is shown */
function holderRow(
  { id, owner, since, fencingToken, slot, detached }: LockHolder,
  { ends, renewals, ttl }: Readonly<Holding> = { ends: Infinity, renewals: 0, ttl: Infinity },
  isOwn: boolean,
  shown: (owner: string) => string,
): HolderRow {
  return {
    id,
    owner: shown(owner),
    since: since.getTime(),
    ends: Number.isFinite(ends) ? Math.round(ends) : null,
    ...(Number.isFinite(ttl) && { ttl: Math.round(ttl) }),
    renewals,
    token: fencingToken,
    ...(slot !== undefined && { slot }),
    ...(detached && { detached }),
    ...(isOwn && { own: true }),
  };
}

function renewalsOf({ row }: Entry, before: Entry): Renewal[] {
  return row.holders.flatMap(({ ends, renewals, ttl }, index): Renewal[] =>
    ends === before.row.holders[index]?.ends ? [] : [[row.n, index, ends, renewals, ttl ?? null]],
  );
}

function changeOf(key: string, holder: LockHolder, { holdings }: Entry): HolderChange {
  return { key, holder, ends: holdings.get(holder.id)?.ends ?? Infinity };
}

function whole(text: string): string {
  return text;
}

function cut(text: string): string {
  return text.length > MOST_CHARACTERS ? text.slice(0, MOST_CHARACTERS) : text;
}
