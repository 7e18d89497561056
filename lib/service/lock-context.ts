import { currentScope } from './lock-scope.js';
import type { LockHandle } from '../core/lock-handle.js';

/**
 * The innermost lock of the running call, or the innermost one that has `key`. `undefined` outside of locked code. The
 * lock may have been lost meanwhile; call its `isHeld()`.
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

/** Like {@link currentLock}, for the locks that `source` acquired. */
export function currentLockOf(source: object, key?: string): LockHandle | undefined {
  return currentScope(
    (scope) => scope.source === source && (key === undefined || scope.lock.keys.includes(key)),
  )?.lock;
}
