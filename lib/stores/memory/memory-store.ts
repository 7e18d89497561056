import { elapsedSince, type Instant, now } from '../../core/clock.js';
import { tokenAt } from '../../core/fencing-token.js';
import type { Lease } from '../../core/lease.js';
import type { LockMode } from '../../core/lock-mode.js';
import type { NodeCheck } from '../../core/node-status.js';
import type {
  AcquireReply,
  AcquireRequest,
  HeldKey,
  Holder,
  KeyHolder,
  KeyState,
  LockDirectory,
  LockStore,
  QuorumStore,
  ReleaseRequest,
  StoreHealth,
  Subscription,
  Tell,
  WaitQueue,
} from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { MemoryQueues } from './memory-queues.js';

/** How long the last token of a key is kept after its lock was released or has lapsed, in milliseconds. */
const LINGER_MS = 30_000;

/** With fewer records than this there is nothing worth sweeping. */
const LEAST_SWEPT = 1_000;

/** So many keys make a page of a scan. */
const PAGE = 500;

interface LockRecord {
  readonly lease: Lease;
  /** When it was asked for, in milliseconds since 1970. */
  readonly acquiredAt: number;
  readonly token: number;
  /** When the present life began, and how long it is. */
  readonly since: Instant;
  readonly ttl: number;
  /** `'kept'` for `minHold` after its release: held by nobody, and not to be extended. */
  readonly state: 'held' | 'kept' | 'free';
}

/** A tick that has run, to be remembered for so long. */
interface Ran {
  readonly at: number;
  readonly owner: string;
  readonly since: Instant;
  readonly ttl: number;
}

/** Locks inside this process: the same, but nobody outside the process sees them. */
export class MemoryStore implements LockStore, WaitQueue, LockDirectory, QuorumStore, StoreHealth {
  readonly name = 'memory';
  readonly #records = new Map<string, LockRecord>();
  /** The last tick that ran, by its key and schedule. */
  readonly #ticks = new Map<string, Ran>();
  readonly #queues = new MemoryQueues();
  readonly #isFree = (key: string): boolean => !this.#live(key);
  #sweepAt = LEAST_SWEPT;
  readonly modes: readonly LockMode[] = ['exclusive'];
  readonly available = true;
  readonly subscribed = true;

  /** How many keys are held. */
  get size(): number {
    return [...this.#records.keys()].filter((key) => this.#live(key)).length;
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

  acquire(requests: readonly AcquireRequest[], ordered: boolean, tell: Tell<AcquireReply>): void {
    requests.forEach((request, index) => tell(index, this.#acquire(request, ordered)));
  }

  extend(leases: readonly Lease[], ttl: number, tell: Tell<boolean>): void {
    leases.forEach((lease, index) => tell(index, this.#extend(lease, ttl)));
  }

  release(requests: readonly ReleaseRequest[], tell: Tell<undefined>): void {
    requests.forEach((request, index) => {
      this.#release(request);
      tell(index, undefined);
    });
  }

  raise(lease: Lease, token: number): Promise<boolean> {
    const records = lease.keys.map((key) => this.#heldBy(lease, key));
    if (records.some((record) => !record || record.token > token)) return Promise.resolve(false);
    for (const key of lease.keys) this.#change(key, { token });
    return Promise.resolve(true);
  }

  listen(waiter: WaiterId, onMessage: (after: number, turn: boolean) => void): Subscription {
    return this.#queues.listen(waiter, onMessage);
  }

  holdBack(_waiter: WaiterId, _waited: number): Promise<void> {
    return Promise.resolve();
  }

  letPass(_waiter: WaiterId): Promise<void> {
    return Promise.resolve();
  }

  leave(waiter: WaiterId): Promise<void> {
    this.#queues.leave(waiter, waiter.keys, this.#isFree);
    return Promise.resolve();
  }

  read(keys: readonly string[]): Promise<readonly KeyState[]> {
    return Promise.resolve(keys.map((key) => this.#stateOf(key)));
  }

  async *scan(prefix: string): AsyncGenerator<readonly string[]> {
    let page: string[] = [];
    // A Map can change while it is iterated.
    for (const key of this.#records.keys()) {
      if (key.startsWith(prefix)) page.push(key);
      if (page.length < PAGE) continue;
      yield page;
      page = [];
    }
    yield page;
  }

  forceRelease(key: string, ids: readonly string[]): Promise<readonly string[]> {
    const id = this.#live(key)?.lease.id;
    if (id === undefined || !ids.includes(id)) return Promise.resolve([]);
    this.#free(key);
    this.#queues.wake(key, 0);
    return Promise.resolve([id]);
  }

  check(): Promise<NodeCheck> {
    return Promise.resolve({ state: 'voting', warnings: [] });
  }

  close(): Promise<void> {
    this.#records.clear();
    this.#ticks.clear();
    return Promise.resolve();
  }

  #acquire({ lease, since, proposal, position }: AcquireRequest, ordered: boolean): AcquireReply | Error {
    const { keys } = lease;
    const ran = this.#ranAlready(lease);
    if (ran) return { granted: false, ran: true, holder: ran };
    const mine = keys.filter((key) => this.#heldBy(lease, key));
    // Asked twice it grants again, by the same token, as in Redis.
    if (mine.length === keys.length)
      return { granted: true, token: this.#records.get(keys[0] ?? '')?.token ?? 0 };
    if (mine.length > 0) return new Error('this lease was stored before, and a part of it is gone');
    for (const key of keys) {
      const record = this.#live(key);
      if (!record) continue;
      if (ordered && position) this.#queues.wait(key, position, this.#isFree);
      const { lease: held, token: fencingToken, acquiredAt } = record;
      const { id, owner } = held;
      const holder: KeyHolder = {
        id,
        owner,
        remaining: remainingOf(record),
        since: acquiredAt,
        fencingToken,
        mode: 'exclusive',
      };
      return { granted: false, holder };
    }
    if (keys.some((key) => this.#records.get(key)?.lease === lease))
      return new Error('this lease was stored before, and has ended');
    for (const key of ordered ? keys : []) {
      const ahead = this.#queues.ahead(key, position);
      if (!ahead) continue;
      if (position) this.#queues.wait(key, position, this.#isFree);
      const { owner, process, number } = ahead.waiter;
      return { granted: false, holder: { id: `${process}:${number}`, owner, remaining: ahead.remaining } };
    }
    const last = keys.map((key) => (this.#records.get(key)?.token ?? 0) + 1);
    const token = Math.max(tokenAt(Date.now()), proposal, ...last);
    if (this.#records.size >= this.#sweepAt) this.#sweep();
    for (const key of keys) {
      this.#records.set(key, {
        lease,
        acquiredAt: since,
        token,
        since: now(),
        ttl: lease.ttl,
        state: 'held',
      });
    }
    if (ordered && position) this.#queues.granted(keys, position);
    return { granted: true, token };
  }

  #extend(lease: Lease, ttl: number): boolean {
    const records = lease.keys.map((key) => this.#heldBy(lease, key));
    if (records.some((record) => !record)) return false;
    if (records.some((record) => record && remainingOf(record) < ttl)) {
      for (const key of lease.keys) this.#change(key, { since: now(), ttl });
    }
    return true;
  }

  #release({ lease, pause }: ReleaseRequest): void {
    const { keepFor } = lease;
    for (const key of lease.keys) {
      const record = this.#records.get(key);
      // Also what has lapsed, as long as nobody else took it.
      if (record?.lease === lease && record.state === 'held') {
        if (keepFor > 0) this.#change(key, { since: now(), ttl: keepFor, state: 'kept' });
        else this.#free(key);
      }
      const left = this.#live(key)?.lease === lease ? keepFor : 0;
      if (left > 0 || this.#isFree(key)) this.#queues.wake(key, Math.max(pause, left));
    }
    this.#remember(lease);
  }

  #stateOf(key: string): HeldKey | undefined {
    const record = this.#live(key);
    if (!record) return undefined;
    const { lease, acquiredAt, token } = record;
    const remaining = remainingOf(record);
    const holder = { id: lease.id, owner: lease.owner, since: acquiredAt, remaining, fencingToken: token };
    return { mode: 'exclusive', holders: [{ ...holder, mode: 'exclusive' }] };
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

  #change(key: string, change: Partial<LockRecord>): void {
    const record = this.#records.get(key);
    if (record) this.#records.set(key, { ...record, ...change });
  }

  #free(key: string): void {
    this.#change(key, { state: 'free', since: now(), ttl: 0 });
  }

  /** Drops what nobody needs any more; seldom enough to cost nothing per lock. */
  #sweep(): void {
    for (const [key, record] of this.#records) {
      if (remainingOf(record) < -LINGER_MS) this.#records.delete(key);
    }
    for (const [name, ran] of this.#ticks) {
      if (remainingOf(ran) <= 0) this.#ticks.delete(name);
    }
    this.#sweepAt = Math.max(LEAST_SWEPT, 2 * this.#records.size);
  }

  /** What is held under a key, or kept. */
  #live(key: string): LockRecord | undefined {
    const record = this.#records.get(key);
    return record && record.state !== 'free' && remainingOf(record) > 0 ? record : undefined;
  }

  #heldBy(lease: Lease, key: string): LockRecord | undefined {
    const record = this.#live(key);
    return record?.lease === lease && record.state === 'held' ? record : undefined;
  }
}

function tickName(keys: readonly string[], schedule: string): string {
  return JSON.stringify([keys[0], schedule]);
}

function remainingOf({ since, ttl }: Pick<LockRecord, 'since' | 'ttl'>): number {
  return ttl - elapsedSince(since);
}
