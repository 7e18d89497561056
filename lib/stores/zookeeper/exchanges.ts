import { elapsedSince, now } from '../../core/clock.js';
import { NoTimeError, NotSentError } from '../../core/errors.js';
import type { ExchangeRequest } from '../../core/ports.js';
import { ZooKeeperError } from './client/zookeeper-error.js';
import type { HolderRecord } from './key-record.js';
import type { Decision, KeyRecords } from './key-records.js';
import { type KeyView, liveHolders, replaced, restamped } from './key-view.js';
import type { Leases } from './leases.js';

/**
 * Puts one lease in the place of another: its id, owner and time replace those in the holder's record, by compare-and-set
 * on the version of each key.
 *
 * The record gets a new stamp, so other processes wait for its whole ttl again: nobody takes the key over while a process
 * trusts the lock. A write that got no answer may still come. A later exchange changes the version of the keys even if
 * their lease stays the same, so the late write fails (S16).
 */
export class Exchanges {
  constructor(
    private readonly records: KeyRecords,
    private readonly leases: Leases,
  ) {}

  async exchange({ lease, replaces, since, limit }: ExchangeRequest): Promise<boolean> {
    const { id, owner, keys } = lease;
    const began = now();
    let compared: readonly KeyView[] = [];
    let token = 0;
    const decide = (views: readonly KeyView[]): Decision<boolean> => {
      // The decision is sent in this turn of the event loop, or not at all: a lease that has ended must not be stored
      // (S15), and none after the time limit (S16).
      if (this.leases.hasEnded(lease)) throw new NotSentError();
      if (elapsedSince(began) >= limit) throw new NoTimeError(`was not stored within ${Math.ceil(limit)} ms`);
      compared = views;
      const found = views.map((view) => holderOf(view, id, replaces));
      if (!found.every((holder) => holder !== undefined)) return { result: false };
      token = Math.max(...found.map((holder) => holder.token));
      const next = views.map((view, index) =>
        replaced(view, found[index]!, { ...restamped(found[index]!), id, owner, since }),
      );
      return { result: true, next };
    };
    try {
      // Another process may have stored the lease that this one replaces: a server that lags behind does not know it yet.
      const isExchanged = await this.records.change(keys, decide, true);
      if (isExchanged) this.leases.granted(lease, token);
      return isExchanged;
    } catch (error) {
      if (error instanceof ZooKeeperError && !error.certain) this.leases.doubt(lease, compared);
      throw error;
    }
  }
}

/** The holder that is the lease, or that the lease replaces. */
function holderOf(view: KeyView, id: string, replaces: readonly string[]): HolderRecord | undefined {
  const live = liveHolders(view).filter(({ kept }) => !kept);
  return live.find((holder) => holder.id === id) ?? live.find((holder) => replaces.includes(holder.id));
}
