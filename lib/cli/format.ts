import { stripVTControlCharacters } from 'node:util';
import type { LockInfo, LockVote } from '../redlock/lock-info.js';

/**
 * Rows under a heading, in columns as wide as their widest cell. A few lines, where a package for tables would be a
 * dependency of every application.
 */
export function table(heading: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const all = [heading, ...rows].map((row) => row.map(printable));
  const widths = heading.map((_, column) => {
    let width = 0;
    for (const row of all) width = Math.max(width, row[column]?.length ?? 0);
    return width;
  });
  return all.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}

/** Keys and owners can be any text; what would move the cursor or begin a new line is written as an escape. */
export function printable(text: string): string {
  return stripVTControlCharacters(text).replaceAll(
    /[\p{Cc}\u2028\u2029]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** Milliseconds for people. */
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

/** A key for people. */
export function quoted(key: string): string {
  return `"${printable(key)}"`;
}

const HEADING = ['KEY', 'OWNER', 'HELD FOR', 'ENDS IN', 'TOKEN', 'NODES'];

/** A table of locks. */
export function lockTable(infos: readonly LockInfo[]): string[] {
  return table(HEADING, infos.map(lockRow));
}

function lockRow({ key, held, owner, since, remaining, fencingToken, votes }: LockInfo): string[] {
  const nodes = `${votes.filter(({ vote }) => vote === 'held').length} of ${votes.length}`;
  if (!held) return [key, '(no quorum)', '', '', '', nodes];
  return [key, owner ?? '', ageOf(since), duration(remaining), String(fencingToken ?? ''), nodes];
}

/** What the nodes say of one key. */
export function voteTable(votes: readonly LockVote[]): string[] {
  const rows = votes.map((vote) => {
    if (vote.vote === 'error') return [vote.node, 'error', vote.error.message];
    if (vote.vote === 'free') return [vote.node, 'free'];
    return [vote.node, 'held', vote.owner, vote.id, duration(vote.remaining), String(vote.counter ?? '')];
  });
  // An error is a sentence, and would make its column too wide for the others.
  const errors = rows.filter(([, vote]) => vote === 'error').map((cells) => cells.join('  '));
  const others = rows.filter(([, vote]) => vote !== 'error');
  const heading = ['NODE', 'SAYS', 'OWNER', 'ID', 'ENDS IN', 'COUNTER'];
  return [...(others.length > 0 ? table(heading, others) : []), ...errors.map(printable)];
}

/** How long something lasts already. The holder's clock may differ from ours. */
export function ageOf(since: Date | undefined): string {
  return since === undefined ? '' : duration(Math.max(0, Date.now() - since.getTime()));
}

/** A lock for programs. JSON has no Infinity, so `remaining` is `null` for a key without expiry. */
export function lockJson({ key, held, id, owner, since, remaining, fencingToken, votes }: LockInfo): object {
  return {
    key,
    held,
    id: id ?? null,
    owner: owner ?? null,
    since: since ?? null,
    remaining: finite(remaining),
    fencingToken: fencingToken ?? null,
    votes: votes.map((vote) => {
      if (vote.vote === 'error') return { ...vote, error: vote.error.message };
      if (vote.vote === 'free') return vote;
      const { since: acquired = null, counter = null } = vote;
      return { ...vote, since: acquired, remaining: finite(vote.remaining), counter };
    }),
  };
}

function finite(milliseconds: number): number | null {
  return Number.isFinite(milliseconds) ? Math.round(milliseconds) : null;
}
