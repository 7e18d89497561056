import { elapsedSince, type Instant, now } from '../../core/clock.js';
import type { Lease } from '../../core/lease.js';
import type { Gateway, GatewayError } from './gateway.js';
import type { Names } from './names.js';
import { entriesAt, type Entry, get, type Header, type KeyRange, type TxnReply } from './protocol.js';
import { resultOf, SharedWork } from './shared-work.js';

/** The number of keys in one transaction: etcd accepts 128 operations. */
const PAGE = 100;

/** Largest number of etcd leases whose remaining time one call of `EtcdLeases.left` reads. */
const MOST_ASKED = 64;

/** Time limit in milliseconds for a read that no lock waits for. */
const LOOK_LIMIT_MS = 5_000;

/**
 * A lease in the sense of etcd: keys are attached to it and expire with it. A `Lease` of this library is something
 * else: one attempt to lock.
 */
export class EtcdLease {
  /**
   * `true` when etcd has reported that the lease does not exist, or when its keys must expire: the store attaches no new
   * key to it, and does not renew it. The report can be wrong: a former leader, or a leader that is still catching up,
   * also reports this about leases of another Raft term. So this report alone does not end a lock.
   */
  gone = false;
  /**
   * Revision of the key that guards this etcd lease; 0 while there is no such key. The key expires with the etcd lease.
   * The store writes the key again when the outcome of an acquisition with this etcd lease is unknown. etcd refuses a
   * transaction that compares an earlier revision, so a late transaction stores nothing (S16).
   */
  fence = 0;
  /** The locks that expire with a shared etcd lease, each with its last renewal by the monotonic clock. */
  readonly members = new Map<Lease, number>();
  /** The background renewal, while there is one. */
  refreshing: SharedWork<unknown> | undefined;

  /** @param confirmed - the time of the last request that etcd has confirmed; the time to live counts from this time */
  constructor(
    readonly id: string,
    readonly fenceName: string,
    readonly seconds: number,
    readonly shared: boolean,
    public confirmed: Instant,
  ) {}

  /** Milliseconds since the start of its present time to live. */
  get age(): number {
    return elapsedSince(this.confirmed);
  }

  get ttl(): number {
    return this.seconds * 1_000;
  }
}

/** The result of a renewal of an etcd lease. */
export interface Renewal {
  /**
   * `true` if the lease was renewed. Otherwise etcd reports that the lease does not exist. The report is certain only
   * if the keys of the lease do not exist either.
   */
  readonly isConfirmed: boolean;
  /** The entry of each key; `undefined` for a key that does not exist. */
  readonly found: readonly (Entry | undefined)[];
}

/** Converts a ttl into whole seconds, rounded up. */
export function secondsOf(ttl: number): number {
  return Math.ceil(ttl / 1_000);
}

/** The default time limit in milliseconds for a request about a lock with this ttl. */
export function limitOf(ttl: number): number {
  return Math.min(Math.max(ttl / 10, 50), 10_000);
}

/** The etcd leases of this process. */
export class EtcdLeases {
  /** Shared etcd leases by their ttl in seconds, for locks that are renewed until they are released. */
  readonly #shared = new Map<number, SharedWork<EtcdLease>>();
  /** Unused etcd leases by their ttl in seconds, from attempts that were refused. */
  readonly #spare = new Map<number, EtcdLease>();
  /**
   * Called after each request to renew a shared etcd lease. A renewal also keeps the keys of locks that are no longer
   * extended.
   */
  onRenewed: (lease: EtcdLease) => void = () => undefined;

  constructor(
    private readonly gateway: Gateway,
    private readonly names: Names,
  ) {}

  /**
   * Returns the shared etcd lease of this process for locks with a ttl of `seconds`. At least half of its time is left.
   */
  async shared(seconds: number, limit: number): Promise<EtcdLease> {
    const until = performance.now() + limit;
    const lease = await resultOf((left) => this.#granted(seconds, left), limit);
    if (!lease.gone && lease.age > lease.ttl / 3) {
      const left = until - performance.now();
      if (lease.age > lease.ttl / 2) await resultOf((ms) => this.#refreshing(lease, ms), left);
      else this.#refreshing(lease, left).result.catch(() => undefined);
    }
    return lease.gone ? this.shared(seconds, until - performance.now()) : lease;
  }

  #granted(seconds: number, limit: number): SharedWork<EtcdLease> {
    const present = this.#shared.get(seconds);
    if (present && present.value?.gone !== true) return present;
    const granted = new SharedWork((ms) => this.#grant(seconds, ms, true), limit);
    this.#shared.set(seconds, granted);
    granted.result.catch(() => {
      if (this.#shared.get(seconds) === granted) this.#shared.delete(seconds);
    });
    return granted;
  }

  #refreshing(lease: EtcdLease, limit: number): SharedWork<unknown> {
    lease.refreshing ??= new SharedWork(
      (ms) => this.renew(lease, [], ms).finally(() => (lease.refreshing = undefined)),
      limit,
    );
    return lease.refreshing;
  }

  /**
   * Ends the use of the present shared etcd lease: its keys expire within `seconds`, except those that are stored again
   * with the next etcd lease.
   */
  retire(seconds: number): void {
    this.#shared.get(seconds)?.result.then(
      (lease) => (lease.gone = true),
      () => undefined,
    );
  }

  /** Returns an etcd lease for a single lock. It may have been granted for an earlier attempt. */
  async own(seconds: number, limit: number): Promise<EtcdLease> {
    const spare = this.#spare.get(seconds);
    this.#spare.delete(seconds);
    if (spare && spare.age < spare.ttl / 3) return spare;
    if (spare) this.drop(spare);
    return this.once(seconds, limit);
  }

  /** Takes back an etcd lease to which no key is attached, for a later attempt. */
  giveBack(lease: EtcdLease): void {
    if (lease.shared || lease.gone) return;
    const other = this.#spare.get(lease.seconds);
    const isYounger = !other || other.age > lease.age;
    if (isYounger) this.#spare.set(lease.seconds, lease);
    const rest = isYounger ? other : lease;
    if (rest) this.drop(rest);
  }

  /**
   * Revokes an etcd lease whose keys, if there are any, are not needed. If that fails, the etcd lease ends when its
   * time has passed.
   */
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
   * Renews an etcd lease, and then reads its keys.
   *
   * A former leader that does not know of its successor yet also renews leases. So the method then reads the keys
   * through the same member: etcd answers the read only with a majority. If both answers have the same Raft term, the
   * leader that renewed the lease was the leader of the majority.
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
      const look = await this.gateway.call<TxnReply>('kv/txn', { success }, left, { at: from });
      if (look.reply.header.raft_term !== result.header.raft_term)
        throw new Error('the leader of the cluster changed meanwhile');
      page.forEach((_, index) => found.push(entriesAt(look.reply, index)[0]));
    }
    if (isConfirmed && sent.monotonic > lease.confirmed.monotonic) lease.confirmed = sent;
    if (lease.shared) this.onRenewed(lease);
    return { isConfirmed, found };
  }

  /** Revokes an etcd lease. That deletes all its keys, and makes late transactions with it fail (S16). */
  async revoke({ id }: EtcdLease, limit: number): Promise<void> {
    try {
      await this.gateway.call('lease/revoke', { ID: id }, limit);
    } catch (error) {
      if (!(error as GatewayError).isNotFound) throw error;
    }
  }

  /**
   * Returns the etcd lease of a lock that another store of this process, or another process, has stored.
   *
   * @throws Error when etcd reports that the lease does not exist
   */
  async known(id: string, limit: number): Promise<EtcdLease> {
    const looked = now();
    const { reply } = await this.gateway.call<{ grantedTTL?: string; header: Header }>(
      'lease/timetolive',
      { ID: id },
      limit,
    );
    const seconds = Number(reply.grantedTTL ?? 0);
    if (seconds === 0)
      throw new Error(`a member reports that it has no lease ${id}: the leader may be changing`);
    return new EtcdLease(id, this.names.fence(id), seconds, false, looked);
  }

  /**
   * Removes locks in whose place others have come: nobody releases them, and a shared etcd lease with locks stays until
   * its time has passed.
   */
  forget(holders: readonly { readonly id: string; readonly etcdLease: string }[]): void {
    const of = ({ id, members }: EtcdLease): void => {
      const ids = holders.filter(({ etcdLease }) => etcdLease === id).map((holder) => holder.id);
      if (ids.length === 0) return;
      for (const lease of members.keys()) if (ids.includes(lease.id)) members.delete(lease);
    };
    for (const { result } of this.#shared.values()) result.then(of, () => undefined);
  }

  /** Returns a new etcd lease that is not shared. `seconds` may be as small as etcd accepts. */
  once(seconds: number, limit: number): Promise<EtcdLease> {
    return this.#grant(seconds, limit, false);
  }

  /**
   * The remaining time of each etcd lease, in milliseconds. The result is the longest possible time: etcd reports whole
   * seconds, rounded down, and at most one second more is left. 0 for a lease that no longer exists.
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

  /** Revokes unused leases, so that etcd does not keep them until their end; never rejects. */
  async close(limit: number): Promise<void> {
    const shared = await Promise.allSettled([...this.#shared.values()].map(({ result }) => result));
    const unused = shared.flatMap((each) =>
      each.status === 'fulfilled' && each.value.members.size === 0 ? [each.value] : [],
    );
    const all = [...unused, ...this.#spare.values()];
    await Promise.allSettled(all.map((lease) => this.revoke(lease, limit)));
  }
}
