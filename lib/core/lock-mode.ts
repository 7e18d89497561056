/**
 * How a lock is held: `'exclusive'`, by nobody else; `'shared'`, together with other readers and beside no exclusive
 * holder; `'permits'`, by so many at a time.
 */
export type LockMode = 'exclusive' | 'shared' | 'permits';

/** The most permits that a key can have. */
export const MOST_PERMITS = 1_000;

/** What a lock takes of each of its keys. */
export type LockKind =
  | { readonly mode: 'exclusive' | 'shared' }
  | {
      readonly mode: 'permits';
      /** How many may hold at a time: each of them has a slot of its own, below this number. */
      readonly permits: number;
    };

export const EXCLUSIVE: LockKind = { mode: 'exclusive' };
export const SHARED: LockKind = { mode: 'shared' };

/** For messages. */
export function nameOfKind(kind: LockKind): string {
  return kind.mode === 'permits' ? `a lock of ${kind.permits} permits` : `a lock of the mode '${kind.mode}'`;
}

/** Whether those who ask for these two can hold a key at the same time. */
export function canHoldTogether(one: LockMode, other: LockMode): boolean {
  return one === other && one !== 'exclusive';
}

/** Whether a nested call that asks for `inner` can join a lock that is held as `outer` (`reentrant`). */
export function joins(inner: LockMode, outer: LockMode): boolean {
  return inner === outer || (outer === 'exclusive' && inner === 'shared');
}

/** Whether one of the two reads what the other one writes. */
export function isReaderAndWriter(one: LockMode, other: LockMode): boolean {
  return one !== other && one !== 'permits' && other !== 'permits';
}
