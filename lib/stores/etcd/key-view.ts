import { permitsOf, type Presence, type PresentHolder, type PresentWaiter } from '../../core/admission.js';
import { ForeignValueError } from '../../core/errors.js';
import type { LockKind, LockMode } from '../../core/lock-mode.js';
import { detachedIdOf, isDetachedId } from '../../core/pass.js';
import { foreignKey, parseHolderName, waiterOfEntry } from './names.js';
import type { Entry } from './protocol.js';

/** A holder of a key. */
export interface FoundHolder extends PresentHolder {
  readonly name: string;
  readonly id: string;
  readonly mode: LockMode;
  readonly slot: number | undefined;
  /** `true` after the release, while `minHold` keeps the key. */
  readonly kept: boolean;
  readonly owner: string;
  readonly since: number;
  /** The number of permits that the holder asked for; 0 for a holder in another mode. */
  readonly permits: number;
  /** The fencing token of the holder is its base plus its revision. The base may have been raised since the grant. */
  readonly base: number;
  readonly revision: number;
  readonly etcdLease: string;
  /** The revision that last changed the holder's key. */
  readonly modified: number;
}

/** The queue entry of the waiters of one process. */
export interface FoundWaiter extends PresentWaiter {
  readonly owner: string;
}

/**
 * The holders and the queue of a key at one revision. Both are in the order of their names. For the queue, that is the
 * order of arrival.
 */
export type KeyView = Presence<FoundHolder, FoundWaiter>;

/**
 * The value under a holder's name in etcd: the owner, the time of the request, the number of permits, and the base of
 * the token. `r` is the revision of the token. It is stored only if the name was created at another revision (`minHold`,
 * and a lease that took the place of another). `d` is 1 for a detached lock.
 */
interface HolderValue {
  readonly o: string;
  readonly s: number;
  readonly n: number;
  readonly b: number;
  readonly r?: number;
  readonly d?: 1;
}

interface WaiterValue {
  readonly o: string;
  readonly m: LockMode;
  readonly n: number;
}

/** @param holder - with the revision of the token only if the name gets another one */
export function holderValue(
  holder: Pick<FoundHolder, 'id' | 'owner' | 'since' | 'permits' | 'base'> & { readonly revision?: number },
): string {
  const { id, owner: o, since: s, permits: n, base: b, revision: r } = holder;
  const value: HolderValue = {
    ...{ o, s, n, b },
    ...(r === undefined ? {} : { r }),
    ...(isDetachedId(id) ? { d: 1 } : {}),
  };
  return JSON.stringify(value);
}

export function waiterValue(owner: string, kind: LockKind): string {
  const value: WaiterValue = { o: owner, m: kind.mode, n: permitsOf(kind) };
  return JSON.stringify(value);
}

/** @throws ForeignValueError when one of the entries is not of this package */
export function viewOf(key: string, entries: readonly Entry[]): KeyView {
  const holders: FoundHolder[] = [];
  const waiters: FoundWaiter[] = [];
  for (const entry of entries) {
    const { key: name, created, modified, lease } = entry;
    const parsed = parseHolderName(key, name);
    if (parsed) {
      const { o, s, n, b, r = created, d } = valueOf<HolderValue>(entry, { o: '', s: 0, n: 0, b: 0 });
      holders.push({
        ...parsed,
        id: d === 1 ? detachedIdOf(parsed.id) : parsed.id,
        name,
        owner: o,
        since: s,
        permits: n,
        base: b,
        revision: r,
        etcdLease: lease,
        modified,
      });
    } else {
      const { o, m, n } = valueOf<WaiterValue>(entry, { o: '', m: 'exclusive', n: 0 });
      const kind: LockKind = m === 'permits' ? { mode: m, permits: n } : { mode: m };
      waiters.push({ name, waiter: waiterOfEntry(key, name), owner: o, kind });
    }
  }
  return { holders, waiters };
}

/**
 * Parses a stored value.
 *
 * @param example - a value with all fields that must be present, of the right types
 * @throws ForeignValueError when another program has written the value
 */
function valueOf<Value extends object>({ key, value }: Entry, example: Value): Value {
  let parsed: unknown;
  try {
    parsed = JSON.parse(value);
  } catch {
    // A value that is no JSON has none of the fields.
  }
  const fields = typeof parsed === 'object' && parsed !== null ? (parsed as Record<string, unknown>) : {};
  for (const [field, { constructor }] of Object.entries(example) as [string, object][])
    if (fields[field]?.constructor !== constructor) throw new ForeignValueError(foreignKey(key));
  return fields as Value;
}

/** A random free slot for a lease of this kind; 0 for a mode other than `permits`; `undefined` if no slot is free. */
export function anyFreeSlot({ holders }: KeyView, kind: LockKind): number | undefined {
  const taken = new Set(holders.map(({ slot }) => slot));
  const free = Array.from({ length: permitsOf(kind) }, (_, slot) => slot).filter((slot) => !taken.has(slot));
  return free[Math.floor(Math.random() * free.length)];
}

/** The stored record of a tick that has run. */
export interface RanTick {
  readonly owner: string;
  /**
   * The time at which the record expires, by the clock of the process that ran the tick, in milliseconds since 1970.
   */
  readonly until: number;
}

export function tickValue(owner: string, life: number): string {
  const value: RanTick = { owner, until: Date.now() + life };
  return JSON.stringify(value);
}

/** @throws ForeignValueError when another program has written the value */
export function ranTickOf(entry: Entry): RanTick {
  return valueOf<RanTick>(entry, { owner: '', until: 0 });
}
