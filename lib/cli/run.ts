import type { LockHandle } from '../core/lock-handle.js';
import { RunExitCode } from './exit-code.js';
import { duration } from './format.js';
import type { RunRequest } from './lock-request.js';
import { say } from './open-locks.js';
import { type CommandEnd, ProcessGroup } from './process-group.js';
import type { Signals } from './signals.js';
import { underLock } from './under-lock.js';

/**
 * Runs a command under a lock.
 *
 * @returns the end of the command, or the exit code of `run` itself
 * @throws UsageError
 */
export function run(request: RunRequest): Promise<CommandEnd> {
  return underLock(request, undefined, (lock, signals) => runUnder(lock, signals, request));
}

async function runUnder(
  lock: LockHandle,
  signals: Signals,
  { words, killAfter }: RunRequest,
): Promise<CommandEnd> {
  const env = {
    REDLOCK_TOKEN: String(lock.fencingToken),
    // The tokens of permits count for each slot. A variable of a lock around this one must not stay.
    REDLOCK_SLOT: lock.slot === undefined ? undefined : String(lock.slot),
  };
  const group = await ProcessGroup.start(words, env);
  signals.forwardTo((name) => group.signal(name));
  let stopped: Promise<void> | undefined;
  const lost = (): void => {
    stopped = group.stop(killAfter);
    // The library logs why.
    say(`The lock is lost: the command gets SIGTERM, and SIGKILL after ${duration(killAfter)}`);
  };
  if (lock.signal.aborted) lost();
  lock.signal.addEventListener('abort', lost, { once: true });
  const end = await group.ended;
  lock.signal.removeEventListener('abort', lost);
  await stopped;
  // The clock also knows of a loss of which the signal has not told yet (S10).
  if (lock.isHeld()) return end;
  const how = end.signal === undefined ? `exit code ${end.code}` : end.signal;
  say(`The lock was lost before the command ended (${how})`);
  return { code: RunExitCode.Lost };
}
