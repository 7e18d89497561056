import { AsyncLocalStorage } from 'node:async_hooks';
import type { RunnableLock } from './lock-run.js';
import type { LockHandle } from './redlock/lock-handle.js';

/** One lock that the running call is under, and the locks around it. */
export interface Frame {
  readonly lock: RunnableLock;
  /** Who acquired it: two module instances can have different locks of the same key. */
  readonly source: object;
  readonly outer: Frame | undefined;
  /** Whether a nested call has joined the lock from here and still runs; another one would run side by side with it. */
  joined: boolean;
}

const frames = new AsyncLocalStorage<Frame>();

/** Runs `task`, and all that it starts, under `lock`. */
export function runUnder<T>(lock: RunnableLock, source: object, task: () => T): T {
  return frames.run({ lock, source, outer: frames.getStore(), joined: false }, task);
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
  return find((frame) => key === undefined || frame.lock.keys.includes(key))?.lock;
}

/** Like {@link currentLock}, for the locks that `source` acquired. */
export function currentLockOf(source: object, key?: string): LockHandle | undefined {
  return currentFrameOf(source, key === undefined ? [] : [key])?.lock;
}

/** Where the running call is under a lock of `source` that has all the keys; the innermost such place. */
export function currentFrameOf(source: object, keys: readonly string[]): Frame | undefined {
  return find((frame) => frame.source === source && keys.every((key) => frame.lock.keys.includes(key)));
}

function find(fits: (frame: Frame) => boolean): Frame | undefined {
  for (let frame = frames.getStore(); frame; frame = frame.outer) {
    if (fits(frame)) return frame;
  }
  return undefined;
}
