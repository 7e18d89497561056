import { canHoldTogether, type LockKind, type LockMode } from './lock-mode.js';
import type { SlotWish } from './ports.js';

/** A holder of a key, in whatever form a store keeps it. */
export interface PresentHolder {
  readonly mode: LockMode;
  readonly slot?: number | undefined;
}

/** An entry in the queue of a key. Entries are in the order of their names, which is the order of arrival. */
export interface PresentWaiter {
  readonly name: string;
  /** The waiter that has the entry. */
  readonly waiter: string;
  readonly kind: LockKind;
}

/** The holders and the queue of a key at one moment. */
export interface Presence<H extends PresentHolder = PresentHolder, W extends PresentWaiter = PresentWaiter> {
  readonly holders: readonly H[];
  readonly waiters: readonly W[];
}

/** The slot that a caller requests on a key with permits. */
export interface WishedSlot {
  readonly slot: number;
  /** `true` if no other slot will do. */
  readonly exactly: boolean;
}

/** The slot that a request asks for on its key at this position. */
export function wishedSlot(wish: SlotWish | undefined, index: number): WishedSlot | undefined {
  return wish && { slot: wish.slots[index] ?? 0, exactly: wish.exactly };
}

/** The number of permits; 0 for another kind of lock. */
export function permitsOf(kind: LockKind): number {
  return kind.mode === 'permits' ? kind.permits : 0;
}

/** A slot that a lease of this kind can get now; 0 for a mode other than `permits`; `undefined` if no slot is free. */
export function slotFor(
  { holders }: Pick<Presence, 'holders'>,
  kind: LockKind,
  wish?: WishedSlot,
): number | undefined {
  if (kind.mode !== 'permits') return 0;
  const taken = new Set(holders.map(({ slot }) => slot));
  const from = wish?.slot ?? 0;
  if (wish?.exactly) return taken.has(from) ? undefined : from;
  for (let step = 0; step < kind.permits; step++) {
    const slot = (from + step) % kind.permits;
    if (!taken.has(slot)) return slot;
  }
  return undefined;
}

/**
 * The holders that exclude a lease of this kind; empty when there is room. With permits, the holders of all slots that
 * the lease could get.
 */
export function inTheWay<H extends PresentHolder>(
  presence: { readonly holders: readonly H[] },
  kind: LockKind,
  wish?: WishedSlot,
): readonly H[] {
  const { holders } = presence;
  const apart = holders.filter(({ mode }) => !canHoldTogether(mode, kind.mode));
  if (apart.length > 0 || kind.mode !== 'permits' || slotFor(presence, kind, wish) !== undefined)
    return apart;
  return holders.filter(({ slot = 0 }) => (wish?.exactly ? slot === wish.slot : slot < kind.permits));
}

/**
 * The first waiter that the lease must not overtake. `entry` is the name of a queue entry: only waiters before that
 * entry count. Without `entry`, all waiters count.
 */
export function ahead<W extends PresentWaiter>(
  { holders, waiters }: Presence<PresentHolder, W>,
  kind: LockKind,
  waiter: string | undefined,
  entry: string | undefined,
): W | undefined {
  const inFront = waiters.filter(
    ({ name, waiter: other }) => other !== waiter && (entry === undefined || name < entry),
  );
  const isTogether = inFront.every((each) => canHoldTogether(each.kind.mode, kind.mode));
  const taken = holders.filter(({ slot = 0 }) => slot < permitsOf(kind)).length;
  // The lease delays no earlier waiter: all of them can hold the key together, and there is room for all.
  if (isTogether && (kind.mode === 'shared' || inFront.length < permitsOf(kind) - taken)) return undefined;
  return inFront[0];
}
