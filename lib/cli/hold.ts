import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { nameOfHold } from '../core/hold-name.js';
import { quoted } from '../core/printable.js';
import { ExitCode, RunExitCode } from './exit-code.js';
import type { HoldRequest } from './lock-request.js';
import type { CommandEnd } from './process-group.js';
import { print, type Terminal } from './terminal.js';
import { underLock } from './under-lock.js';
import { userName } from './user-name.js';

/** Longest time in milliseconds between two looks at the clock: it can be set while the process waits. */
const LOOK_MS = 60_000;

/**
 * Holds a lock until the end of the request, or until a signal asks this process to end. The reason and the end are in
 * the owner's name, which every store keeps with the lock and every version of the library shows.
 *
 * @throws UsageError
 */
export function hold(request: HoldRequest, terminal: Terminal): Promise<CommandEnd> {
  const { key, duration, reason } = request;
  const end = Date.now() + duration;
  const until = new Date(end).toISOString().replace(/\.\d+Z$/, 'Z');
  const owner = nameOfHold({ by: ownName(), until, reason });
  return underLock(request, owner, async (lock, { ending }) => {
    print(terminal, `Holding ${quoted([key])} until ${until}   Ctrl-C ends`);
    const over = AbortSignal.any([ending, lock.signal]);
    for (let left = end - Date.now(); left > 0 && !over.aborted; left = end - Date.now())
      await sleep(Math.min(left, LOOK_MS), undefined, { signal: over }).catch(() => undefined);
    if (!lock.isHeld()) return { code: RunExitCode.Lost };
    print(terminal, `Released ${quoted([key])}`);
    return { code: ExitCode.Ok };
  });
}

function ownName(): string {
  const user = userName();
  return `${user === undefined ? '' : `${user}@`}${hostname()}:${process.pid}`;
}
