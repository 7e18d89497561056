import { elapsedSince, type Instant, now } from '../../core/clock.js';
import type { Lease } from '../../core/lease.js';
import { canHoldTogether, type LockMode } from '../../core/lock-mode.js';
import type { HeldKey, Holder, KeyHolder, SlotWish } from '../../core/ports.js';
import { LINGER_MS } from '../../core/store-times.js';
import { type Life, remainingOf } from './memory-life.js';
import { freeSlot, MemorySlots } from './memory-slots.js';

/** Largest number of holders that a refusal names when no permit of the key is free. */
const MOST_NAMED = 10;

/** The smallest number of readers at which expired holds are removed: with fewer, the removal is not worth its cost. */
const LEAST_PURGED = 100;

/** A lease that holds a key, or has held it. Each holder of a key has its own end (S23). */
interface Hold extends Life {
  readonly lease: Lease;
  /** The time of the request, in milliseconds since 1970. */
  readonly since: number;
  token: number;
  readonly slot: number | undefined;
  /** `true` after the release, while `minHold` keeps the key: the hold excludes others, and must not be extended. */
  kept: boolean;
}

/** The reason of a refusal: the holder that the caller waits for, and other holders. */
export interface Refusal {
  readonly holder: Holder;
  readonly others?: readonly KeyHolder[];
  readonly permits?: number;
}

/** The values that the record stores for a lease that gets the key. */
export interface Grant {
  readonly since: number;
  readonly token: number;
  /** The granted slot; only with permits. */
  readonly slot: number | undefined;
}

/** One key: its holders and its last tokens. */
export class MemoryRecord {
  /** The mode of the last grant. */
  #mode: LockMode = 'exclusive';
  /** The largest granted token. */
  #token = 0;
  /** The slots of the present or last holders. */
  #slots = new MemorySlots(0);
  /** Holds by the ids of their leases; some of them have expired. */
  readonly #holds = new Map<string, Hold>();
  /** The id of the last released lease, so that a late duplicate of its acquisition is refused. */
  #released: string | undefined;
  #releasedAt: Instant = now();
  #purgeAt = LEAST_PURGED;

  get isHeld(): boolean {
    for (const hold of this.#holds.values()) if (remainingOf(hold) > 0) return true;
    return false;
  }

  /** `true` if the last hold ended so long ago that the tokens of the key are not needed any more. */
  get isForgotten(): boolean {
    for (const hold of this.#holds.values()) if (remainingOf(hold) > -LINGER_MS) return false;
    return elapsedSince(this.#releasedAt) > LINGER_MS;
  }

  /** Milliseconds until the last hold expires. */
  get remaining(): number {
    const last = this.#live().at(-1);
    return last ? remainingOf(last) : 0;
  }

  /**
   * The largest number of permits that any lease asked for in the present or last phase; 0 if no lease asked for
   * permits. A phase begins with the first holder of a free key.
   */
  get permits(): number {
    return this.#slots.permits;
  }

  /** `true` if there is room for one more holder of that mode. */
  admits(mode: LockMode): boolean {
    return !this.isHeld || (this.#joins(mode) && this.room(mode, this.#slots.permits) > 0);
  }

  /** The number of further holders that the key admits. */
  room(mode: LockMode, permits: number): number {
    if (mode !== 'permits') return Infinity;
    return permits - this.#live().filter(({ slot = 0 }) => slot < permits).length;
  }

  /** The token and the slot of the lease, while the lease holds the key. */
  held({ id }: Lease): { readonly token: number; readonly slot: number | undefined } | undefined {
    return this.#held(id);
  }

  /**
   * `true` if the lease was granted before and no longer holds the key.
   *
   * @param mayLapse - `true` if a lease that was not released counts as new after its end
   */
  hasEnded({ id }: Lease, mayLapse: boolean): boolean {
    const hold = this.#holds.get(id);
    return this.#released === id || (hold !== undefined && !this.#held(id) && (hold.kept || !mayLapse));
  }

  /** The reason why the lease cannot get the key; `undefined` if it can. */
  refusal({ kind }: Lease, wish: SlotWish | undefined, index: number): Refusal | undefined {
    if (!this.isHeld || this.joinsReaders(kind.mode)) return undefined;
    const live = this.#live();
    if (kind.mode !== 'permits' || !this.#joins(kind.mode))
      return { holder: this.#holderOf(live.at(-1) as Hold) };
    if (this.freeSlot(kind.permits, wish, index) !== undefined) return undefined;
    const inTheWay = wish?.exactly
      ? live.filter(({ slot }) => slot === wish.slots[index])
      : live.filter(({ slot = 0 }) => slot < kind.permits).slice(0, MOST_NAMED);
    const [holder, ...others] = inTheWay.map((hold) => this.#holderOf(hold));
    return { holder: holder as KeyHolder, others, permits: this.permits };
  }

  freeSlot(permits: number, wish: SlotWish | undefined, index: number): number | undefined {
    return freeSlot(new Set(this.#live().map(({ slot }) => slot)), permits, wish, index);
  }

  /** The smallest token for a new lease: a reader that joins other readers may get their token (S21). */
  leastToken(mode: LockMode, slot: number | undefined): number {
    if (this.joinsReaders(mode)) return this.#token;
    return (slot !== undefined && this.isHeld ? this.#slots.lastToken(slot) : this.#token) + 1;
  }

  joinsReaders(mode: LockMode): boolean {
    return mode === 'shared' && this.#joins(mode) && this.isHeld;
  }

  grant(lease: Lease, { since, token, slot }: Grant): void {
    const { kind, id, ttl } = lease;
    if (!this.isHeld) this.#begin();
    this.#purge();
    if (kind.mode === 'permits' && slot !== undefined) this.#slots.take(slot, token, kind.permits);
    this.#mode = kind.mode;
    this.#token = Math.max(this.#token, token);
    this.#holds.set(id, { lease, since, token, slot, began: now(), ttl, kept: false });
  }

  /** The lease among these ids that holds the key. */
  holderAmong(ids: readonly string[]): string | undefined {
    return ids.find((id) => this.#held(id));
  }

  /** Puts a lease in the place of the holder `id`, with its end, token and slot. */
  exchange(id: string, lease: Lease, since: number): void {
    const hold = this.#held(id);
    if (!hold) return;
    this.#holds.delete(id);
    this.#holds.set(lease.id, { ...hold, lease, since });
  }

  extend({ id }: Lease, ttl: number): void {
    const hold = this.#held(id);
    if (hold && remainingOf(hold) < ttl) Object.assign(hold, { began: now(), ttl });
  }

  /** `true` if the lease holds the key (with permits, in this slot), and its token is not larger than `token`. */
  canRaise({ id }: Lease, token: number, slot: number | undefined): boolean {
    const hold = this.#held(id);
    if (!hold || (slot !== undefined && hold.slot !== slot)) return false;
    return hold.token <= token;
  }

  raise({ id }: Lease, token: number): void {
    const hold = this.#held(id);
    if (!hold) return;
    hold.token = Math.max(hold.token, token);
    if (hold.slot !== undefined) this.#slots.take(hold.slot, hold.token, 0);
    this.#token = Math.max(this.#token, token);
  }

  /**
   * Releases the lease, even if it has expired, unless another lease has replaced it.
   *
   * @param keepFor - milliseconds for which the hold still excludes others; 0 to free the key
   */
  release({ id }: Lease, keepFor: number): void {
    const hold = this.#holds.get(id);
    if (!hold || hold.kept) return;
    if (keepFor > 0) return void Object.assign(hold, { began: now(), ttl: keepFor, kept: true });
    this.end(id);
  }

  isKept({ id }: Lease): boolean {
    const hold = this.#holds.get(id);
    return hold?.kept === true && remainingOf(hold) > 0;
  }

  /** `true` if the record stores the lease, or has seen its release last. */
  knows({ id }: Lease): boolean {
    return this.#holds.has(id) || this.#released === id;
  }

  /** Ends a hold at once, even if `minHold` keeps it. Returns `true` if the hold had not expired yet. */
  end(id: string): boolean {
    const hold = this.#holds.get(id);
    if (!hold) return false;
    this.#holds.delete(id);
    this.#released = id;
    this.#releasedAt = now();
    return remainingOf(hold) > 0;
  }

  /** Ends the hold of a lease. A later request may store the same lease again, with another slot. */
  giveUp({ id }: Lease): void {
    this.end(id);
    this.#released = undefined;
  }

  state(): HeldKey | undefined {
    const holders = this.#live().map((hold) => this.#holderOf(hold));
    if (holders.length === 0) return undefined;
    const permits = this.#mode === 'permits' ? { permits: this.#slots.permits } : {};
    return { mode: this.#mode, ...permits, holders };
  }

  #joins(mode: LockMode): boolean {
    return canHoldTogether(this.#mode, mode);
  }

  #held(id: string): Hold | undefined {
    const hold = this.#holds.get(id);
    return hold && !hold.kept && remainingOf(hold) > 0 ? hold : undefined;
  }

  /** The holds that have not expired, in the order of their ends. */
  #live(): Hold[] {
    const live = [...this.#holds.values()].map((hold) => ({ hold, remaining: remainingOf(hold) }));
    const ends = live.filter(({ remaining }) => remaining > 0).toSorted((a, b) => a.remaining - b.remaining);
    return ends.map(({ hold }) => hold);
  }

  #holderOf({ lease: { id, owner }, since, token, slot, ...life }: Hold): KeyHolder {
    const holder = { id, owner, since, remaining: remainingOf(life), fencingToken: token, mode: this.#mode };
    return slot === undefined ? holder : { ...holder, slot };
  }

  /**
   * Begins a new phase with the first holder of a free key: from the phase before, only the largest token is still
   * needed.
   */
  #begin(): void {
    this.#holds.clear();
    this.#released = undefined;
    this.#slots = new MemorySlots(this.#token);
  }

  /**
   * Removes expired holds, so that other leases can get their slots. Removes readers rarely, because there may be
   * thousands.
   */
  #purge(): void {
    if (this.#mode === 'shared' && this.#holds.size < this.#purgeAt) return;
    for (const [id, hold] of this.#holds) if (remainingOf(hold) <= 0) this.#holds.delete(id);
    this.#purgeAt = Math.max(LEAST_PURGED, 2 * this.#holds.size);
  }
}
