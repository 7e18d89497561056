import { asError, LockHeldError, LockUnavailableError } from '../core/errors.js';
import type { LockHandle } from '../core/lock-handle.js';
import { RunExitCode } from './exit-code.js';
import type { HoldRequest, RunRequest } from './lock-request.js';
import { openLocks, say } from './open-locks.js';
import { type CommandEnd, StartError } from './process-group.js';
import { whyHeld, whyUnavailable } from './refusal.js';
import { InterruptedError, Signals } from './signals.js';
import { takeLock } from './take-lock.js';
import { UsageError } from './usage-error.js';

/**
 * Acquires the lock of a request, uses it, and releases it.
 *
 * @param owner - the name that others see; `undefined` for host:pid
 * @throws UsageError
 */
export async function underLock(
  request: RunRequest | HoldRequest,
  owner: string | undefined,
  use: (lock: LockHandle, signals: Signals) => Promise<CommandEnd>,
): Promise<CommandEnd> {
  const signals = new Signals();
  // A pipe whose reader has gone, or a closed terminal, must not end this process before the command.
  process.stderr.on('error', () => undefined);
  try {
    const locks = await openLocks(request.target, owner);
    try {
      const lock = await takeLock(locks, request, signals.ending);
      try {
        signals.ending.throwIfAborted();
        return await use(lock, signals);
      } finally {
        await lock.release();
      }
    } finally {
      await locks.close();
    }
  } catch (error) {
    return endOf(error, request);
  } finally {
    signals.stop();
  }
}

function endOf(error: unknown, { quiet, wait }: RunRequest | HoldRequest): CommandEnd {
  if (error instanceof UsageError) throw error;
  if (error instanceof InterruptedError) return { signal: error.by };
  if (error instanceof LockHeldError) {
    const gaveUp = wait === undefined || wait === 0 ? '' : '; gave up at the end of the wait';
    if (!quiet) say(whyHeld(error) + gaveUp);
    return { code: RunExitCode.Held };
  }
  if (error instanceof LockUnavailableError) {
    say(whyUnavailable(error));
    process.stderr.write('Try nestjs-redlock doctor\n');
    return { code: RunExitCode.Unavailable };
  }
  // Only the message: an error of a client also carries its command, which may contain a password.
  say(asError(error).message);
  return { code: error instanceof StartError ? error.code : RunExitCode.Unexpected };
}
