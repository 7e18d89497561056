import type { Lease } from '../../core/lease.js';
import type { Decision, KeyRecords } from './key-records.js';
import { type KeyView, liveHolders, renewed, replaced, without } from './key-view.js';
import type { Leases } from './leases.js';

/** Extends leases. */
export class Extensions {
  constructor(
    private readonly records: KeyRecords,
    private readonly leases: Leases,
  ) {}

  /** Resolves to `false` if the lease does not hold all its keys. */
  async extend(lease: Lease, ttl: number): Promise<boolean> {
    if (!lease.isCopy && !this.leases.wasGranted(lease)) return false;
    const renew = (views: readonly KeyView[]): Decision<boolean> => {
      if (this.leases.hasEnded(lease)) return { result: false };
      const own = views.map((view) => liveHolders(view).find(({ id, kept }) => id === lease.id && !kept));
      const isComplete = own.every(
        (holder, index) => holder && (!lease.slots || holder.slot === lease.slots[index]),
      );
      if (isComplete)
        return {
          result: true,
          next: views.map((view, index) => replaced(view, own[index]!, renewed(view, own[index]!, ttl))),
        };
      // Frees the slots that the lease does not count as its own.
      const isElsewhere = own.some((holder, index) => holder && holder.slot !== lease.slots?.[index]);
      if (!isElsewhere) return { result: false };
      return { result: false, next: views.map((view) => without(view, lease.id)) };
    };
    // Another connection has acquired or renewed the lock, so the server of this connection may not know that yet.
    return this.records.change(lease.keys, renew, lease.isCopy === true || lease.lent !== undefined);
  }
}
