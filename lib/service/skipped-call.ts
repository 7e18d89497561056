import { LockHeldError, LockUnavailableError, nameOfTick } from '../core/errors.js';
import type { LockPolicy } from '../core/lock-policy.js';
import type { Log } from '../core/log.js';
import { printable, quoted } from '../core/printable.js';
import { callerOf } from '../telemetry/lock-origin.js';
import type { LockSkippedEvent } from '../telemetry/lock-skipped.js';
import type { LockCall } from './lock-call.js';
import type { LockRuntime } from './lock-runtime.js';

type Reason = Pick<LockSkippedEvent, 'reason' | 'owner' | 'retryAfter' | 'tick'>;

/**
 * Finds the result of a call that got no lock, by `onBusy`: no value if the call is skipped, or the result of the
 * function.
 *
 * @param error - the error of the acquisition
 * @param log - gets a line at level debug for a skipped call
 * @throws `error`, if the call must fail
 */
export async function insteadOf(
  error: unknown,
  { keys, options, origin }: LockCall,
  onBusy: NonNullable<LockPolicy['onBusy']>,
  runtime: LockRuntime,
  log: Pick<Log, 'debug'>,
): Promise<readonly unknown[]> {
  if (onBusy === 'skip') {
    const why = whySkip(error, runtime);
    if (!why) throw error;
    log.debug(`${callerOf(origin)} skipped: ${textOf(keys, why)}`);
    runtime.telemetry.skipped({ ...origin, keys, mode: options.kind.mode, ...why });
    return [];
  }
  if (!(error instanceof LockHeldError) || onBusy === 'throw') throw error;
  return [await onBusy(error)];
}

/** The reason to skip a call instead of throwing `error`; `undefined` when the error must be thrown. */
function whySkip(error: unknown, { isClosed }: LockRuntime): Reason | undefined {
  if (error instanceof LockHeldError) {
    const { owner, retryAfter, ranTick } = error;
    if (ranTick === undefined) return { reason: 'held', owner, retryAfter };
    return { reason: 'tick-ran', owner, tick: ranTick };
  }
  // Skip the call without an error: a shutdown ends schedules and locks at the same time, and the last ticks would be
  // logged as errors.
  if (error instanceof LockUnavailableError && isClosed) return { reason: 'shutdown' };
  return undefined;
}

function textOf(keys: readonly string[], { reason, owner, retryAfter = 0, tick = 0 }: Reason): string {
  const by = printable(owner ?? '');
  switch (reason) {
    case 'held':
      return `${quoted(keys)} is held by ${by} for ${Math.ceil(retryAfter)} ms more`;
    case 'tick-ran':
      return `${by} has already run ${nameOfTick(tick)}`;
    case 'shutdown':
      return 'the application is shutting down';
  }
}
