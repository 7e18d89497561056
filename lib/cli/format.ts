import { printable, printableText } from '../core/printable.js';
import type { LockHolder, LockInfo, LockVote } from '../core/lock-info.js';

/** Smallest width to which the first column is shortened, in characters. */
const NARROWEST = 16;

/**
 * Formats rows under a heading, each column as wide as its widest cell. It uses no package for tables, because that
 * package would be a dependency of every application.
 *
 * @param most - width of the terminal: cells of the first column are shortened when a row would be wider
 */
export function table(
  heading: readonly string[],
  rows: readonly (readonly string[])[],
  most = Infinity,
): string[] {
  const all = [heading, ...rows].map((row) => row.map(printable));
  const widths = heading.map((_, column) => {
    let width = 0;
    for (const row of all) width = Math.max(width, widthOf(row[column] ?? ''));
    return width;
  });
  const [first = 0, ...others] = widths;
  const left = most - others.reduce((sum, width) => sum + width + 2, 0);
  if (first > left) widths[0] = Math.max(NARROWEST, left);
  return all.map((row) =>
    row
      .map((cell, column) => {
        const width = widths[column] ?? 0;
        const shown = shortened(cell, width);
        return shown + ' '.repeat(width - widthOf(shown));
      })
      .join('  ')
      .trimEnd(),
  );
}

/** Cuts out the middle of a text that is too long, because keys differ at the beginning or at the end. */
function shortened(text: string, width: number): string {
  if (widthOf(text) <= width) return text;
  const characters = [...text];
  const half = (width - 1) / 2;
  let [start, end] = ['', ''];
  for (const character of characters) {
    if (widthOf(start + character) > Math.ceil(half)) break;
    start += character;
  }
  for (const character of characters.toReversed()) {
    if (widthOf(character + end) > Math.floor(half)) break;
    end = character + end;
  }
  return `${start}\u2026${end}`;
}

/** Characters that are two columns wide: Chinese, Japanese, Korean and emoji. */
const WIDE =
  /[\u1100-\u115F\u2E80-\uA4CF\uAC00-\uD7A3\uF900-\uFAFF\uFE30-\uFE6F\uFF00-\uFF60\uFFE0-\uFFE6\u{1F300}-\u{1FAFF}\u{20000}-\u{3FFFD}]/u;

/** Number of terminal columns that a text takes. */
function widthOf(text: string): number {
  let width = 0;
  for (const character of text) width += WIDE.test(character) ? 2 : /\p{Mn}/u.test(character) ? 0 : 1;
  return width;
}

/** Formats milliseconds for people. */
export function duration(milliseconds: number): string {
  if (milliseconds === Infinity) return 'for ever';
  if (milliseconds < 1_000) return `${Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1_000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const HEADING = ['KEY', 'MODE', 'OWNER', 'HELD FOR', 'ENDS IN', 'TOKEN', 'NODES'];

/**
 * Formats a table of locks.
 *
 * @param most - width of the terminal
 */
export function lockTable(infos: readonly LockInfo[], most?: number): string[] {
  return table(HEADING, infos.map(lockRow), most);
}

function lockRow(info: LockInfo): string[] {
  const { key, held, owner = '', holders, since, remaining, fencingToken, votes } = info;
  const nodes = `${votes.filter(({ vote }) => vote === 'held').length} of ${votes.length}`;
  if (!held) return [key, '', '(no quorum)', '', '', '', nodes];
  const others = holders.length > 1 ? ` and ${holders.length - 1} more` : '';
  const token = String(fencingToken ?? '');
  return [key, modeOf(info), owner + others, ageOf(since), duration(remaining), token, nodes];
}

/** The mode of a lock; for permits, the number of held permits. */
export function modeOf({ mode, permits, holders }: LockInfo): string {
  return permits === undefined ? (mode ?? '') : `${holders.length} of ${permits}`;
}

/** Formats the holders of a lock as a table, in the order in which their locks end. */
export function holderTable(holders: readonly LockHolder[]): string[] {
  const hasSlots = holders.some(({ slot }) => slot !== undefined);
  const columns = ['OWNER', 'ID', 'HELD FOR', 'ENDS IN', 'TOKEN'];
  const rows = holders.map(({ owner, id, since, remaining, fencingToken, slot }) => {
    const cells = [owner, id, ageOf(since), duration(remaining), String(fencingToken ?? '')];
    return hasSlots ? [String(slot ?? ''), ...cells] : cells;
  });
  return table(hasSlots ? ['SLOT', ...columns] : columns, rows);
}

/** Formats the answers of the nodes about one key as a table. */
export function voteTable(votes: readonly LockVote[]): string[] {
  const rows = votes.flatMap((vote) => {
    if (vote.vote === 'error') return [[vote.node, 'error', vote.error.message]];
    if (vote.vote === 'free') return [[vote.node, 'free']];
    return vote.holders.map(({ owner, id, remaining, fencingToken, slot }, index) => [
      index === 0 ? vote.node : '',
      slot === undefined ? 'held' : `slot ${slot}`,
      owner,
      id,
      duration(remaining),
      String(fencingToken),
    ]);
  });
  // An error is a long text and would make its column too wide, so rows with errors stand below the table.
  const errors = rows
    .filter(([, vote]) => vote === 'error')
    .map((cells) => cells.map(printableText).join('  '));
  const others = rows.filter(([, vote]) => vote !== 'error');
  const heading = ['NODE', 'SAYS', 'OWNER', 'ID', 'ENDS IN', 'TOKEN'];
  return [...(others.length > 0 ? table(heading, others) : []), ...errors];
}

/**
 * Formats the time since a holder acquired its lock. The time is at least 0, because the holder's clock may be ahead of
 * this machine's clock.
 */
export function ageOf(since: Date | undefined): string {
  return since === undefined ? '' : duration(Math.max(0, Date.now() - since.getTime()));
}

/** Formats a lock as JSON for programs. JSON has no Infinity, so `remaining` is `null` for a key without expiry. */
export function lockJson(info: LockInfo): object {
  const { key, held, mode, permits, id, owner, since, remaining, fencingToken, holders, votes } = info;
  return {
    key,
    held,
    mode: mode ?? null,
    permits: permits ?? null,
    id: id ?? null,
    owner: owner ?? null,
    since: since ?? null,
    remaining: finite(remaining),
    fencingToken: fencingToken ?? null,
    holders: holders.map(holderJson),
    votes: votes.map((vote) => {
      if (vote.vote === 'error') return { ...vote, error: vote.error.message };
      if (vote.vote === 'free') return vote;
      return { ...vote, remaining: finite(vote.remaining), holders: vote.holders.map(holderJson) };
    }),
  };
}

/** Formats a holder as JSON for programs. */
export function holderJson({ remaining, fencingToken, ...holder }: LockHolder): object {
  return { ...holder, remaining: finite(remaining), fencingToken: fencingToken ?? null };
}

function finite(milliseconds: number): number | null {
  return Number.isFinite(milliseconds) ? Math.round(milliseconds) : null;
}
