import type { LockHolder, LockInfo } from '../core/lock-info.js';
import type { HolderRow, LockRow, Renewal, WaiterRow } from './messages.js';

/** Longer keys and owners are cut; the details of a lock have them whole. */
const MOST_CHARACTERS = 200;

/** So many holders and waiters of one lock are sent; of more their number. */
const MOST_HOLDERS = 20;

/** So many locks are sent at most. */
export const MOST_ROWS = 20_000;

/** So many keys keep their numbers at most, and half of them at least. */
const MOST_NUMBERS = 5 * MOST_ROWS;

/** Two answers about the same end differ by the time that they took; an extension moves it by more, in milliseconds. */
const TOLERANCE_MS = 250;

interface Holding {
  ends: number;
  renewals: number;
}

/** A lock as it was seen at the last look. */
interface Entry {
  readonly info: LockInfo;
  readonly row: LockRow;
  readonly holdings: ReadonlyMap<string, Holding>;
  /** The row without what each extension changes. */
  readonly shape: string;
}

/** A holder that has come or gone between two looks. */
export interface HolderChange {
  readonly key: string;
  readonly holder: LockHolder;
  /** When it ended at the latest, unless it was extended. */
  readonly ends: number;
}

/** What is different since the look before. */
export interface TableChange {
  readonly rows: readonly LockRow[];
  readonly renewed: readonly Renewal[];
  readonly gone: readonly number[];
  readonly begun: readonly HolderChange[];
  readonly ended: readonly HolderChange[];
}

/** What is known of locks beside who holds them. */
export interface Beside {
  /** The ids of the holders that are this process. */
  readonly held: ReadonlySet<string>;
  readonly waitersOf: (key: string) => readonly WaiterRow[];
}

/** The locks as they were at the last look, and what has changed since the one before. */
export class LockTable {
  #entries = new Map<string, Entry>();
  /** A key keeps its number, so that a lock is the same one to the page after it was free for a moment. */
  readonly #numbers = new Map<string, number>();
  readonly #keys = new Map<number, string>();
  #last = 0;
  #unsent = 0;

  /** How many locks there are that are not sent. */
  get unsent(): number {
    return this.#unsent;
  }

  /** All that are sent. */
  get rows(): LockRow[] {
    const rows: LockRow[] = [];
    for (const { row } of this.#entries.values()) rows.push(row);
    return rows;
  }

  /** All who hold a lock. */
  get holders(): HolderChange[] {
    return [...this.#entries.values()].flatMap((entry) =>
      entry.info.holders.map((holder) => changeOf(entry.info.key, holder, entry)),
    );
  }

  /** The key with that number. */
  keyOf(n: number): string | undefined {
    return this.#keys.get(n);
  }

  /** What the nodes say of a key; `undefined` when nobody holds it. */
  infoOf(key: string): LockInfo | undefined {
    return this.#entries.get(key)?.info;
  }

  /** All holders of a key, with their owners whole. */
  holdersOf(key: string, held: Beside['held']): HolderRow[] {
    const entry = this.#entries.get(key);
    if (!entry) return [];
    return entry.info.holders.map((holder) =>
      holderRow(holder, entry.holdings.get(holder.id), held.has(holder.id), whole),
    );
  }

  /** @returns the number of a key, which it gets when it is asked for first */
  numberOf(key: string): number {
    const known = this.#numbers.get(key);
    if (known !== undefined) return known;
    const n = ++this.#last;
    this.#numbers.set(key, n);
    this.#keys.set(n, key);
    return n;
  }

  /** @param now - when the look began, in milliseconds since 1970 */
  update(infos: ReadonlyMap<string, LockInfo>, beside: Beside, now: number): TableChange {
    const rows: LockRow[] = [];
    const renewed: Renewal[] = [];
    const gone: number[] = [];
    const begun: HolderChange[] = [];
    const ended: HolderChange[] = [];
    const entries = new Map<string, Entry>();
    this.#unsent = Math.max(0, infos.size - MOST_ROWS);
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
    for (const { id, remaining } of info.holders)
      holdings.set(id, holdingOf(before?.holdings.get(id), now + remaining));
    const row = rowOf(before?.row.n ?? this.numberOf(info.key), info, holdings, beside);
    const shape = JSON.stringify(row, (name, value: unknown) =>
      name === 'ends' || name === 'renewals' ? undefined : value,
    );
    return { info, row, holdings, shape };
  }

  /** The numbers of keys that have not been held for long. */
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

function holdingOf(before: Holding | undefined, ends: number): Holding {
  if (!before) return { ends, renewals: 0 };
  if (Math.abs(ends - before.ends) <= TOLERANCE_MS || ends === before.ends) return before;
  return { ends, renewals: before.renewals + (ends > before.ends ? 1 : 0) };
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

/** @param shown - what is shown of an owner */
function holderRow(
  { id, owner, since, fencingToken, slot }: LockHolder,
  { ends, renewals }: Readonly<Holding> = { ends: Infinity, renewals: 0 },
  isOwn: boolean,
  shown: (owner: string) => string,
): HolderRow {
  return {
    id,
    owner: shown(owner),
    since: since.getTime(),
    ends: Number.isFinite(ends) ? Math.round(ends) : null,
    renewals,
    token: fencingToken,
    ...(slot !== undefined && { slot }),
    ...(isOwn && { own: true }),
  };
}

function renewalsOf({ row }: Entry, before: Entry): Renewal[] {
  return row.holders.flatMap(({ ends, renewals }, index): Renewal[] =>
    ends === before.row.holders[index]?.ends ? [] : [[row.n, index, ends, renewals]],
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
