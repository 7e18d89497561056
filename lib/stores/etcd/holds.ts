import type { Lease } from '../../core/lease.js';
import type { EtcdLease } from './etcd-leases.js';
import type { SlotHints } from './slot-hints.js';

/** The keys that a lease of this library has in etcd. */
export interface Hold {
  /** The etcd lease with which the keys expire. */
  etcdLease: EtcdLease;
  /**
   * Other etcd leases with which the keys may expire: the transactions that move the keys to these etcd leases were not
   * answered.
   */
  doubtful: readonly EtcdLease[];
  /** The name under which etcd stores the holder of each key, in the order of the lock's keys. */
  readonly names: readonly string[];
  /** The slot of each key; only with permits. */
  readonly slots: readonly number[] | undefined;
  readonly token: number;
}

/** The keys that the leases of this process have in etcd, as far as this process knows. */
export class Holds {
  readonly #holds = new WeakMap<Lease, Hold>();
  /** Leases that were released or have failed. */
  readonly #ended = new WeakSet<Lease>();
  readonly #asking = new WeakMap<Lease, Promise<unknown>>();
  /** The last request for a lease that may move its keys to another etcd lease. */
  readonly #moving = new WeakMap<Lease, Promise<unknown>>();

  constructor(private readonly hints: SlotHints) {}

  of(lease: Lease): Hold | undefined {
    return this.#holds.get(lease);
  }

  add(lease: Lease, hold: Hold): void {
    this.#holds.set(lease, hold);
    if (hold.etcdLease.shared) hold.etcdLease.members.set(lease, performance.now());
  }

  /**
   * Records that the keys of the lease now expire with `next`, whose transaction was confirmed.
   *
   * @returns the etcd leases of the lock that are no longer needed. No late transaction can move a key to them: its
   * comparison with the former state of the keys fails
   */
  moved(lease: Lease, hold: Hold, next: EtcdLease): readonly EtcdLease[] {
    const { etcdLease: before, doubtful } = hold;
    before.members.delete(lease);
    hold.etcdLease = next;
    hold.doubtful = [];
    return [...doubtful, ...(before.shared ? [] : [before])].filter((other) => other !== next);
  }

  delete(lease: Lease): void {
    const hold = this.#holds.get(lease);
    hold?.etcdLease.members.delete(lease);
    if (hold?.slots) this.hints.free(lease.keys, hold.slots);
    this.#holds.delete(lease);
  }

  /** Marks a lease as ended: etcd no longer stores it. */
  end(lease: Lease): void {
    this.#ended.add(lease);
  }

  hasEnded(lease: Lease): boolean {
    return lease.ended || this.#ended.has(lease);
  }

  /** Records a request for the lease: a release must not overtake it (S6). */
  asks(lease: Lease, answer: Promise<unknown>): void {
    this.#asking.set(lease, answer);
  }

  /**
   * Runs a request that may move the keys of a lease to another etcd lease, after the one before. The replies of two such
   * requests could come in another order than their transactions were made, and the earlier one would then drop the etcd
   * lease of the later one, and with it the keys.
   */
  inTurn(lease: Lease, request: () => Promise<boolean>): Promise<boolean> {
    const before = this.#moving.get(lease);
    const answer = before ? before.then(request, request) : request();
    this.#moving.set(lease, answer);
    return answer;
  }

  /** Resolves when no request for the lease is under way, whatever its result is. */
  async answered(lease: Lease): Promise<void> {
    await this.#asking.get(lease)?.catch(() => undefined);
  }
}
