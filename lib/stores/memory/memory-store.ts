import type { Lease } from '../../core/lease.js';
import { elapsedSince, type Instant, now } from '../../core/clock.js';
import { COUNTER_LIFE_MS, counterAt } from '../../core/fencing-token.js';
import type {
  AcquireReply,
  AcquireTerms,
  Entry,
  Holder,
  Listening,
  LockStore,
  KeyState,
} from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { MemoryQueues } from './memory-queues.js';

import type { NodeCheck } from '../../core/node-status.js';

/** With fewer counters than this there is nothing worth sweeping. */
const LEAST_SWEPT = 1_000;

/** So many keys make a page of a scan. */
const PAGE = 500;

interface Stored {
  readonly claim: Lease;
  readonly since: Instant;
  readonly ttl: number;
}

/** A tick that has run, to be remembered for so long. */
interface Ran {
  readonly at: number;
  readonly owner: string;
  readonly since: Instant;
  readonly ttl: number;
}

/** A node inside this process: the same locks, but nobody outside the process sees them. */
export class MemoryStore implements LockStore {
  readonly name = 'memory';
  readonly #entries = new Map<string, Stored>();
  readonly #counters = new Map<string, number>();
  /** The last tick that ran, by its key and schedule. */
  readonly #ticks = new Map<string, Ran>();
  readonly #queues = new MemoryQueues();
  readonly #isFree = (key: string): boolean => !this.#live(key);
  #sweepAt = LEAST_SWEPT;
  readonly available = true;
  readonly subscribed = true;

  /** How many keys are held. */
  get size(): number {
    this.#sweep();
    return this.#entries.size;
  }

  connect(): Promise<void> {
    return Promise.resolve();
  }

  contended(): boolean {
    return false;
  }

  time(): number {
    return Date.now();
  }

  acquire(claim: Lease, { seed, floor, order }: AcquireTerms): Promise<AcquireReply> {
    const ran = this.#ranAlready(claim);
    if (ran) return Promise.resolve({ granted: false, ran: true, holder: ran });
    for (const key of claim.keys) {
      const entry = this.#live(key);
      if (!entry) continue;
      // Asked twice it grants again, by the same count, as in Redis.
      if (entry.claim === claim)
        return Promise.resolve({ granted: true, counter: this.#counters.get(key) ?? 0 });
      if (order) this.#queues.wait(key, order, this.#isFree);
      const holder = { id: entry.claim.id, owner: entry.claim.owner, remaining: remainingOf(entry) };
      return Promise.resolve({ granted: false, holder });
    }
    for (const key of claim.keys) {
      const ahead = this.#queues.ahead(key, order);
      if (!ahead || !order) continue;
      this.#queues.wait(key, order, this.#isFree);
      const { owner, process, number } = ahead.place;
      const holder = { id: `${process}:${number}`, owner, remaining: ahead.remaining };
      return Promise.resolve({ granted: false, holder });
    }
    const time = Date.now();
    const least = counterAt(floor === 'fine' ? time : time - (time % 1_000));
    const counters = claim.keys.map((key) => {
      const last = this.#counters.get(key);
      return last === undefined ? Math.max(seed, counterAt(time)) : Math.max(last + 1, least);
    });
    const counter = Math.max(...counters);
    this.#count(claim, counter);
    this.#store(claim, claim.ttl);
    if (order) this.#queues.granted(claim.keys, order);
    return Promise.resolve({ granted: true, counter });
  }

  raise(claim: Lease, token: number): Promise<boolean> {
    const fits = (key: string): boolean =>
      this.#live(key)?.claim === claim && (this.#counters.get(key) ?? 0) <= token;
    if (!claim.keys.every(fits)) return Promise.resolve(false);
    this.#count(claim, token);
    return Promise.resolve(true);
  }

  extend(claims: readonly Lease[], ttl: number): readonly Promise<boolean>[] {
    return claims.map((claim) => Promise.resolve(this.#extend(claim, ttl)));
  }

  release(claim: Lease, after = 0): Promise<void> {
    const { keepFor } = claim;
    for (const key of claim.keys) {
      if (this.#live(key)?.claim === claim) {
        if (keepFor > 0) this.#entries.set(key, { claim, since: now(), ttl: keepFor });
        else this.#entries.delete(key);
      }
      const left = this.#live(key)?.claim === claim ? keepFor : 0;
      if (left > 0 || this.#isFree(key)) this.#queues.wake(key, Math.max(after, left));
    }
    this.#remember(claim);
    return Promise.resolve();
  }

  listen(place: WaiterId, heard: (after: number, turn: boolean) => void): Listening {
    return this.#queues.listen(place, heard);
  }

  leave(place: WaiterId): Promise<void> {
    this.#queues.leave(place, place.keys, this.#isFree);
    return Promise.resolve();
  }

  read(keys: readonly string[]): Promise<readonly KeyState[]> {
    return Promise.resolve(keys.map((key) => this.#lookAt(key)));
  }

  async *scan(prefix: string): AsyncGenerator<readonly string[]> {
    let page: string[] = [];
    // A Map can change while it is iterated.
    for (const key of this.#entries.keys()) {
      if (key.startsWith(prefix)) page.push(key);
      if (page.length < PAGE) continue;
      yield page;
      page = [];
    }
    yield page;
  }

  forceRelease(key: string, ids: readonly string[]): Promise<string | undefined> {
    const id = this.#live(key)?.claim.id;
    if (id === undefined || !ids.includes(id)) return Promise.resolve(undefined);
    this.#entries.delete(key);
    this.#queues.wake(key, 0);
    return Promise.resolve(id);
  }

  check(): Promise<NodeCheck> {
    return Promise.resolve({ state: 'voting', warnings: [] });
  }

  close(): Promise<void> {
    this.#entries.clear();
    this.#ticks.clear();
    return Promise.resolve();
  }

  #extend(claim: Lease, ttl: number): boolean {
    const entries = claim.keys.map((key) => this.#live(key));
    if (!entries.every((entry) => entry?.claim === claim)) return false;
    if (entries.some((entry) => entry && remainingOf(entry) < ttl)) this.#store(claim, ttl);
    return true;
  }

  #lookAt(key: string): Entry | undefined {
    const stored = this.#live(key);
    if (!stored) return undefined;
    const { id, owner, since } = stored.claim;
    return { id, owner, since, remaining: remainingOf(stored), counter: this.#counters.get(key) };
  }

  #ranAlready({ keys, tick }: Lease): Holder | undefined {
    if (!tick) return undefined;
    const last = this.#ticks.get(tickName(keys, tick.schedule));
    const remaining = last ? remainingOf(last) : 0;
    if (!last || remaining <= 0 || last.at < tick.at) return undefined;
    return { id: `${last.at}:${last.owner}`, owner: last.owner, remaining };
  }

  #remember({ keys, owner, mark }: Lease): void {
    if (!mark) return;
    const name = tickName(keys, mark.schedule);
    const last = this.#ticks.get(name);
    if (last && remainingOf(last) > 0 && last.at > mark.at) return;
    this.#ticks.set(name, { at: mark.at, owner, since: now(), ttl: mark.life });
  }

  #count(claim: Lease, counter: number): void {
    for (const key of claim.keys) this.#counters.set(key, counter);
  }

  #store(claim: Lease, ttl: number): void {
    if (this.#counters.size >= this.#sweepAt) this.#sweep();
    for (const key of claim.keys) this.#entries.set(key, { claim, since: now(), ttl });
  }

  /** Drops what lapsed without a release; seldom enough to cost nothing per lock. */
  #sweep(): void {
    for (const key of this.#entries.keys()) {
      if (!this.#live(key)) this.#entries.delete(key);
    }
    for (const [name, ran] of this.#ticks) {
      if (remainingOf(ran) <= 0) this.#ticks.delete(name);
    }
    const oldest = counterAt(Date.now() - COUNTER_LIFE_MS);
    for (const [key, counter] of this.#counters) {
      if (counter < oldest && !this.#entries.has(key)) this.#counters.delete(key);
    }
    this.#sweepAt = Math.max(LEAST_SWEPT, 2 * this.#counters.size);
  }

  #live(key: string): Stored | undefined {
    const entry = this.#entries.get(key);
    return entry && remainingOf(entry) > 0 ? entry : undefined;
  }
}

function tickName(keys: readonly string[], schedule: string): string {
  return JSON.stringify([keys[0], schedule]);
}

function remainingOf({ since, ttl }: Pick<Stored, 'since' | 'ttl'>): number {
  return ttl - elapsedSince(since);
}
