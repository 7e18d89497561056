import { LEADER_PREFIX } from '../core/keys.js';
import type { LockInfo } from '../core/lock-info.js';
import type { RequestFor } from './command-line.js';
import { ExitCode } from './exit-code.js';
import { ageOf, duration, table } from './format.js';
import { locksOf } from './list.js';
import type { Session } from './session.js';
import { print, printJson, type Terminal } from './terminal.js';

/** Prints the leader of each name. */
export async function leaders(
  session: Session,
  { json }: RequestFor<'leaders'>,
  terminal: Terminal,
): Promise<number> {
  const infos = (await locksOf(session, LEADER_PREFIX, undefined)).filter(({ held }) => held);
  if (json) printJson(terminal, infos.map(leaderJson));
  else if (infos.length === 0) print(terminal, 'No leaders.');
  else print(terminal, ...leaderTable(infos, terminal.output.columns));
  return ExitCode.Ok;
}

function leaderTable(infos: readonly LockInfo[], most: number | undefined): string[] {
  const rows = infos.map(({ key, owner = '', since, remaining, fencingToken }) => [
    nameOf(key),
    owner,
    ageOf(since),
    duration(remaining),
    String(fencingToken ?? ''),
  ]);
  return table(['LEADER', 'OWNER', 'LEADS FOR', 'ENDS IN', 'TERM'], rows, most);
}

function leaderJson({ key, owner, since, remaining, fencingToken }: LockInfo): object {
  const endsIn = Number.isFinite(remaining) ? Math.round(remaining) : null;
  return { leader: nameOf(key), owner, since, remaining: endsIn, fencingToken: fencingToken ?? null };
}

function nameOf(key: string): string {
  return key.slice(LEADER_PREFIX.length);
}
