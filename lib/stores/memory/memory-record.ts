import { elapsedSince, type Instant, now } from '../../core/clock.js';
import type { Lease } from '../../core/lease.js';
import { canHoldTogether, type LockMode } from '../../core/lock-mode.js';
import type { HeldKey, Holder, KeyHolder, SlotWish } from '../../core/ports.js';
import { type Life, remainingOf } from './memory-life.js';
import { freeSlot, MemorySlots } from './memory-slots.js';

/** How long the last tokens of a key are kept after it was released or has lapsed, in milliseconds. */
const LINGER_MS = 30_000;

/** So many holders of a full key are named in a refusal. */
const MOST_NAMED = 10;

/** With fewer readers than this none is worth purging. */
const LEAST_PURGED = 100;

/** What a lease has of a key, or had until it lapsed: with an end of its own (S23). */
interface Hold extends Life {
  readonly lease: Lease;
  /** When it was asked for, in milliseconds since 1970. */
  readonly since: number;
  token: number;
  readonly slot: number | undefined;
  /** For `minHold` after its release: in the way of others, and not to be extended. */
  kept: boolean;
}

/** Why a lease is refused: the one to wait for, and others. */
export interface Refusal {
  readonly holder: Holder;
  readonly others?: readonly KeyHolder[];
  readonly permits?: number;
}

/** What a lease is to get of a key. */
export interface Grant {
  readonly since: number;
  readonly token: number;
  /** Only with permits. */
  readonly slot: number | undefined;
}

/** One key: who holds it, and its last tokens. */
export class MemoryRecord {
  /** Of the last grant. */
  #mode: LockMode = 'exclusive';
  /** The largest that was granted. */
  #token = 0;
  /** Of the present holders, or the last ones. */
  #slots = new MemorySlots(0);
  /** By the ids of their leases; some have lapsed. */
  readonly #holds = new Map<string, Hold>();
  /** The last that was released, so that its acquisition is not granted again. */
  #released: string | undefined;
  #releasedAt: Instant = now();
  #purgeAt = LEAST_PURGED;

  get isHeld(): boolean {
    for (const hold of this.#holds.values()) if (remainingOf(hold) > 0) return true;
    return false;
  }

  /** Whether it ended so long ago that its tokens need not be remembered any more. */
  get isForgotten(): boolean {
    for (const hold of this.#holds.values()) if (remainingOf(hold) > -LINGER_MS) return false;
    return elapsedSince(this.#releasedAt) > LINGER_MS;
  }

  /** Milliseconds until the last holder's end. */
  get remaining(): number {
    const last = this.#live().at(-1);
    return last ? remainingOf(last) : 0;
  }

  /** The most permits that were asked for lately; 0 without permits. */
  get permits(): number {
    return this.#slots.permits;
  }

  /** Whether there is room for one more holder of that mode. */
  admits(mode: LockMode): boolean {
    return !this.isHeld || (this.#joins(mode) && this.room(mode, this.#slots.permits) > 0);
  }

  /** How many more can hold it together. */
  room(mode: LockMode, permits: number): number {
    if (mode !== 'permits') return Infinity;
    return permits - this.#live().filter(({ slot = 0 }) => slot < permits).length;
  }

  /** The token and the slot that the lease has while it holds the key. */
  held({ id }: Lease): { readonly token: number; readonly slot: number | undefined } | undefined {
    return this.#held(id);
  }

  /** Whether the lease was granted before and holds it no more. */
  hasEnded({ id }: Lease): boolean {
    return this.#released === id || (this.#holds.has(id) && !this.#held(id));
  }

  /** Why the lease cannot have it, if it cannot. */
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

  /** The smallest token for a lease that is not held yet: one who joins readers may have theirs (S21). */
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

  extend({ id }: Lease, ttl: number): void {
    const hold = this.#held(id);
    if (hold && remainingOf(hold) < ttl) Object.assign(hold, { began: now(), ttl });
  }

  /** Whether the lease's token can be lifted to this one: not when it is larger already. */
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
   * Lets the lease go, also when it has lapsed, as long as nobody else got what it had.
   *
   * @param keepFor - milliseconds for which it stays in the way of others; 0 to free it
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

  /** Ends a hold of any kind at once; returns whether there was one. */
  end(id: string): boolean {
    const hold = this.#holds.get(id);
    if (!hold) return false;
    this.#holds.delete(id);
    this.#released = id;
    this.#releasedAt = now();
    return remainingOf(hold) > 0;
  }

  /** Ends what the lease has, which may ask again: for another slot. */
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

  /** First to end first. */
  #live(): Hold[] {
    const live = [...this.#holds.values()].map((hold) => ({ hold, remaining: remainingOf(hold) }));
    const ends = live.filter(({ remaining }) => remaining > 0).toSorted((a, b) => a.remaining - b.remaining);
    return ends.map(({ hold }) => hold);
  }

  #holderOf({ lease: { id, owner }, since, token, slot, ...life }: Hold): KeyHolder {
    const holder = { id, owner, since, remaining: remainingOf(life), fencingToken: token, mode: this.#mode };
    return slot === undefined ? holder : { ...holder, slot };
  }

  /** Nobody holds it: what the last ones had is of no use any more, but for the largest of their tokens. */
  #begin(): void {
    this.#holds.clear();
    this.#released = undefined;
    this.#slots = new MemorySlots(this.#token);
  }

  /** Drops those who have lapsed: their slots are others' now. Of readers seldom, as there may be thousands. */
  #purge(): void {
    if (this.#mode === 'shared' && this.#holds.size < this.#purgeAt) return;
    for (const [id, hold] of this.#holds) if (remainingOf(hold) <= 0) this.#holds.delete(id);
    this.#purgeAt = Math.max(LEAST_PURGED, 2 * this.#holds.size);
  }
}
