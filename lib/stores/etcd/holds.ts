import type { Lease } from '../../core/lease.js';
import type { EtcdLease } from './etcd-leases.js';
import type { SlotHints } from './slot-hints.js';

/** What a lease has in etcd. */
export interface Hold {
  /** What it ends with. */
  etcdLease: EtcdLease;
  /** What it may end with in place of that: the answers to what moved it there were lost. */
  doubtful: EtcdLease[];
  /** The names of the holder of its keys, in their order. */
  readonly names: readonly string[];
  /** Only with permits. */
  readonly slots: readonly number[] | undefined;
  readonly token: number;
}

/** What the leases of this process have in etcd, as far as is known. */
export class Holds {
  readonly #holds = new WeakMap<Lease, Hold>();
  /** Released, or given up. */
  readonly #ended = new WeakSet<Lease>();
  readonly #asking = new WeakMap<Lease, Promise<unknown>>();

  constructor(private readonly hints: SlotHints) {}

  of(lease: Lease): Hold | undefined {
    return this.#holds.get(lease);
  }

  add(lease: Lease, hold: Hold): void {
    this.#holds.set(lease, hold);
    if (hold.etcdLease.shared) hold.etcdLease.members.set(lease, performance.now());
  }

  delete(lease: Lease): void {
    const hold = this.#holds.get(lease);
    hold?.etcdLease.members.delete(lease);
    if (hold?.slots) this.hints.free(lease.keys, hold.slots);
    this.#holds.delete(lease);
  }

  /** Nothing is stored for it any more. */
  end(lease: Lease): void {
    this.#ended.add(lease);
  }

  hasEnded(lease: Lease): boolean {
    return lease.ended || this.#ended.has(lease);
  }

  /** It is asked for: a release must not overtake that (S6). */
  asks(lease: Lease, answer: Promise<unknown>): void {
    this.#asking.set(lease, answer);
  }

  /** Resolves when it is not asked for any more, whatever came of that. */
  async answered(lease: Lease): Promise<void> {
    await this.#asking.get(lease)?.catch(() => undefined);
  }
}
