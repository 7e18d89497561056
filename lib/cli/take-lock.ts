import { LockHeldError, LockUnavailableError } from '../core/errors.js';
import { LONGEST_TIMER_MS } from '../core/checks.js';
import type { LockHandle } from '../core/lock-handle.js';
import type { RetryOptions } from '../core/lock-options.js';
import type { Locks } from '../standalone/locks.js';
import type { HoldRequest, RunRequest } from './lock-request.js';
import { say } from './open-locks.js';
import { type Refusal, whyHeld } from './refusal.js';
import { UsageError } from './usage-error.js';

/** Longest time without an answer of a quorum before the first one, unless `--wait` is given, in milliseconds. */
const UNREACHABLE_MS = 5_000;

/**
 * Waits for the lock of a request.
 *
 * @param ending - ends the wait
 * @throws LockHeldError, LockUnavailableError, UsageError, or the reason of `ending`
 */
export async function takeLock(
  locks: Locks,
  request: RunRequest | HoldRequest,
  ending: AbortSignal,
): Promise<LockHandle> {
  const { command, key, kind, ttl, wait, quiet } = request;
  const minHold = command === 'run' ? request.minHold : undefined;
  const options = {
    ...kind,
    label: command,
    signal: ending,
    ...(ttl !== undefined && { ttl }),
    ...(minHold !== undefined && { minHold }),
  };
  const attempt = (retry: RetryOptions | false): Promise<LockHandle | Refusal> =>
    orAbort(locks.acquire(key, { ...options, retry }), ending).catch(refusalOf);
  const begun = performance.now();
  const left = (limit: number): number => Math.max(1, Math.round(begun + limit - performance.now()));

  // One attempt outside of the queue tells whether there is a wait, and why.
  let result = await attempt(false);
  // Nodes that do not answer at first are probably a mistake in the command line. Once they have answered, the wait
  // outlasts their absence.
  if (result instanceof LockUnavailableError && wait === undefined)
    result = await attempt({ timeout: left(UNREACHABLE_MS) });
  const goesOn = wait === undefined ? result instanceof LockHeldError : isRefusal(result) && wait > 0;
  if (goesOn) {
    if (result instanceof LockHeldError && !quiet) say(`${whyHeld(result)}; waiting`);
    result = await attempt({ timeout: left(wait ?? LONGEST_TIMER_MS) });
  }
  if (isRefusal(result)) throw result;
  return result;
}

function isRefusal(result: unknown): result is Refusal {
  return result instanceof LockHeldError || result instanceof LockUnavailableError;
}

function refusalOf(error: unknown): Refusal {
  if (isRefusal(error)) return error;
  // The library has refused an option, such as a ttl that the store cannot keep.
  if (error instanceof RangeError || error instanceof TypeError) throw new UsageError(error.message);
  throw error;
}

/** Rejects when the signal aborts, also while the nodes connect, which no signal ends. */
function orAbort<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const aborted = (): void => reject(signal.reason as Error);
    if (signal.aborted) aborted();
    signal.addEventListener('abort', aborted, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', aborted));
  });
}
