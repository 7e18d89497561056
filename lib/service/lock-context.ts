import { currentScope } from './lock-scope.js';
import type { LockHandle } from '../core/lock-handle.js';

/**
 * The innermost lock of the running call; with `key`, the innermost lock of that key. `undefined` outside of locked
 * code, and in what a method has started when the method and its result have ended. The lock may have been lost since;
 * call its `isHeld()`.
 *
 * @example
 * ```ts
 * import { currentLock } from 'nestjs-redlock';
 *
 * await fetch('https://bank.example', { signal: currentLock()?.signal });
 * ```
 */
export function currentLock(key?: string): LockHandle | undefined {
  return currentScope(({ lock }) => key === undefined || lock.keys.includes(key))?.lock;
}

/** The same as {@link currentLock}, but only for locks that `source` acquired. */
export function currentLockOf(source: object, key?: string): LockHandle | undefined {
  return currentScope(
    (scope) => scope.source === source && (key === undefined || scope.lock.keys.includes(key)),
  )?.lock;
}
