import { elapsedSince, type Instant, now } from '../../core/clock.js';
import type { Lease } from '../../core/lease.js';
import type { Gateway, GatewayError } from './gateway.js';
import type { Names } from './names.js';
import { entriesAt, type Entry, get, type Header, type KeyRange, type TxnReply } from './protocol.js';

/** So many keys are looked at in one transaction: etcd takes 128 operations. */
const PAGE = 100;

/** So many leases are asked for what is left of them, where many hold a key. */
const MOST_ASKED = 64;

/** How long a look may take that is for people or for a hint, in milliseconds. */
const LOOK_LIMIT_MS = 5_000;

/** What ends keys in etcd by themselves: a lease of etcd's, which is not a `Lease`. */
export class EtcdLease {
  /**
   * Nothing new is to end with it: etcd has said that it is no more, or something was left under it. A leader that was deposed, or has not caught up yet, says
   * so of leases of another term; so nothing is taken for ended because of it.
   */
  gone = false;
  /**
   * Changed when the outcome of an acquisition under it is not known: what is compared with an earlier one is refused, so
   * that a transaction that comes late stores nothing (S16). The revision of a key that ends with it; 0 while there is none.
   */
  fence = 0;
  /** Of a shared one: what ends with it, and when that was last asked to live on, by the monotonic clock. */
  readonly members = new Map<Lease, number>();
  /** When it is asked to live on in the background, if it is. */
  refreshing: Promise<unknown> | undefined;

  /** @param confirmed - when that was sent which etcd has confirmed last: what ends with it lives so long from then on */
  constructor(
    readonly id: string,
    readonly fenceName: string,
    readonly seconds: number,
    readonly shared: boolean,
    public confirmed: Instant,
  ) {}

  /** Milliseconds that have passed of its time to live. */
  get age(): number {
    return elapsedSince(this.confirmed);
  }

  get ttl(): number {
    return this.seconds * 1_000;
  }
}

/** What came of asking a lease of etcd's to live on. */
export interface Renewal {
  /** It does. Else etcd says that it has no such lease, of which only the keys tell whether it is so. */
  readonly isConfirmed: boolean;
  /** What is there of each of the keys. */
  readonly found: readonly (Entry | undefined)[];
}

/** The whole seconds that a ttl comes to. */
export function secondsOf(ttl: number): number {
  return Math.ceil(ttl / 1_000);
}

/** How long a request of a lock with such a ttl may take where its caller does not say, in milliseconds. */
export function limitOf(ttl: number): number {
  return Math.min(Math.max(ttl / 10, 50), 10_000);
}

/** The leases of etcd's that this process has. */
export class EtcdLeases {
  /** By seconds, for locks that are renewed until they are released. */
  readonly #shared = new Map<number, Promise<EtcdLease>>();
  /** Leases with which nothing ends, after attempts that were refused; by seconds. */
  readonly #spare = new Map<number, EtcdLease>();
  /** Called when a shared one lives on, and with it all that ends with it. */
  onRenewed: (lease: EtcdLease) => void = () => undefined;

  constructor(
    private readonly gateway: Gateway,
    private readonly names: Names,
  ) {}

  /** The one of this process for locks of so many seconds; at least half of its time is left. */
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

  /** One for a single lock; it may have been granted for an earlier attempt. */
  async own(seconds: number, limit: number): Promise<EtcdLease> {
    const spare = this.#spare.get(seconds);
    this.#spare.delete(seconds);
    if (spare && spare.age < spare.ttl / 3) return spare;
    if (spare) this.drop(spare);
    return this.once(seconds, limit);
  }

  /** Nothing ends with it, and nothing will. */
  giveBack(lease: EtcdLease): void {
    if (lease.shared || lease.gone) return;
    const other = this.#spare.get(lease.seconds);
    const isYounger = !other || other.age > lease.age;
    if (isYounger) this.#spare.set(lease.seconds, lease);
    const rest = isYounger ? other : lease;
    if (rest) this.drop(rest);
  }

  /** Ends one with which nothing ends that counts; by itself it does so when its time has passed. */
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
   * Has it live on, and looks at the keys after that.
   *
   * A leader that has been deposed and does not know it yet renews leases all the same. So a look through the same member
   * must follow, which needs a majority, and in the same term: then it was the leader's to renew.
   *
   * @throws Error when it is not known what came of it
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

  /** Ends it, and all that ends with it; also what comes late (S16). */
  async revoke({ id }: EtcdLease, limit: number): Promise<void> {
    try {
      await this.gateway.call('lease/revoke', { ID: id }, limit);
    } catch (error) {
      if (!(error as GatewayError).isNotFound) throw error;
    }
  }

  /** One of its own; `seconds` may be as few as etcd grants. */
  once(seconds: number, limit: number): Promise<EtcdLease> {
    return this.#grant(seconds, limit, false);
  }

  /** Milliseconds that are left of each lease at most: etcd tells whole seconds, rounded down. 0 when it is no more. */
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

  /** Ends leases with which nothing ends, so that they need not be kept by etcd; never rejects. */
  async close(limit: number): Promise<void> {
    const shared = await Promise.allSettled(this.#shared.values());
    const unused = shared.flatMap((each) =>
      each.status === 'fulfilled' && each.value.members.size === 0 ? [each.value] : [],
    );
    const all = [...unused, ...this.#spare.values()];
    await Promise.allSettled(all.map((lease) => this.revoke(lease, limit)));
  }
}
