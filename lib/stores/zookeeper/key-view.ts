import type { HeldKey, KeyHolder } from '../../core/ports.js';
import type { HolderRecord, KeyRecord, StoredAt } from './key-record.js';
import type { ClockReading } from './leader-clock.js';
import type { WaiterEntry } from './names.js';

/** The largest difference between the rates of two clocks (docs/safety.md). */
const DRIFT = 0.01;

/**
 * The largest difference between a wall clock and the leader's, in milliseconds, with which the times of two writes are
 * compared.
 */
const LARGEST_ERROR_MS = 500;

/** Milliseconds that a comparison of two times adds to the ttl: the errors of both clocks. */
const MARGIN_MS = 2 * LARGEST_ERROR_MS;

/** The version of a key that ZooKeeper has told. */
export interface KeyVersion {
  readonly key: string;
  /** The version of the key's node; `undefined` when there is no node. */
  readonly version: number | undefined;
  readonly record: KeyRecord;
  /** The write that made this version; `undefined` when there is no node. */
  readonly storedAt: StoredAt | undefined;
  /** The number of that write among all writes of the ensemble. */
  readonly transaction: bigint;
  /** The entries of the queue in their order. */
  readonly waiters: readonly WaiterEntry[];
  /** `true` if there is a node for the queue. */
  readonly hasQueue: boolean;
  /** The version of the node {@link GENERATION}, read before this version; `undefined` when there is no such node. */
  readonly generation: number | undefined;
}

/** A version of a key, and this process's knowledge of its holders. */
export interface KeyView extends KeyVersion {
  /** The time at which this version was received, by the monotonic clock. */
  readonly receivedAt: number;
  /**
   * The time at which this process first received each stamp of the holders, by the monotonic clock. The stamp was sent
   * before, so the trust of its holder began before, too, whichever server has told it.
   */
  readonly seen: ReadonlyMap<string, number>;
  /** The last reading of the leader's clock. */
  readonly clock: ClockReading | undefined;
}

/** The stamp of one write of the holder. A later write of the same lock has another stamp. */
function stampOf({ id, token, renewals }: HolderRecord): string {
  return `${id}:${token}:${renewals}`;
}

/** The view of a version that was just received; `before` are the last views of the key. */
export function viewOf(version: KeyVersion, ...before: readonly (KeyView | undefined)[]): KeyView {
  const receivedAt = performance.now();
  const seen = new Map(
    version.record.holders.map((holder) => {
      const stamp = stampOf(holder);
      return [stamp, Math.min(...before.map((view) => view?.seen.get(stamp) ?? receivedAt), receivedAt)];
    }),
  );
  return { ...version, receivedAt, seen, clock: undefined };
}

/**
 * `true` when nobody trusts this stamp any more. The holder counts its ttl from a moment before this process received
 * the stamp, and stops 1 % early; this process waits 1 % longer. It watches the stamp, not the version: the changes of
 * other holders must not delay the end of this one (S23). It uses the monotonic clock alone, which never shows more time
 * than has passed (S11).
 *
 * A process that has not watched the stamp for so long compares the times of two writes instead, see {@link isLongPast}.
 */
export function isOver(view: KeyView, holder: HolderRecord): boolean {
  return msUntilOver(view, holder) <= 0 || (view.clock !== undefined && isLongPast(view, holder, view.clock));
}

/** Milliseconds until this process has watched the stamp for long enough. */
export function msUntilOver({ seen }: KeyView, holder: HolderRecord): number {
  // A stamp that is not stored yet, by another change of the same write, is as good as new.
  const since = seen.get(stampOf(holder)) ?? performance.now();
  return since + holder.ttl * (1 + DRIFT) - performance.now();
}

/**
 * `true` when the ttl of the stamp, 1 % and a margin lie between the write that stored the stamp and a later write of
 * this process, by the clock of one leader.
 *
 * That clock may have been set meanwhile. So both processes compare it with their own: the holder's clock must have
 * agreed with it at the one write, and the clock of this process at the other. The result is wrong only if the leader's
 * clock was set, and the clocks of the two machines differ by as much.
 */
function isLongPast(view: KeyView, holder: HolderRecord, clock: ClockReading): boolean {
  const stored = stampStoredAt(view, holder);
  return (
    stored !== undefined &&
    stored.epoch === clock.epoch &&
    // A reading before the write says nothing: the leader's clock may have been set back since.
    clock.transaction > view.transaction &&
    clock.error <= LARGEST_ERROR_MS &&
    Math.abs(holder.sentAt - stored.time) <= LARGEST_ERROR_MS &&
    clock.time - stored.time >= holder.ttl * (1 + DRIFT) + MARGIN_MS
  );
}

/** `true` if {@link isLongPast} may be true after another reading of the leader's clock. */
export function isSuspect(view: KeyView, holder: HolderRecord): boolean {
  const stored = stampStoredAt(view, holder);
  const isOfEarlierLeader =
    stored !== undefined && view.clock !== undefined && stored.epoch < view.clock.epoch;
  return (
    stored !== undefined &&
    !isOfEarlierLeader &&
    isLongPast(view, holder, {
      ...{ epoch: stored.epoch, time: Date.now(), error: 0 },
      transaction: view.transaction + 1n,
    })
  );
}

/** The write that stored the stamp. A holder without this field is new in the version of the view. */
export function stampStoredAt({ storedAt }: KeyView, holder: HolderRecord): StoredAt | undefined {
  return holder.storedAt ?? storedAt;
}

export function liveHolders(view: KeyView): readonly HolderRecord[] {
  return view.record.holders.filter((holder) => !isOver(view, holder));
}

/** Milliseconds until the holder's ttl has passed, as far as this process can know; at least 1. */
export function remainingOf({ seen }: KeyView, holder: HolderRecord): number {
  const time = performance.now();
  return Math.max(1, (seen.get(stampOf(holder)) ?? time) + holder.ttl - time);
}

export function asKeyHolder(view: KeyView, holder: HolderRecord): KeyHolder {
  const { id, owner, since, token, mode, slot } = holder;
  const known = { id, owner, since, fencingToken: token, mode, remaining: remainingOf(view, holder) };
  return slot === undefined ? known : { ...known, slot };
}

/** Describes holders in the order in which their locks end. */
export function inOrderOfEnd(view: KeyView, holders: readonly HolderRecord[]): readonly KeyHolder[] {
  return holders
    .map((holder) => asKeyHolder(view, holder))
    .toSorted((one, other) => one.remaining - other.remaining || (one.slot ?? 0) - (other.slot ?? 0));
}

/** The largest number of permits that one of the holders asked for; 0 without permits. */
export function mostPermits(holders: readonly HolderRecord[]): number {
  return Math.max(0, ...holders.map(({ permits = 0 }) => permits));
}

/** The state of the key; `undefined` when it has no holder. */
export function heldKeyOf(view: KeyView): HeldKey | undefined {
  const live = liveHolders(view);
  const holders = inOrderOfEnd(view, live);
  const [first] = holders;
  if (!first) return undefined;
  const { mode } = first;
  return mode === 'permits' ? { mode, permits: mostPermits(live), holders } : { mode, holders };
}

/** The holder's record with a new stamp, from which its ttl counts again. The end of the lock never moves back. */
export function renewed(view: KeyView, holder: HolderRecord, ttl: number): HolderRecord {
  return {
    ...restamped(holder),
    ttl: Math.max(ttl, Math.ceil(remainingOf(view, holder))),
  };
}

/** The holder's record with a new stamp. */
export function restamped(holder: HolderRecord): HolderRecord {
  return { ...holder, renewals: holder.renewals + 1, sentAt: Date.now(), storedAt: undefined };
}

/** The view with other holders. */
export function withHolders(view: KeyView, holders: readonly HolderRecord[]): KeyView {
  return { ...view, record: { ...view.record, holders } };
}

/** The view with another record of a holder. */
export function replaced(view: KeyView, holder: HolderRecord, by: HolderRecord): KeyView {
  return withHolders(
    view,
    view.record.holders.map((each) => (each === holder ? by : each)),
  );
}

/** The view without a holder; the same view if it is not among the holders. */
export function without(view: KeyView, id: string): KeyView {
  const { holders } = view.record;
  const others = holders.filter((holder) => holder.id !== id);
  return others.length === holders.length ? view : withHolders(view, others);
}
