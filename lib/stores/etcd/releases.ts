import type { Lease } from '../../core/lease.js';
import { PendingReleases } from '../../core/pending-releases.js';
import type { EtcdLease, EtcdLeases } from './etcd-leases.js';
import { limitOf, secondsOf } from './etcd-leases.js';
import { GatewayError } from './gateway.js';
import type { Hold, Holds } from './holds.js';
import { type FoundHolder, holderValue, tickValue, viewOf } from './key-view.js';
import { holdersOf, keptName, type Names, tickName } from './names.js';
import { entriesAt, get, present, put, remove, revisionOf } from './protocol.js';
import type { TxnRunner } from './txn-runner.js';

/** An etcd lease counts as ended this many milliseconds after the end of its time to live. */
const MARGIN_MS = 1_000;

/** Keys that must not stay in etcd. */
interface Remains {
  readonly etcdLease: EtcdLease;
  readonly names: readonly string[];
  /** `true` if a late transaction may still store the keys: that transaction must be made to fail first. */
  readonly mayCome: boolean;
}

export interface ReleaseContext {
  readonly transactions: TxnRunner;
  readonly leases: EtcdLeases;
  readonly names: Names;
  readonly holds: Holds;
}

/** A deletion that is repeated until etcd has answered. */
interface Pending {
  readonly run: () => Promise<void>;
  /** The etcd lease with which the keys expire at the latest. */
  readonly etcdLease: EtcdLease;
  /** The end of the repetitions, by the monotonic clock. */
  readonly until: number;
  /** The present attempt. */
  running?: Promise<void> | undefined;
}

/**
 * Releases leases, and deletes the keys that an acquisition without an answer may have stored. Such keys might never
 * expire by themselves, because other locks renew the shared etcd lease (S6, S16).
 */
export class Releases {
  readonly #pending = new PendingReleases<Pending>(() => this.retryAll());

  constructor(private readonly context: ReleaseContext) {}

  /** @throws Error when etcd has not confirmed the release, which is then repeated */
  async release(lease: Lease): Promise<void> {
    const { holds } = this.context;
    holds.end(lease);
    await holds.answered(lease);
    const hold = holds.of(lease);
    if (hold && !this.#pending.has(lease))
      this.#add(lease, hold.etcdLease, async () => {
        await this.#free(lease, hold);
        holds.delete(lease);
      });
    await this.#try(lease);
  }

  /** Frees the keys of a lease. A later request may store the same lease again. */
  async giveUp(lease: Lease, { names }: Hold): Promise<void> {
    await this.context.transactions.run({ success: names.map(remove) }, limitOf(lease.ttl));
    this.context.holds.delete(lease);
  }

  /** Deletes the keys that an acquisition may have stored. Called when the result of the acquisition is unknown. */
  doubt(lease: Lease, etcdLease: EtcdLease, names: readonly string[]): void {
    this.#add(lease, etcdLease, () => this.#clean({ etcdLease, names, mayCome: true }));
    this.#retry(lease);
  }

  /** Deletes the keys of an expired lock whose shared etcd lease is still renewed. */
  lapsed(lease: Lease, { etcdLease, names }: Hold): void {
    this.context.holds.delete(lease);
    this.#add(lease, etcdLease, () => this.#clean({ etcdLease, names, mayCome: false }));
    this.#retry(lease);
  }

  /** Repeats all pending deletions. */
  retryAll(): void {
    for (const lease of this.#pending.keys()) this.#retry(lease);
  }

  close(): void {
    this.#pending.close();
  }

  #add(lease: Lease, etcdLease: EtcdLease, run: () => Promise<void>): void {
    this.#pending.set(lease, { run, etcdLease, until: performance.now() + lease.pendingFor });
  }

  #retry(lease: Lease): void {
    this.#try(lease).catch(() => undefined);
  }

  /**
   * Makes one attempt, but never two at a time: an attempt without an answer can last longer than the pause between
   * attempts.
   */
  async #try(lease: Lease): Promise<void> {
    const pending = this.#pending.get(lease);
    if (!pending) return;
    try {
      await (pending.running ??= pending.run().finally(() => (pending.running = undefined)));
      if (this.#pending.get(lease) === pending) this.#pending.delete(lease);
    } catch (error) {
      if (isOver(pending)) this.#forget(lease, pending);
      else this.#pending.later();
      throw error;
    }
  }

  /**
   * Stops repeating a deletion. Marks the etcd lease of the keys as gone, so that nothing renews this etcd lease and
   * the keys expire with it. The keys may still exist, because after a downtime etcd counts the time of its leases from
   * zero.
   */
  #forget(lease: Lease, { etcdLease }: Pending): void {
    etcdLease.gone = true;
    this.#pending.delete(lease);
    this.context.holds.delete(lease);
  }

  async #free(lease: Lease, { etcdLease, names, doubtful }: Hold): Promise<void> {
    const { transactions, leases } = this.context;
    const { keepFor, mark, owner, keys } = lease;
    const limit = limitOf(lease.ttl);
    const isOwn = !etcdLease.shared;
    const own = isOwn ? [...doubtful, etcdLease] : doubtful;
    const endOwn = (): Promise<unknown> => Promise.all(own.map((each) => leases.revoke(each, limit)));
    // Another thread may have moved the keys of a lent lock to an etcd lease that this store does not know.
    if (isOwn && keepFor === 0 && !mark && lease.lent === undefined) return void (await endOwn());
    const others: object[] = [];
    if (mark) {
      const life = await leases.once(secondsOf(mark.life), limit);
      const name = tickName(this.context.names.of(keys[0] ?? ''), mark.schedule, mark.at);
      others.push(put(name, tickValue(owner.toWellFormed(), mark.life), life.id));
    }
    const kept = keepFor > 0 ? await this.#kept(lease, names, keepFor, limit) : [];
    const freed = [...names.map(remove), ...others];
    // `minHold` does not apply to a lock that has already expired.
    await transactions.run(
      { compare: keepFor > 0 ? names.map(present) : [], success: [...freed, ...kept], failure: freed },
      limit,
    );
    await endOwn();
  }

  /** Keeps the keys for some time, under names that no renewal extends. */
  async #kept({ keys }: Lease, names: readonly string[], keepFor: number, limit: number): Promise<object[]> {
    const { transactions, leases } = this.context;
    const stored = keys.map((key) => this.context.names.of(key));
    const look = await transactions.run({ success: stored.map((key) => get(holdersOf(key))) }, limit);
    const found = stored.flatMap((key, index) => viewOf(key, entriesAt(look, index)).holders);
    const mine = names
      .map((name) => found.find((holder) => holder.name === name))
      .filter((holder): holder is FoundHolder => holder !== undefined);
    const { id } = await leases.once(secondsOf(keepFor), limit);
    return mine.map((holder) => put(keptName(holder.name), holderValue(holder), id));
  }

  /** Deletes the keys, and makes late transactions for them fail. */
  async #clean({ etcdLease, names, mayCome }: Remains): Promise<void> {
    const { transactions, leases } = this.context;
    const limit = limitOf(etcdLease.ttl);
    if (!etcdLease.shared) return leases.revoke(etcdLease, limit);
    const fence = mayCome ? [put(etcdLease.fenceName, '', etcdLease.id)] : [];
    try {
      const { header } = await transactions.run({ success: [...fence, ...names.map(remove)] }, limit);
      if (mayCome) etcdLease.fence = Math.max(etcdLease.fence, revisionOf(header));
    } catch (error) {
      // The etcd lease does not exist, so no key is attached to it.
      if (!(error instanceof GatewayError && error.isNotFound)) throw error;
    }
  }
}

/**
 * `true` if all keys have expired: the etcd lease with which they expire has ended, and the repetitions have lasted
 * long enough.
 */
function isOver({ etcdLease, until }: Pending): boolean {
  return performance.now() > until && etcdLease.age > etcdLease.ttl + MARGIN_MS;
}
