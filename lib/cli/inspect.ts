import type { LockHolder, LockInfo } from '../core/lock-info.js';
import type { RequestFor } from './command-line.js';
import { ExitCode } from './exit-code.js';
import { ageOf, duration, holderTable, lockJson, voteTable } from './format.js';
import { printable, quoted } from '../core/printable.js';
import type { Session } from './session.js';
import { print, printJson, type Terminal } from './terminal.js';

export async function inspect(
  { inspection }: Session,
  { key, json }: RequestFor<'inspect'>,
  terminal: Terminal,
): Promise<number> {
  const info = await inspection.inspect(key);
  if (json) printJson(terminal, lockJson(info));
  else print(terminal, ...summary(info), '', ...voteTable(info.votes));
  return info.held ? ExitCode.Ok : ExitCode.No;
}

function summary(info: LockInfo): string[] {
  const { key, held, mode, permits, holders, owner = '', since, remaining, fencingToken, id = '' } = info;
  if (!held) return [`${quoted([key])} is ${whyNotHeld(info)}`];
  if (permits !== undefined)
    return [`${quoted([key])}: ${holders.length} of ${permits} permits are taken`, ...indented(holders)];
  if (mode === 'shared') return [`${quoted([key])} is shared by ${holders.length}`, ...indented(holders)];
  const unknown = 'not known';
  return [
    `${quoted([key])} is held`,
    `  mode     ${mode}`,
    `  owner    ${printable(owner)}`,
    `  since    ${since ? `${since.toISOString()}, ${ageOf(since)} ago (by the holder's clock)` : unknown}`,
    `  ends in  ${duration(remaining)}${Number.isFinite(remaining) ? ' unless renewed' : ': it has no expiry'}`,
    `  token    ${fencingToken ?? unknown}`,
    `  id       ${printable(id)}`,
  ];
}

function indented(holders: readonly LockHolder[]): string[] {
  return holderTable(holders).map((line) => `  ${line}`);
}

function whyNotHeld({ votes }: LockInfo): string {
  if (!votes.some(({ vote }) => vote === 'held')) return 'not held';
  return votes.some(({ vote }) => vote === 'error')
    ? 'held on some nodes; other nodes did not answer, so it is unknown if a quorum stores it'
    : 'not held: fewer than a quorum of nodes store it, and it expires there by itself';
}
