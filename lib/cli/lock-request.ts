import { LONGEST_TIMER_MS } from '../core/checks.js';
import type { LockKindOptions } from '../core/lock-options.js';
import { MOST_PERMITS } from '../core/lock-mode.js';
import type { Target } from './target.js';
import { durationOf } from './duration-option.js';
import { wholeNumber } from './number-option.js';
import { UsageError } from './usage-error.js';

/** Shortest ttl, because a machine under load may not renew a shorter one in time, in milliseconds. */
const SHORTEST_TTL_MS = 1_000;

/** Time between SIGTERM and SIGKILL after the loss of a lock, in milliseconds. */
const DEFAULT_KILL_AFTER_MS = 5_000;

/** Most characters of a reason. With the rest of the owner's name they fit into the 255 that MySQL stores. */
const LONGEST_REASON = 120;

/** A command line that asks for a lock. */
export interface LockRequest {
  readonly target: Target;
  readonly key: string;
  readonly kind: LockKindOptions;
  /** Milliseconds; `undefined` for the default of the library. */
  readonly ttl: number | undefined;
  /** Longest wait in milliseconds; 0 for one attempt; `undefined` to wait as long as others hold the lock. */
  readonly wait: number | undefined;
  /** Writes nothing about a lock that others hold. */
  readonly quiet: boolean;
}

export interface RunRequest extends LockRequest {
  readonly command: 'run';
  /** Milliseconds for which others find the key locked, even if the command ends sooner. */
  readonly minHold: number | undefined;
  /** Milliseconds from SIGTERM to SIGKILL after the loss of the lock. */
  readonly killAfter: number;
  /** The command to run, with its arguments. */
  readonly words: readonly string[];
}

export interface HoldRequest extends LockRequest {
  readonly command: 'hold';
  /** Milliseconds from now. */
  readonly duration: number;
  readonly reason: string;
}

const LOCK_OPTIONS = ['ttl', 'wait', 'skip', 'quiet'] as const;

/** The options of `run` besides those that name the nodes. */
export const RUN_OPTIONS: readonly string[] = [
  ...LOCK_OPTIONS,
  'permits',
  'shared',
  'min-hold',
  'kill-after',
];

/** The options of `hold` besides those that name the nodes. */
export const HOLD_OPTIONS: readonly string[] = [...LOCK_OPTIONS, 'for', 'reason'];

/** Values of these options, as they are on the command line. */
interface Values {
  readonly ttl?: string | undefined;
  readonly wait?: string | undefined;
  readonly skip?: boolean | undefined;
  readonly quiet?: boolean | undefined;
  readonly permits?: string | undefined;
  readonly shared?: boolean | undefined;
  readonly 'min-hold'?: string | undefined;
  readonly 'kill-after'?: string | undefined;
  readonly for?: string | undefined;
  readonly reason?: string | undefined;
}

/**
 * @param words - the words after `--`; `undefined` without `--`
 * @throws UsageError
 */
export function runOf(
  target: Target,
  key: string,
  values: Values,
  words: readonly string[] | undefined,
): RunRequest {
  if (words === undefined || words.length === 0)
    throw new UsageError(
      `No command to run. Write it after --, as in nestjs-redlock run ${key} -- node report.js`,
    );
  const { permits, shared = false } = values;
  if (shared && permits !== undefined)
    throw new UsageError('--shared and --permits are two kinds of lock: leave out one of them');
  const minHold = durationOf('--min-hold', values['min-hold'], 1);
  if (shared && minHold !== undefined)
    throw new UsageError('--min-hold needs an exclusive lock or --permits: leave out --shared');
  const count = wholeNumber('--permits', permits, 1);
  if (count !== undefined && count > MOST_PERMITS)
    throw new UsageError(`Expected --permits to be at most ${MOST_PERMITS}, got "${count}"`);
  const kind = count === undefined ? (shared ? { mode: 'shared' as const } : {}) : { permits: count };
  const killAfter = durationOf('--kill-after', values['kill-after'], 0) ?? DEFAULT_KILL_AFTER_MS;
  return { command: 'run', ...lockOf(target, key, values), kind, minHold, killAfter, words };
}

/** @throws UsageError */
export function holdOf(target: Target, key: string, values: Values): HoldRequest {
  const example = `nestjs-redlock hold ${key} --for 2h --reason "migration 42"`;
  const duration = durationOf('--for', values.for, 1);
  if (duration === undefined) throw new UsageError(`No end of the hold. Write ${example}`);
  const { reason } = values;
  if (reason === undefined || reason.trim() === '')
    throw new UsageError(`No reason, which all who ask for the lock are told. Write ${example}`);
  if (reason.length > LONGEST_REASON)
    throw new UsageError(
      `Expected --reason to have at most ${LONGEST_REASON} characters, got ${reason.length}`,
    );
  const lock = lockOf(target, key, values);
  // A wait beyond the end of the hold has no use.
  const wait = Math.min(lock.wait ?? LONGEST_TIMER_MS, duration);
  return { command: 'hold', ...lock, kind: {}, wait, duration, reason: reason.trim() };
}

function lockOf(target: Target, key: string, { ttl, wait, skip = false, quiet = false }: Values) {
  if (skip && wait !== undefined) throw new UsageError('--skip does not wait: leave out --skip or --wait');
  return {
    target,
    key,
    ttl: durationOf('--ttl', ttl, SHORTEST_TTL_MS),
    wait: skip ? 0 : durationOf('--wait', wait, 1),
    quiet,
  };
}
