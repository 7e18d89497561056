import { elapsedSince, type Instant, now } from '../../core/clock.js';
import type { Lease } from '../../core/lease.js';
import type { Gateway, GatewayError } from './gateway.js';
import type { Names } from './names.js';
import { entriesAt, type Entry, get, type Header, type KeyRange, type TxnReply } from './protocol.js';

/** The number of keys in one transaction: etcd accepts 128 operations. */
const PAGE = 100;

/** The most leases that are asked for their remaining time when many hold a key. */
const MOST_ASKED = 64;

/** Milliseconds that a read for people or for a hint may take. */
const LOOK_LIMIT_MS = 5_000;

/** A lease of etcd, with which keys expire. It is not a `Lease`. */
export class EtcdLease {
  /**
   * `true` when etcd has reported that the lease does not exist: no new key uses it. A deposed leader, or one that has
   * not caught up yet, reports the same of leases of another term, so no lock is treated as ended because of it.
   */
  gone = false;
  /**
   * Changed when the outcome of an acquisition with it is unknown. A transaction that compares an earlier value is
   * refused, so a late one stores nothing (S16). The revision of a key that expires with the lease; 0 while there is
   * none.
   */
  fence = 0;
  /** For a shared one: the locks that expire with it, and the last renewal of each by the monotonic clock. */
  readonly members = new Map<Lease, number>();
  /** The background renewal, while there is one. */
  refreshing: Promise<unknown> | undefined;

  /**
   * @param confirmed - the time of the last request that etcd has confirmed; the lease's time to live counts from it
   */
  constructor(
    readonly id: string,
    readonly fenceName: string,
    readonly seconds: number,
    readonly shared: boolean,
    public confirmed: Instant,
  ) {}

  /** Milliseconds of its time to live that have passed. */
  get age(): number {
    return elapsedSince(this.confirmed);
  }

  get ttl(): number {
    return this.seconds * 1_000;
  }
}

/** The result of a renewal of an etcd lease. */
export interface Renewal {
  /** `true` if it was renewed. Otherwise etcd reports that the lease does not exist, which only the keys confirm. */
  readonly isConfirmed: boolean;
  /** The entry of each of the keys. */
  readonly found: readonly (Entry | undefined)[];
}

/** A ttl in whole seconds. */
export function secondsOf(ttl: number): number {
  return Math.ceil(ttl / 1_000);
}

/** The default time limit in milliseconds for a request about a lock with this ttl. */
export function limitOf(ttl: number): number {
  return Math.min(Math.max(ttl / 10, 50), 10_000);
}

/** The etcd leases of this process. */
export class EtcdLeases {
  /** Shared ones by seconds, for locks that are renewed until they are released. */
  readonly #shared = new Map<number, Promise<EtcdLease>>();
  /** Unused ones by seconds, left from attempts that were refused. */
  readonly #spare = new Map<number, EtcdLease>();
  /** Called when a shared one was renewed, and all locks with it. */
  onRenewed: (lease: EtcdLease) => void = () => undefined;

  constructor(
    private readonly gateway: Gateway,
    private readonly names: Names,
  ) {}

  /** The shared lease of this process for locks of so many seconds; at least half of its time is left. */
  async shared(seconds: number, limit: number): Promise<EtcdLease> {
    let granted = this.#shared.get(seconds);
    if (!granted) {
      granted = this.#grant(seconds, limit, true);
      this.#keep(seconds, granted);
    }
    const lease = await granted;
    if (!lease.gone && lease.age > lease.ttl / 3) {
      lease.refreshing ??= this.renew(lease, [], limit).finally(() => (lease.refreshing = undefined));
      if (lease.age > lease.ttl / 2) await lease.refreshing;
      else lease.refreshing.catch(() => undefined);
    }
    if (!lease.gone) return lease;
    if (this.#shared.get(seconds) === granted) this.#shared.delete(seconds);
    return this.shared(seconds, limit);
  }

  #keep(seconds: number, granted: Promise<EtcdLease>): void {
    this.#shared.set(seconds, granted);
    granted.catch(() => {
      if (this.#shared.get(seconds) === granted) this.#shared.delete(seconds);
    });
  }

  /** A lease for a single lock; it may have been granted for an earlier attempt. */
  async own(seconds: number, limit: number): Promise<EtcdLease> {
    const spare = this.#spare.get(seconds);
    this.#spare.delete(seconds);
    if (spare && spare.age < spare.ttl / 3) return spare;
    if (spare) this.drop(spare);
    return this.once(seconds, limit);
  }

  /** Returns a lease with which no key expires. */
  giveBack(lease: EtcdLease): void {
    if (lease.shared || lease.gone) return;
    const other = this.#spare.get(lease.seconds);
    const isYounger = !other || other.age > lease.age;
    if (isYounger) this.#spare.set(lease.seconds, lease);
    const rest = isYounger ? other : lease;
    if (rest) this.drop(rest);
  }

  /** Revokes a lease with which no important key expires; otherwise it ends when its time has passed. */
  drop(lease: EtcdLease): void {
    this.revoke(lease, limitOf(lease.ttl)).catch(() => undefined);
  }

  async #grant(seconds: number, limit: number, shared: boolean): Promise<EtcdLease> {
    const sent = now();
    const { reply } = await this.gateway.call<{ ID: string; TTL: string; header: Header }>(
      'lease/grant',
      { TTL: String(seconds) },
      limit,
    );
    return new EtcdLease(reply.ID, this.names.fence(reply.ID), seconds, shared, sent);
  }

  /**
   * Renews a lease, and reads the keys after that.
   *
   * A leader that was deposed and does not know it yet also renews leases. So a read through the same member must
   * follow, which needs a majority, in the same term: then the leader was entitled to renew.
   *
   * @throws Error when the result is unknown
   */
  async renew(lease: EtcdLease, keys: readonly KeyRange[], limit: number): Promise<Renewal> {
    const sent = now();
    const until = performance.now() + limit;
    const { reply, from } = await this.gateway.call<{
      result: { TTL?: string; header: Header };
      header?: Header;
    }>('lease/keepalive', { ID: lease.id }, limit);
    const { result } = reply;
    const isConfirmed = Number(result.TTL ?? 0) > 0;
    if (!isConfirmed) lease.gone = true;
    const found: (Entry | undefined)[] = [];
    const looked = keys.length > 0 ? keys : [[this.names.base] as const];
    for (let start = 0; start < looked.length; start += PAGE) {
      const page = looked.slice(start, start + PAGE);
      const success = page.map((key) => get(key, { keys_only: true }));
      const left = Math.max(1, until - performance.now());
      const look = await this.gateway.call<TxnReply>('kv/txn', { success }, left, from);
      if (look.reply.header.raft_term !== result.header.raft_term)
        throw new Error('the leader of the cluster changed meanwhile');
      page.forEach((_, index) => found.push(entriesAt(look.reply, index)[0]));
    }
    if (isConfirmed && sent.monotonic > lease.confirmed.monotonic) lease.confirmed = sent;
    if (lease.shared) this.onRenewed(lease);
    return { isConfirmed, found };
  }

  /** Revokes the lease and deletes all keys with it, also those of late transactions (S16). */
  async revoke({ id }: EtcdLease, limit: number): Promise<void> {
    try {
      await this.gateway.call('lease/revoke', { ID: id }, limit);
    } catch (error) {
      if (!(error as GatewayError).isNotFound) throw error;
    }
  }

  /** A lease for one use; `seconds` may be as few as etcd grants. */
  once(seconds: number, limit: number): Promise<EtcdLease> {
    return this.#grant(seconds, limit, false);
  }

  /**
   * The most milliseconds that are left of each lease: etcd reports whole seconds, rounded down. 0 when it no longer
   * exists.
   */
  async left(ids: readonly string[], limit = LOOK_LIMIT_MS): Promise<ReadonlyMap<string, number>> {
    const asked = [...new Set(ids)].slice(0, MOST_ASKED);
    const left = await Promise.all(
      asked.map(async (id): Promise<readonly [string, number]> => {
        if (id === '0') return [id, Infinity];
        const { reply } = await this.gateway.call<{ TTL?: string; grantedTTL?: string; header: Header }>(
          'lease/timetolive',
          { ID: id },
          limit,
        );
        const seconds = Number(reply.TTL ?? 0);
        return [id, seconds < 0 ? 0 : Math.min(seconds + 1, Number(reply.grantedTTL ?? 0)) * 1_000];
      }),
    );
    return new Map(left);
  }

  /** Revokes unused leases, so that etcd need not keep them; never rejects. */
  async close(limit: number): Promise<void> {
    const shared = await Promise.allSettled(this.#shared.values());
    const unused = shared.flatMap((each) =>
      each.status === 'fulfilled' && each.value.members.size === 0 ? [each.value] : [],
    );
    const all = [...unused, ...this.#spare.values()];
    await Promise.allSettled(all.map((lease) => this.revoke(lease, limit)));
  }
}
