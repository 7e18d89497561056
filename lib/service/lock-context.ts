import { AsyncLocalStorage } from 'node:async_hooks';
import type { LockScope } from './lock-scope.js';
import type { LockHandle } from '../core/lock-handle.js';

/** What runs under a lock, and what runs around that. */
interface Frame {
  readonly run: LockScope;
  readonly outer: Frame | undefined;
}

const frames = new AsyncLocalStorage<Frame>();

/** Runs `task` so that it, and all that it starts, finds itself in `run`. */
export function runInside<T>(run: LockScope, task: () => T): T {
  return frames.run({ run, outer: frames.getStore() }, task);
}

/**
 * The lock that the running call is under: the innermost one, or the innermost one that has `key`.
 * `undefined` outside of locked code. It may have been lost meanwhile; ask its `isHeld()`.
 *
 * @example
 * ```ts
 * import { currentLock } from 'nestjs-redlock';
 *
 * await fetch('https://bank.example', { signal: currentLock()?.signal });
 * ```
 */
export function currentLock(key?: string): LockHandle | undefined {
  return currentRun(({ lock }) => key === undefined || lock.keys.includes(key))?.lock;
}

/** Like {@link currentLock}, for the locks that `source` acquired. */
export function currentLockOf(source: object, key?: string): LockHandle | undefined {
  return currentRun((run) => run.source === source && (key === undefined || run.lock.keys.includes(key)))
    ?.lock;
}

/** The innermost run that the running call is in and that `fits`. */
export function currentRun(fits: (run: LockScope) => boolean): LockScope | undefined {
  for (let frame = frames.getStore(); frame; frame = frame.outer) {
    if (fits(frame.run)) return frame.run;
  }
  return undefined;
}
