import { asError } from '../../core/errors.js';
import type { Lease } from '../../core/lease.js';
import type { Tell } from '../../core/ports.js';
import { type EtcdLease, type EtcdLeases, limitOf, type Renewal, secondsOf } from './etcd-leases.js';
import { didNothing } from './gateway.js';
import type { Hold, Holds } from './holds.js';
import { holderName, type Names } from './names.js';
import { entriesAt, get, modifiedAt, put } from './protocol.js';
import type { Releases } from './releases.js';
import type { TxnRunner } from './txn-runner.js';

/** A lock with a shared etcd lease counts as expired this many milliseconds after the end of its ttl. */
const MARGIN_MS = 1_000;

export interface ExtensionContext {
  readonly transactions: TxnRunner;
  readonly leases: EtcdLeases;
  readonly names: Names;
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
      if (!hold && lease.isCopy) {
        void settle(this.#findAndRenew(lease, ttl), index, tell);
      } else if (!hold || this.context.holds.hasEnded(lease)) {
        tell(index, false);
      } else if (lease.slots && hold.slots && !isSame(lease.slots, hold.slots)) {
        // The slots of the lock differ from its stored slots, so free the stored slots.
        const given = this.context.releases.giveUp(lease, hold);
        void settle(
          given.then(() => false),
          index,
          tell,
        );
      } else if (mustMove(lease, hold, ttl)) {
        void settle(this.#moveInTurn(lease, hold, ttl), index, tell);
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
    for (const { lease, hold, index } of group) {
      const found = renewal.found.slice(at, (at += hold.names.length));
      // Another thread of this process may have moved the keys to another etcd lease.
      const wasMoved =
        lease.lent !== undefined && found.every((entry) => entry && entry.lease !== etcdLease.id);
      if (wasMoved) void settle(this.#findAndRenew(lease, ttl), index, tell);
      else tell(index, extendedBy({ ...renewal, found }, etcdLease));
    }
  }

  /** Reads with which etcd lease the keys of a lock expire that another thread has acquired or moved, and renews it. */
  async #findAndRenew(lease: Lease, ttl: number): Promise<boolean> {
    const { transactions, leases, names, holds } = this.context;
    const limit = limitOf(ttl);
    const { mode } = lease.kind;
    const stored = lease.keys.map((key, index) =>
      holderName(names.of(key), mode, lease.id, lease.slots?.[index]),
    );
    const look = await transactions.run(
      { success: stored.map((name) => get([name], { keys_only: true })) },
      limit,
    );
    const [first, ...others] = stored.map((_, index) => entriesAt(look, index)[0]?.lease);
    if (first === undefined || others.includes(undefined)) return false;
    if (others.some((id) => id !== first)) throw new Error('the keys of the lock are being moved');
    const etcdLease = await leases.known(first, limit);
    if (holds.hasEnded(lease)) return false;
    const hold: Hold = { etcdLease, doubtful: [], names: stored, slots: lease.slots, token: 0 };
    holds.add(lease, hold);
    return new Promise((resolve, reject) => {
      const tell: Tell<boolean> = (_, answer) => (answer instanceof Error ? reject(answer) : resolve(answer));
      if (secondsOf(ttl) > etcdLease.seconds) void settle(this.#moveInTurn(lease, hold, ttl), 0, tell);
      else void this.#renew(etcdLease, [{ lease, hold, index: 0 }], ttl, tell);
    });
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

  #moveInTurn(lease: Lease, hold: Hold, ttl: number): Promise<boolean> {
    return this.context.holds.inTurn(lease, () => this.#move(lease, hold, ttl));
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
    hold.doubtful = [...hold.doubtful, next];
    const unchanged = entries.map(({ key, modified }) => modifiedAt(key, modified));
    const success = entries.map(({ key, value }) => put(key, value, next.id));
    let isMade: boolean | undefined;
    try {
      isMade = (await transactions.run({ compare: unchanged, success }, limit, true)).succeeded === true;
      if (!isMade) throw new Error('another request changed the lock meanwhile');
    } catch (error) {
      if (isMade === false || didNothing(error)) {
        hold.doubtful = hold.doubtful.filter((each) => each !== next);
        leases.drop(next);
      }
      throw error;
    }
    this.#moved(lease, hold, next);
    return true;
  }

  #moved(lease: Lease, hold: Hold, next: EtcdLease): void {
    if (lease.lent !== undefined) lease.lent = 'certain';
    for (const other of this.context.holds.moved(lease, hold, next)) this.context.leases.drop(other);
  }
}

/**
 * `true` if a renewal of the etcd lease is not enough. A transaction that may still come moves the keys to another etcd
 * lease, which nobody renews. It compares with the former state of the keys, so it does nothing after a move.
 */
function mustMove({ lent }: Lease, { doubtful, etcdLease }: Hold, ttl: number): boolean {
  return lent === 'in doubt' || doubtful.length > 0 || secondsOf(ttl) > etcdLease.seconds;
}

/** The answer for the lease whose keys are at the positions `from` to `to` of the read keys. */
function extendedBy({ isConfirmed, found }: Renewal, { id }: EtcdLease): boolean | Error {
  const isThere = found.every((entry) => entry?.lease === id);
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
