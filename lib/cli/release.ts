import { createInterface } from 'node:readline/promises';
import type { LockHolder, LockInfo } from '../core/lock-info.js';
import type { RequestFor } from './command-line.js';
import { ExitCode } from './exit-code.js';
import { ageOf } from './format.js';
import { printable, quoted } from '../core/printable.js';
import type { Session } from './session.js';
import { print, printJson, type Terminal } from './terminal.js';
import { UsageError } from './usage-error.js';

/** @throws UsageError when `--yes` is missing and there is no terminal to ask for confirmation */
export function checkRelease({ yes }: RequestFor<'release'>, { input }: Terminal): void {
  if (!yes && !input.isTTY) {
    throw new UsageError(
      'release asks for confirmation, and the input is not a terminal. Write --yes to release without confirmation',
    );
  }
}

export async function release(
  { inspection }: Session,
  { key, id, yes, json }: RequestFor<'release'>,
  terminal: Terminal,
): Promise<number> {
  const info = await inspection.inspect(key);
  const concerned = holdersOf(info).filter((holder) => id === undefined || holder.id === id);
  const there = concerned.length > 0;
  const agreed = there && (yes || (await agrees(info, concerned, terminal)));
  const released = agreed && (await inspection.forceRelease(key, id === undefined ? {} : { id }));
  const several = concerned.length > 1;
  if (json) printJson(terminal, { key, ...(id === undefined ? {} : { id }), released });
  else if (released) {
    const who = several
      ? 'Its holders notice the loss at their next renewals.'
      : 'Its holder notices the loss at its next renewal.';
    print(
      terminal,
      id === undefined
        ? `Released ${quoted([key])}. ${who}`
        : `Released ${quoted([key])} for one of its holders. That holder notices the loss at its next renewal.`,
    );
  } else if (there) print(terminal, `${quoted([key])} was not released.`);
  else
    print(terminal, `${quoted([key])} ${id === undefined ? 'is not held' : 'has no holder with that id'}.`);
  return released ? ExitCode.Ok : ExitCode.No;
}

/** The holders of the key, including holders that fewer than a quorum of nodes store. */
function holdersOf({ holders, votes }: LockInfo): readonly LockHolder[] {
  const all = votes.flatMap((vote) => (vote.vote === 'held' ? vote.holders : []));
  const known = new Map([...all, ...holders].map((holder) => [holder.id, holder]));
  return [...known.values()];
}

async function agrees(
  { key }: LockInfo,
  concerned: readonly LockHolder[],
  { input, errors, signal }: Terminal,
): Promise<boolean> {
  const [holder, ...others] = concerned;
  const more = others.length > 0 ? ` and ${others.length} more` : `, for ${ageOf(holder?.since)}`;
  const name = printable(holder?.owner ?? '') + more;
  const asking = createInterface({ input, output: errors });
  // The question of readline stays unanswered for ever after Ctrl-C or the end of the input, unless a signal aborts it.
  const gone = new AbortController();
  asking.once('SIGINT', () => gone.abort());
  asking.once('close', () => gone.abort());
  try {
    const until =
      others.length > 0
        ? 'After the release its holders continue to work until they notice the loss at their next renewals.'
        : 'After the release its holder continues to work until it notices the loss at its next renewal.';
    const question = `${quoted([key])} is held by ${name}. ${until}\nRelease it? [y/N] `;
    const answer = await asking.question(question, { signal: AbortSignal.any([signal, gone.signal]) });
    return /^y(es)?$/i.test(answer.trim());
  } catch (error) {
    if ((error as Error).name !== 'AbortError') throw error;
    return false;
  } finally {
    asking.close();
  }
}
