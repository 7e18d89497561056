import { asError } from '../../core/errors.js';
import type { Lease } from '../../core/lease.js';
import type { Tell } from '../../core/ports.js';
import { type EtcdLease, type EtcdLeases, limitOf, type Renewal, secondsOf } from './etcd-leases.js';
import { didNothing } from './gateway.js';
import type { Hold, Holds } from './holds.js';
import { entriesAt, get, modifiedAt, put } from './protocol.js';
import type { Releases } from './releases.js';
import type { TxnRunner } from './txn-runner.js';

/** A lock with a shared etcd lease counts as expired this many milliseconds after the end of its ttl. */
const MARGIN_MS = 1_000;

export interface ExtensionContext {
  readonly transactions: TxnRunner;
  readonly leases: EtcdLeases;
  readonly holds: Holds;
  readonly releases: Releases;
}

interface Extended {
  readonly lease: Lease;
  readonly hold: Hold;
  readonly index: number;
}

/**
 * Extends locks. All locks with the same etcd lease need one keepalive, and a read shows if each of these locks still
 * exists.
 */
export class Extensions {
  constructor(private readonly context: ExtensionContext) {
    context.leases.onRenewed = (etcdLease) => this.#sweep(etcdLease);
  }

  extend(leases: readonly Lease[], ttl: number, tell: Tell<boolean>): void {
    const together = new Map<EtcdLease, Extended[]>();
    for (const [index, lease] of leases.entries()) {
      const hold = this.context.holds.of(lease);
      if (!hold || this.context.holds.hasEnded(lease)) {
        tell(index, false);
      } else if (lease.slots && hold.slots && !isSame(lease.slots, hold.slots)) {
        // The slots of the lock differ from its stored slots, so free the stored slots.
        const given = this.context.releases.giveUp(lease, hold);
        void settle(
          given.then(() => false),
          index,
          tell,
        );
      } else if (hold.doubtful.length > 0 || secondsOf(ttl) > hold.etcdLease.seconds) {
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
    let renewal: Renewal;
    try {
      renewal = await leases.renew(
        etcdLease,
        names.map((name) => [name]),
        limitOf(ttl),
      );
    } catch (error) {
      for (const { index } of group) tell(index, asError(error));
      return;
    }
    let at = 0;
    for (const { hold, index } of group)
      tell(index, extendedBy(renewal, etcdLease, at, (at += hold.names.length)));
  }

  /**
   * Ends locks whose ttl has passed without a renewal. Their keys do not expire, because other locks renew the shared
   * etcd lease.
   */
  #sweep(etcdLease: EtcdLease): void {
    const { holds, releases } = this.context;
    const least = performance.now() - etcdLease.ttl - MARGIN_MS;
    for (const [lease, asked] of etcdLease.members) {
      const hold = asked < least ? holds.of(lease) : undefined;
      if (hold) releases.lapsed(lease, hold);
    }
  }

  /**
   * Moves the keys of a lock to another etcd lease with a later end: a renewal gives an etcd lease only the time for
   * which it was granted.
   */
  async #move(lease: Lease, hold: Hold, ttl: number): Promise<boolean> {
    const { transactions, leases, holds } = this.context;
    const limit = limitOf(ttl);
    const look = await transactions.run({ success: hold.names.map((name) => get([name])) }, limit);
    const entries = hold.names.map((_, index) => entriesAt(look, index)[0]);
    if (!entries.every((entry) => entry !== undefined)) return false;
    const made = hold.doubtful.find(({ id }) => entries.every((entry) => entry.lease === id));
    if (made) {
      this.#moved(lease, hold, made);
      if (secondsOf(ttl) <= made.seconds) {
        const names = hold.names.map((name) => [name] as const);
        const answer = extendedBy(await leases.renew(made, names, limit), made);
        if (answer instanceof Error) throw answer;
        return answer;
      }
    }
    const next = await leases.once(secondsOf(ttl), limit);
    if (holds.hasEnded(lease)) {
      // The lock was released meanwhile, and the release did not know the new etcd lease. Keys that are now moved to
      // the new etcd lease would stay until the ttl has passed.
      leases.drop(next);
      return false;
    }
    hold.doubtful.push(next);
    const unchanged = entries.map(({ key, modified }) => modifiedAt(key, modified));
    const success = entries.map(({ key, value }) => put(key, value, next.id));
    let isMade: boolean | undefined;
    try {
      isMade = (await transactions.run({ compare: unchanged, success }, limit, true)).succeeded === true;
      if (!isMade) throw new Error('another request changed the lock meanwhile');
    } catch (error) {
      if (isMade === false || didNothing(error)) {
        hold.doubtful.splice(hold.doubtful.indexOf(next), 1);
        leases.drop(next);
      }
      throw error;
    }
    this.#moved(lease, hold, next);
    return true;
  }

  #moved(lease: Lease, hold: Hold, next: EtcdLease): void {
    const { etcdLease: before, doubtful } = hold;
    before.members.delete(lease);
    hold.etcdLease = next;
    hold.doubtful = [];
    // The other etcd leases are no longer needed. No late transaction can move a key to these etcd leases: the
    // comparison with the former state of the keys fails.
    const others = [...doubtful, ...(before.shared ? [] : [before])].filter((other) => other !== next);
    for (const other of others) this.context.leases.drop(other);
  }
}

/** The answer for the lease whose keys are at the positions `from` to `to` of the read keys. */
function extendedBy(
  { isConfirmed, found }: Renewal,
  { id }: EtcdLease,
  from = 0,
  to = found.length,
): boolean | Error {
  const isThere = found.slice(from, to).every((entry) => entry?.lease === id);
  if (!isThere || isConfirmed) return isThere;
  return new Error(
    `a member reports that it has no lease ${id}, but the keys of that lease exist: the leader is changing`,
  );
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
