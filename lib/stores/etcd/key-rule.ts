import type { LockMode } from '../../core/lock-mode.js';
import { MOST_OPERATIONS } from './protocol.js';

/** The comparisons of a transaction that do not belong to a key. */
const OTHER_OPERATIONS = 3;

/** The reason why etcd can never store a lock of these keys; `undefined` when it can. */
export function whyNotKeys(keys: readonly string[], mode: LockMode): string | undefined {
  // In names in etcd a NUL character separates the key from the rest.
  if (keys.some((key) => key.includes('\0'))) return 'a key must not contain a NUL character';
  const most = Math.floor((MOST_OPERATIONS - OTHER_OPERATIONS) / (mode === 'permits' ? 4 : 2));
  if (keys.length <= most) return undefined;
  return (
    `a lock ${mode === 'permits' ? 'with permits ' : ''}has at most ${most} keys, because one transaction of etcd stores all of ` +
    `them, and these are ${keys.length}; lock a key that stands for the whole group`
  );
}
