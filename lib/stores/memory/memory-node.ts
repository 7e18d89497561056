import { tokenAt } from '../../core/fencing-token.js';
import type { Lease } from '../../core/lease.js';
import type {
  AcquireReply,
  AcquireRequest,
  ExchangeRequest,
  Holder,
  KeyState,
  KeyWaiter,
  ReleaseRequest,
  Subscription,
} from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { MemoryMarks } from './memory-marks.js';
import { MemoryQueues } from './memory-queues.js';
import { MemoryRecord, type Refusal } from './memory-record.js';
import { MemoryTicks } from './memory-ticks.js';

/** The smallest number of records at which a sweep removes old ones: with fewer, the sweep is not worth its cost. */
const LEAST_SWEPT = 1_000;

/**
 * The state of one node, in memory: records, ticks, marks and queues. Each method is one step, as a script is on a
 * server. {@link MemoryStore} makes a store of it, and the simulator makes servers of it.
 */
export class MemoryNode {
  readonly #records = new Map<string, MemoryRecord>();
  readonly #ticks = new MemoryTicks();
  readonly #marks = new MemoryMarks();
  readonly #queues = new MemoryQueues((key, mode) => this.#find(key)?.admits(mode) ?? true);
  #sweepAt = LEAST_SWEPT;

  /** The number of held keys. */
  get size(): number {
    return [...this.#records.values()].filter((record) => record.isHeld).length;
  }

  /** All keys with a record, some of which are free. */
  get keys(): Iterable<string> {
    return this.#records.keys();
  }

  /** Grants or refuses one request; see `LockStore.acquire`. */
  acquire(request: AcquireRequest, ordered: boolean): AcquireReply | Error {
    const { lease, position } = request;
    if (request.limit <= 0) return new Error('the request came after its time limit');
    const heals = request.heals === true;
    const ran = heals ? undefined : this.#ticks.ranBy(lease);
    if (ran) return { granted: false, ran: true, holder: ran };
    const again = this.#again(request);
    if (again) return again;
    for (const [index, key] of lease.keys.entries()) {
      const refusal = this.#refusal(request, key, index);
      if (!refusal) continue;
      if (ordered && position) this.#queues.wait(key, position);
      return { granted: false, ...refusal };
    }
    // A late copy of a request must not acquire the lock again after its release or its end. A lock that is held heals
    // after the end of its lease on this node, but not after its release.
    if (lease.keys.some((key) => this.#find(key)?.hasEnded(lease, heals)))
      return new Error('this lock was stored before, and has ended');
    for (const key of ordered ? lease.keys : []) {
      const holder = this.#ahead(request, key);
      if (!holder) continue;
      if (position) this.#queues.wait(key, position);
      return { granted: false, holder };
    }
    const granted = this.#grant(request);
    if (ordered) this.#queues.granted(lease.keys, position);
    return granted;
  }

  /** Extends one lease; see `LockStore.extend`. */
  extend(lease: Lease, ttl: number): boolean {
    const { keys, slots } = lease;
    for (const [index, key] of keys.entries()) {
      const held = this.#find(key)?.held(lease);
      if (slots && held && held.slot !== slots[index]) this.#giveUp(lease, key);
    }
    const records = keys.map((key) => this.#find(key));
    if (!records.every((record) => record?.held(lease))) return false;
    for (const record of records) record?.extend(lease, ttl);
    return true;
  }

  /** Puts a lease in the place of others; see `LeaseExchange.exchange`. */
  exchange({ lease, replaces, since }: Pick<ExchangeRequest, 'lease' | 'replaces' | 'since'>): boolean {
    const records = lease.keys.map((key) => this.#find(key));
    const holders = records.map((record) => record?.holderAmong([lease.id, ...replaces]));
    if (holders.includes(undefined)) return false;
    for (const [index, record] of records.entries()) record?.exchange(holders[index] ?? '', lease, since);
    return true;
  }

  /** Releases one lease; see `LockStore.release`. */
  release({ lease, pause, wasHeld }: ReleaseRequest): void {
    const { keepFor } = lease;
    for (const key of lease.keys) {
      const record = this.#find(key);
      if (wasHeld === true && record?.knows(lease) !== true) {
        this.#queues.freedElsewhere(key, Math.max(pause, keepFor), lease.id);
        continue;
      }
      record?.release(lease, keepFor);
      this.#queues.freed(key, pause, record?.isKept(lease) ? keepFor : 0, lease.id);
    }
    this.#ticks.remember(lease);
  }

  /** Raises the tokens of the lease, if all of them can be raised; otherwise returns `false`. */
  raise(lease: Lease, token: number): boolean {
    const records = lease.keys.map((key) => this.#find(key));
    const can = records.every((record, index) => record?.canRaise(lease, token, lease.slots?.[index]));
    if (can) for (const record of records) record?.raise(lease, token);
    return can;
  }

  listen(
    waiter: WaiterId,
    onMessage: (after: number, turn: boolean, released?: string) => void,
  ): Subscription {
    return this.#queues.listen(waiter, onMessage);
  }

  /** Sets the marks of the waiter; see {@link MemoryMarks.set}. */
  holdBack(waiter: WaiterId, waited: number): boolean {
    return this.#marks.set(waiter, waited, (key) => this.#find(key)?.isHeld === true);
  }

  letPass(waiter: WaiterId): void {
    this.#marks.remove(waiter);
  }

  leave(waiter: WaiterId): void {
    this.#queues.leave(waiter, waiter.keys);
  }

  read(key: string): KeyState {
    return this.#find(key)?.state();
  }

  waiting(key: string): readonly KeyWaiter[] {
    return this.#queues.at(key);
  }

  /** Forgets all except the queues. */
  clear(): void {
    this.#records.clear();
    this.#ticks.clear();
    this.#marks.clear();
  }

  /** Releases the key by force for the holders with these ids. Returns the ids for which the key was held. */
  forceRelease(key: string, ids: readonly string[]): readonly string[] {
    const record = this.#find(key);
    const ended = ids.filter((id) => record?.end(id));
    if (ended.length > 0) this.#queues.freed(key, 0, 0, ended[0]);
    return ended;
  }

  /**
   * Repeats the grant of a lease that is already stored. If the lease now asks for other slots, frees its present
   * slots.
   */
  #again({ lease, wish }: AcquireRequest): AcquireReply | Error | undefined {
    const { keys } = lease;
    const held = keys.map((key) => this.#find(key)?.held(lease));
    const [first] = held;
    if (wish?.exactly && held.some((each, index) => each && each.slot !== wish.slots[index])) {
      for (const key of keys) this.#giveUp(lease, key);
      return undefined;
    }
    if (held.every((each) => each === undefined)) return undefined;
    if (!first || held.includes(undefined))
      return new Error('this lock was stored before, and some of its keys are gone');
    return grantOf(
      first.token,
      held.map((each) => each?.slot),
    );
  }

  #refusal(
    { lease, wish, position, heals }: AcquireRequest,
    key: string,
    index: number,
  ): Refusal | undefined {
    const refusal = this.#find(key)?.refusal(lease, wish, index);
    if (refusal || heals === true) return refusal;
    const mark = this.#marks.against(key, lease.kind.mode, position);
    return mark && { holder: holderOf(mark.waiter, mark.remaining) };
  }

  #ahead({ lease: { kind }, position }: AcquireRequest, key: string): Holder | undefined {
    const record = this.#find(key);
    const permits = kind.mode === 'permits' ? kind.permits : 0;
    const room = record?.room(kind.mode, permits) ?? Infinity;
    const ahead = this.#queues.ahead(key, kind.mode, room, position);
    return ahead && holderOf(ahead.waiter, ahead.remaining ?? record?.remaining ?? 0);
  }

  #grant({ lease, since, proposal, wish, heals }: AcquireRequest): AcquireReply {
    const { keys, kind } = lease;
    if (this.#records.size >= this.#sweepAt) this.#sweep();
    const records = keys.map((key) => this.#find(key) ?? new MemoryRecord());
    const slots = records.map((record, index) =>
      kind.mode === 'permits' ? record.freeSlot(kind.permits, wish, index) : undefined,
    );
    // A reader that joins other readers gets their token, unless it heals with a larger one.
    const joins = records.every((record) => record.joinsReaders(kind.mode));
    const least = heals === true ? proposal : joins ? 0 : Math.max(tokenAt(Date.now()), proposal);
    const token = Math.max(
      least,
      ...records.map((record, index) => record.leastToken(kind.mode, slots[index])),
    );
    for (const [index, record] of records.entries()) {
      record.grant(lease, { since, token, slot: slots[index] });
      this.#records.set(keys[index] ?? '', record);
    }
    const granted = grantOf(token, slots);
    if (kind.mode !== 'permits') return granted;
    const permits = Math.max(...records.map((record) => record.permits));
    return permits > kind.permits ? { ...granted, permits } : granted;
  }

  #giveUp(lease: Lease, key: string): void {
    this.#find(key)?.giveUp(lease);
    this.#queues.freed(key, 0);
  }

  /** The record of a key, if there is one. */
  #find(key: string): MemoryRecord | undefined {
    const record = this.#records.get(key);
    return record?.isForgotten ? undefined : record;
  }

  /** Removes records that are no longer needed. The sweep is rare, so its cost per lock is almost zero. */
  #sweep(): void {
    for (const [key, record] of this.#records) if (record.isForgotten) this.#records.delete(key);
    this.#ticks.sweep();
    this.#marks.sweep();
    this.#sweepAt = Math.max(LEAST_SWEPT, 2 * this.#records.size);
  }
}

type Grant = Extract<AcquireReply, { readonly granted: true }>;

function grantOf(token: number, slots: readonly (number | undefined)[]): Grant {
  const known = slots.filter((slot) => slot !== undefined);
  return known.length === 0 ? { granted: true, token } : { granted: true, token, slots: known };
}

/** Describes a waiter as a holder that the caller waits for. */
function holderOf({ process, number, owner }: WaiterId, remaining: number): Holder {
  return { id: `${process}:${number}`, owner, remaining };
}
