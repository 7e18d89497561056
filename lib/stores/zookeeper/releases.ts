import type { Lease } from '../../core/lease.js';
import { PendingReleases } from '../../core/pending-releases.js';
import type { TickRecord } from './key-record.js';
import type { Decision, KeyRecords } from './key-records.js';
import { isOver, type KeyView, replaced, restamped, without } from './key-view.js';
import type { Leases } from './leases.js';

/** Releases leases, until ZooKeeper has confirmed it or nothing of the lease can be left. */
export class Releases {
  /** The releases that failed, each with the time after which they are not repeated, by the monotonic clock. */
  readonly #failed = new PendingReleases<number>(() => this.retryAll());

  constructor(
    private readonly records: KeyRecords,
    private readonly leases: Leases,
  ) {}

  /** @throws Error when ZooKeeper has not confirmed the release, which is then repeated */
  async release(lease: Lease): Promise<void> {
    this.leases.release(lease);
    await this.leases.answered(lease);
    if (!this.leases.mayBeStored(lease)) return;
    try {
      await this.#free(lease);
    } catch (error) {
      this.#failed.set(lease, performance.now() + lease.pendingFor).later();
      throw error;
    }
  }

  /** Repeats the releases that failed. */
  retryAll(): void {
    for (const [lease, until] of this.#failed) {
      this.#failed.delete(lease);
      this.#free(lease).catch(() => {
        if (performance.now() < until) this.#failed.set(lease, until).later();
      });
    }
  }

  close(): void {
    this.#failed.close();
  }

  #free(lease: Lease): Promise<void> {
    return this.records.change(lease.keys, (views): Decision<undefined> => {
      const next = views.map((view, index) => this.#freed(view, lease, index === 0));
      return next.some((view, index) => view !== views[index])
        ? { result: undefined, next }
        : { result: undefined };
    });
  }

  /** The view without the lease; the same view if nothing needs to change. */
  #freed(view: KeyView, lease: Lease, isFirst: boolean): KeyView {
    const { record } = view;
    const ticks = isFirst ? withMark(record.ticks, lease) : record.ticks;
    const own = record.holders.find(({ id, kept }) => id === lease.id && !kept);
    if (!own) {
      // A late write of the lease compares with this version, so a change of the version makes it fail (S27).
      if (ticks === record.ticks && !this.leases.mayComeAt(lease, view)) return view;
      return { ...view, record: { ...record, ticks } };
    }
    const { keepFor, id } = lease;
    const isKept = keepFor > 0 && !isOver(view, own);
    const freed = isKept
      ? replaced(view, own, { ...restamped(own), ttl: keepFor, kept: true })
      : without(view, id);
    return { ...freed, record: { ...freed.record, ticks, ended: id } };
  }
}

/** The ticks with the tick that the lease has run, and without those that nobody needs any more. */
function withMark(
  ticks: Readonly<Record<string, TickRecord>>,
  { mark, owner }: Lease,
): Readonly<Record<string, TickRecord>> {
  if (!mark) return ticks;
  const { schedule, at, life } = mark;
  const before = ticks[schedule];
  if (before && before.at > at && before.until > Date.now()) return ticks;
  const recent = Object.entries(ticks).filter(([, { until }]) => until > Date.now());
  return { ...Object.fromEntries(recent), [schedule]: { at, owner, until: Date.now() + life } };
}
