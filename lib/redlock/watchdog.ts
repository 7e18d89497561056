import { type Instant, now } from '../core/clock.js';
import { SlotList } from '../core/slot-list.js';
import { nodeTimeLimit } from './validity.js';

/**
 * How much sooner than due a lock may be renewed, as a share of its ttl, so that locks which were acquired one after
 * the other are renewed together. Applied twice at most: on joining a batch, and when that is renewed with another.
 */
const SLACK = 1 / 30;

/** A lock as the watchdog knows it. */
export interface Renewable {
  /** For the {@link Batch} that it is in. */
  batchSlot: number;

  /**
   * What was planned is due: asks the nodes, which have `limit` milliseconds to answer, to extend the lock, if that is wanted
   * still.
   */
  renew(limit: number, sent: Instant): void;
}

/** Locks of one ttl that are due together. */
export interface Batch {
  readonly ttl: number;
  /** When the first of them is, by the monotonic clock. */
  readonly due: number;
  readonly locks: SlotList<'batchSlot', Renewable>;
}

/**
 * Renews the locks of one process with one timer, and with one request to each node for all locks of a ttl that are due
 * at about the same time. Once renewed together, locks stay together. The end of a lock that is not renewed is planned like a
 * renewal: with timers of their own 50,000 such locks took 702 bytes of heap each, and take 350.
 */
export class Watchdog {
  /** By ttl: a node's time limit depends on it, and a node is asked for one ttl at a time. */
  readonly #batches = new Map<number, Batch[]>();
  #timer: NodeJS.Timeout | undefined;
  /** When the timer fires, by the monotonic clock. */
  #wakesAt = Infinity;

  /** @param nodeTimeout - milliseconds; `undefined` derives it from each ttl */
  constructor(private readonly nodeTimeout: number | undefined) {}

  /** Plans to call the lock when `delay` milliseconds have passed, or a little sooner; returns its batch, for {@link cancel}. */
  plan(lock: Renewable, ttl: number, delay: number): Batch {
    const due = performance.now() + delay;
    const batches = this.#batches.get(ttl) ?? [];
    let batch = batches.find((each) => each.due <= due && due <= each.due + ttl * SLACK);
    if (!batch) {
      batch = { ttl, due, locks: new SlotList('batchSlot') };
      this.#batches.set(ttl, [...batches, batch]);
      this.#wakeBy(due);
    }
    batch.locks.add(lock);
    return batch;
  }

  /** The lock is not to be called. */
  cancel(lock: Renewable, batch: Batch): void {
    batch.locks.delete(lock);
    if (batch.locks.size === 0) this.#forget([batch]);
    if (this.#batches.size === 0) this.#sleep();
  }

  #forget(gone: readonly Batch[]): void {
    for (const batch of gone) {
      const left = this.#batches.get(batch.ttl)?.filter((each) => each !== batch) ?? [];
      if (left.length > 0) this.#batches.set(batch.ttl, left);
      else this.#batches.delete(batch.ttl);
    }
  }

  #wakeBy(due: number): void {
    if (due >= this.#wakesAt) return;
    clearTimeout(this.#timer);
    this.#wakesAt = due;
    this.#timer = setTimeout(() => this.#renewDue(), due - performance.now()).unref();
  }

  #sleep(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#wakesAt = Infinity;
  }

  #renewDue(): void {
    this.#sleep();
    const time = performance.now();
    for (const [ttl, batches] of [...this.#batches]) {
      const due = batches.filter((batch) => batch.due <= time + ttl * SLACK);
      this.#forget(due);
      if (due.length > 0) this.#renew(ttl, due);
    }
    for (const batches of this.#batches.values()) {
      for (const { due } of batches) this.#wakeBy(due);
    }
  }

  /** All are asked for in one turn of the event loop, and so with few commands. */
  #renew(ttl: number, batches: readonly Batch[]): void {
    const limit = nodeTimeLimit(ttl, this.nodeTimeout);
    const sent = now();
    for (const { locks } of batches) {
      // Not a copy: the listener of a lock that turns out to be lost may release or extend those that follow.
      for (const lock of locks) lock.renew(limit, sent);
    }
  }
}
