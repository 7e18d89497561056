import type { EtcdLeases } from './etcd-leases.js';
import { remove } from './protocol.js';
import type { TxnRunner } from './txn-runner.js';

/** Time limit in milliseconds for leaving a queue. */
const LEAVE_LIMIT_MS = 2_000;

/** Number of entries that one transaction removes: etcd accepts 128 operations. */
const PAGE = 100;

/** Largest number of entries whose removal is repeated. Beyond this number, the oldest are dropped, and expire. */
const MOST_ENTRIES = 10_000;

/**
 * Time to live of queue entries, in seconds: the entries of a dead process stay for this time. Other waiters skip these
 * entries much earlier.
 */
export const QUEUE_SECONDS = 60;

/**
 * Removes queue entries whose waiters have gone. An entry of no waiter would be the first of its queue again and again:
 * each process that asks only once would be refused, although the key is free.
 */
export class Departures {
  /** The entries whose removal was not confirmed. */
  readonly #names = new Set<string>();

  /** @param queueLeases - the etcd leases of queue entries */
  constructor(
    private readonly transactions: TxnRunner,
    private readonly queueLeases: EtcdLeases,
  ) {}

  /** @throws Error when etcd has not confirmed the removal, which is then repeated */
  async leave(names: readonly string[]): Promise<void> {
    if (names.length === 0) return;
    for (const name of names) this.#names.add(name);
    for (const oldest of this.#names) {
      if (this.#names.size <= MOST_ENTRIES) break;
      this.#names.delete(oldest);
    }
    try {
      await this.transactions.run({ success: names.map(remove) }, LEAVE_LIMIT_MS);
      for (const name of names) this.#names.delete(name);
    } catch (error) {
      // The removal is repeated only when etcd answers again after an outage. Without an outage, the entry expires.
      this.queueLeases.retire(QUEUE_SECONDS);
      throw error;
    }
  }

  /** Repeats the removals. */
  retryAll(): void {
    const names = [...this.#names];
    for (let start = 0; start < names.length; start += PAGE)
      this.leave(names.slice(start, start + PAGE)).catch(() => undefined);
  }

  close(): void {
    this.#names.clear();
  }
}
