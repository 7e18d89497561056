import { LockUnavailableError } from '../core/errors.js';
import type { LockHolder, LockInfo } from '../core/lock-info.js';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RequestFor } from './command-line.js';
import { ExitCode } from './exit-code.js';
import { holderJson, lockTable } from './format.js';
import { printable, printableText } from '../core/printable.js';
import { locksOf } from './list.js';
import type { Session } from './session.js';
import { print, printJson, type Terminal } from './terminal.js';

/** Terminal codes: move the cursor to the upper left corner, and clear the screen from there. */
const CLEAR = '\u001B[H\u001B[J';

/** Change of a lock between two polls. */
type Change = 'held' | 'acquired' | 'released';

/**
 * Polls until the signal of the terminal aborts. A terminal gets a table that is redrawn; any other output, and any
 * output with `json`, gets a line for each change. A node that does not answer is reported, and asked again at the next
 * poll.
 */
export async function watch(
  session: Session,
  { prefix, interval, json }: RequestFor<'watch'>,
  terminal: Terminal,
): Promise<number> {
  const { signal, output } = terminal;
  const show = output.isTTY && !json ? screen(terminal) : lines(terminal, json);
  while (!signal.aborted) {
    try {
      show.locks(await locksOf(session, prefix, undefined));
    } catch (error) {
      if (!(error instanceof LockUnavailableError)) throw error;
      show.unavailable(error);
    }
    await sleep(interval, undefined, { signal }).catch(() => undefined);
  }
  show.end?.();
  return ExitCode.Ok;
}

interface View {
  end?(): void;
  locks(infos: readonly LockInfo[]): void;
  unavailable(error: Error): void;
}

function screen(terminal: Terminal): View {
  const draw = (...body: readonly string[]): void => {
    // A table longer than the screen would scroll, and the next table would be drawn below it.
    const rows = Math.max(5, (terminal.output.rows ?? 24) - 4);
    const more = body.length > rows ? [`... and ${body.length - rows} more`] : [];
    const head = `${new Date().toISOString()}   Ctrl-C ends`;
    terminal.output.write(`${CLEAR}${[head, '', ...body.slice(0, rows), ...more].join('\n')}\n`);
  };
  return {
    locks: (infos) =>
      draw(
        infos.length === 1 ? '1 lock' : `${infos.length} locks`,
        '',
        ...(infos.length > 0 ? lockTable(infos, terminal.output.columns) : []),
      ),
    unavailable: (error) => draw(printableText(error.message)),
    // Begin a new line: the terminal shows ^C on the last line.
    end: () => terminal.output.write('\n'),
  };
}

/** A holder, with its key. */
interface Held extends LockHolder {
  readonly key: string;
}

function lines(terminal: Terminal, json: boolean): View {
  let known: ReadonlyMap<string, Held> | undefined;
  const say = (change: Change, held: Held): void => {
    const time = new Date().toISOString();
    if (json) return printJson(terminal, { time, change, ...holderJson(held) });
    const { key, owner, mode, slot, fencingToken } = held;
    const how = mode === 'exclusive' ? '' : `  ${slot === undefined ? mode : `slot ${slot}`}`;
    const token = fencingToken === undefined ? '' : `  token ${fencingToken}`;
    print(terminal, `${time}  ${change.padEnd(8)}  ${printable(key)}  ${printable(owner)}${how}${token}`);
  };
  return {
    locks(infos) {
      const seen = new Map<string, Held>();
      // Keys without holders are left out: only some nodes store such a key, because an attempt or a release is under
      // way.
      for (const { key, holders } of infos)
        for (const holder of holders) seen.set(JSON.stringify([key, holder.id]), { key, ...holder });
      for (const [name, held] of known ?? []) if (!seen.has(name)) say('released', held);
      for (const [name, held] of seen) if (!known?.has(name)) say(known ? 'acquired' : 'held', held);
      known = seen;
    },
    unavailable(error) {
      const time = new Date().toISOString();
      if (json) printJson(terminal, { time, change: 'unavailable', error: error.message });
      else print(terminal, `${time}  unavailable  ${printableText(error.message)}`);
    },
  };
}
