/**
 * The mode of a lock: `'exclusive'` admits one holder; `'shared'` admits any number of readers, but none while there is
 * an exclusive holder; `'permits'` admits a fixed number of holders.
 */
export type LockMode = 'exclusive' | 'shared' | 'permits';

/** The largest number of permits of a key. */
export const MOST_PERMITS = 1_000;

/** The mode of a lock; in the mode `'permits'` also the number of permits. */
export type LockKind =
  | { readonly mode: 'exclusive' | 'shared' }
  | {
      readonly mode: 'permits';
      /** The number of holders at a time. Each holder has its own slot, a number from 0 to `permits - 1`. */
      readonly permits: number;
    };

export const EXCLUSIVE: LockKind = { mode: 'exclusive' };
export const SHARED: LockKind = { mode: 'shared' };

/** Formats a kind of lock for messages. */
export function nameOfKind(kind: LockKind): string {
  return kind.mode === 'permits'
    ? `a lock with \`permits: ${kind.permits}\``
    : `a lock in the mode '${kind.mode}'`;
}

/** `true` if a holder in the mode `one` and a holder in the mode `other` can hold a key at the same time. */
export function canHoldTogether(one: LockMode, other: LockMode): boolean {
  return one === other && one !== 'exclusive';
}

/** `true` if a nested call that asks for `inner` can join a lock that is held as `outer` (`reentrant`). */
export function joins(inner: LockMode, outer: LockMode): boolean {
  return inner === outer || (outer === 'exclusive' && inner === 'shared');
}

/** `true` if one mode reads and the other writes. */
export function isReaderAndWriter(one: LockMode, other: LockMode): boolean {
  return one !== other && one !== 'permits' && other !== 'permits';
}
