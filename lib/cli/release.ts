import { createInterface } from 'node:readline/promises';
import type { LockInfo } from '../core/lock-info.js';
import type { RequestFor } from './command-line.js';
import { ExitCode } from './exit-code.js';
import { ageOf, printable, quoted } from './format.js';
import type { Session } from './session.js';
import { print, printJson, type Terminal } from './terminal.js';
import { UsageError } from './usage-error.js';

/** @throws UsageError when nobody can be asked, and `--yes` is not given */
export function checkRelease({ yes }: RequestFor<'release'>, { input }: Terminal): void {
  if (!yes && !input.isTTY) {
    throw new UsageError(
      'release asks before it deletes a lock, and there is no terminal to ask. Write --yes to do it',
    );
  }
}

export async function release(
  { inspection }: Session,
  { key, yes, json }: RequestFor<'release'>,
  terminal: Terminal,
): Promise<number> {
  const info = await inspection.inspect(key);
  const there = info.votes.some(({ vote }) => vote === 'held');
  const agreed = there && (yes || (await agrees(info, terminal)));
  const released = agreed && (await inspection.forceRelease(key));
  if (json) printJson(terminal, { key, released });
  else if (released) print(terminal, `Released ${quoted(key)}. Its holder learns of it at its next renewal.`);
  else print(terminal, there ? `${quoted(key)} was not released.` : `${quoted(key)} is not held.`);
  return released ? ExitCode.Ok : ExitCode.No;
}

async function agrees(
  { key, owner, since, votes }: LockInfo,
  { input, questions, signal }: Terminal,
): Promise<boolean> {
  const holder = votes.find((vote) => vote.vote === 'held');
  const name = printable(owner ?? holder?.owner ?? '');
  const age = since ? `, for ${ageOf(since)}` : '';
  const asking = createInterface({ input, output: questions });
  // Without a listener for Ctrl-C, and at the end of the input, the question would never be settled.
  const gone = new AbortController();
  asking.once('SIGINT', () => gone.abort());
  asking.once('close', () => gone.abort());
  try {
    const question =
      `${quoted(key)} is held by ${name}${age}. Until its holder notices, it works on as if it had the lock.\n` +
      'Release it? [y/N] ';
    const answer = await asking.question(question, { signal: AbortSignal.any([signal, gone.signal]) });
    return /^y(es)?$/i.test(answer.trim());
  } catch (error) {
    if ((error as Error).name !== 'AbortError') throw error;
    return false;
  } finally {
    asking.close();
  }
}
