import type { LockInfo } from '../core/lock-info.js';
import type { RequestFor } from './command-line.js';
import { ExitCode } from './exit-code.js';
import { lockJson, lockTable } from './format.js';
import type { Session } from './session.js';
import { print, printJson, type Terminal } from './terminal.js';

/** Returns the present locks, sorted by key. */
export async function locksOf(
  { inspection }: Session,
  prefix: string,
  limit: number | undefined,
): Promise<LockInfo[]> {
  // A scan may return a key twice; the map keeps it once.
  const infos = new Map<string, LockInfo>();
  for await (const info of inspection.list({ prefix, ...(limit !== undefined && { limit }) }))
    infos.set(info.key, info);
  return [...infos.values()].toSorted((a, b) => (a.key < b.key ? -1 : 1));
}

export async function list(
  session: Session,
  { prefix, limit, json }: RequestFor<'list'>,
  terminal: Terminal,
): Promise<number> {
  const infos = await locksOf(session, prefix, limit);
  if (json) printJson(terminal, infos.map(lockJson));
  else if (infos.length === 0) print(terminal, 'No locks.');
  else print(terminal, ...lockTable(infos, terminal.output.columns));
  return ExitCode.Ok;
}
