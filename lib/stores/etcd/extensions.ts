import { asError } from '../../core/errors.js';
import type { Lease } from '../../core/lease.js';
import type { Tell } from '../../core/ports.js';
import { type EtcdLease, type EtcdLeases, limitOf, secondsOf } from './etcd-leases.js';
import { GatewayError } from './gateway.js';
import type { Hold, Holds } from './holds.js';
import { entriesAt, get, modifiedAt, put, type Entry } from './protocol.js';
import type { Releases } from './releases.js';
import type { Transactions } from './transactions.js';

/** How much later than its ttl a lock is taken for lapsed that shares its end with others, in milliseconds. */
const MARGIN_MS = 1_000;

export interface ExtensionContext {
  readonly transactions: Transactions;
  readonly leases: EtcdLeases;
  readonly holds: Holds;
  readonly releases: Releases;
}

interface Extended {
  readonly lease: Lease;
  readonly hold: Hold;
  readonly index: number;
}

/** Makes leases live on: one keepalive for all that end together, and a look whether each of them is there still. */
export class Extensions {
  constructor(private readonly context: ExtensionContext) {}

  extend(leases: readonly Lease[], ttl: number, tell: Tell<boolean>): void {
    const together = new Map<EtcdLease, Extended[]>();
    for (const [index, lease] of leases.entries()) {
      const hold = this.context.holds.of(lease);
      if (!hold || this.context.holds.hasEnded(lease)) {
        tell(index, false);
      } else if (lease.slots && hold.slots && !isSame(lease.slots, hold.slots)) {
        // Another slot than the one that counts is given up.
        const given = this.context.releases.giveUp(lease, hold);
        void settle(
          given.then(() => false),
          index,
          tell,
        );
      } else if (hold.moving || secondsOf(ttl) > hold.etcdLease.seconds) {
        void settle(this.#move(lease, hold, ttl), index, tell);
      } else {
        const group = together.get(hold.etcdLease) ?? [];
        group.push({ lease, hold, index });
        together.set(hold.etcdLease, group);
      }
    }
    for (const [etcdLease, group] of together) void this.#renew(etcdLease, group, ttl, tell);
  }

  async #renew(
    etcdLease: EtcdLease,
    group: readonly Extended[],
    ttl: number,
    tell: Tell<boolean>,
  ): Promise<void> {
    const { leases } = this.context;
    if (etcdLease.shared) for (const { lease } of group) etcdLease.members.set(lease, performance.now());
    const names = group.flatMap(({ hold }) => hold.names);
    let found: readonly (Entry | undefined)[] | undefined;
    try {
      found = await leases.renew(
        etcdLease,
        names.map((name) => [name]),
        limitOf(ttl),
      );
    } catch (error) {
      for (const { index } of group) tell(index, asError(error));
      return;
    }
    let at = 0;
    for (const { hold, index } of group) {
      const entries = found?.slice(at, (at += hold.names.length)) ?? [];
      tell(index, entries.length > 0 && entries.every((entry) => entry?.lease === etcdLease.id));
    }
    this.#sweep(etcdLease);
  }

  /** A lock that nobody has asked to live on for its ttl must end, though what it ends with goes on for others. */
  #sweep(etcdLease: EtcdLease): void {
    const { holds, releases } = this.context;
    const least = performance.now() - etcdLease.ttl - MARGIN_MS;
    for (const [lease, asked] of etcdLease.members) {
      const hold = asked < least ? holds.of(lease) : undefined;
      if (hold) releases.lapsed(lease, hold);
    }
  }

  /** Gives the lease an end of its own that is later: etcd prolongs a lease by the time that it was granted for only. */
  async #move(lease: Lease, hold: Hold, ttl: number): Promise<boolean> {
    const { transactions, leases } = this.context;
    const limit = limitOf(ttl);
    const look = await transactions.run({ success: hold.names.map((name) => get([name])) }, limit);
    const entries = hold.names.map((_, index) => entriesAt(look, index)[0]);
    if (!entries.every((entry) => entry !== undefined)) return false;
    if (hold.moving && entries.every((entry) => entry.lease === hold.moving?.id)) {
      this.#moved(lease, hold, hold.moving, limit);
      if (secondsOf(ttl) <= hold.etcdLease.seconds) {
        const names = hold.names.map((name) => [name] as const);
        const found = await leases.renew(hold.etcdLease, names, limit);
        return found !== undefined && found.every((entry) => entry?.lease === hold.etcdLease.id);
      }
    }
    const next = await leases.once(secondsOf(ttl), limit);
    hold.moving = next;
    const unchanged = entries.map(({ key, modified }) => modifiedAt(key, modified));
    try {
      const { succeeded } = await transactions.run(
        { compare: unchanged, success: entries.map(({ key, value }) => put(key, value, next.id)) },
        limit,
      );
      if (!succeeded) throw new Error('it was changed meanwhile');
    } catch (error) {
      if (error instanceof GatewayError && error.certain) hold.moving = undefined;
      throw error;
    }
    this.#moved(lease, hold, next, limit);
    return true;
  }

  #moved(lease: Lease, hold: Hold, next: EtcdLease, limit: number): void {
    const before = hold.etcdLease;
    before.members.delete(lease);
    hold.etcdLease = next;
    hold.moving = undefined;
    if (!before.shared) this.context.leases.revoke(before, limit).catch(() => undefined);
  }
}

async function settle(answer: Promise<boolean>, index: number, tell: Tell<boolean>): Promise<void> {
  try {
    tell(index, await answer);
  } catch (error) {
    tell(index, asError(error));
  }
}

function isSame(a: readonly number[], b: readonly number[]): boolean {
  return a.every((slot, index) => slot === b[index]);
}
