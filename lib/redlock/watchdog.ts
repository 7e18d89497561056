import { type Instant, now } from '../core/clock.js';
import { SlotList } from '../core/slot-list.js';
import { nodeTimeLimit } from './validity.js';

/**
 * The fraction of its ttl by which a lock may be renewed early, so that locks acquired one after the other are renewed
 * together. It applies twice at most: when a lock joins a batch, and when that batch is renewed together with another
 * batch.
 */
const SLACK = 1 / 30;

/** The fraction of its ttl by which a lock may be renewed early in all. */
export const EARLY = 2 * SLACK;

/**
 * Largest number of locks that are extended at a time. The next locks follow after the answers, so that each lock has
 * the full time limit of a node, and other requests are sent in between. Without this limit, PostgreSQL on a busy
 * machine answered 10,000 requests later than the limit at every attempt, and all locks were lost (`npm run bench --
 * stores`).
 */
const MOST_AT_ONCE = 250;

/** The members of a lock that the watchdog uses. */
export interface Renewable {
  /** Position of the lock in its {@link Batch}. */
  batchSlot: number;

  /**
   * Asks the nodes to extend the lock, if the lock is still held. The nodes have `limit` milliseconds to answer.
   *
   * @returns `true` if the nodes were asked. The lock then calls {@link Watchdog.answered} when their answers decide
   * the extension
   */
  renew(limit: number, sent: Instant): boolean;

  /** Called when the validity is about to end and the lock is not renewed. */
  lapses(): void;

  /**
   * Called when the renewal has to wait for other renewals. The lock must itself report the end of its validity if the
   * end comes within `within` milliseconds (S10).
   */
  waits(batch: Batch, within: number): void;
}

/** Locks with the same ttl that are due together: all for a renewal (`renews`), or all for the end of their validity. */
export interface Batch {
  readonly ttl: number;
  readonly renews: boolean;
  /** The time at which the first lock is due, by the monotonic clock. */
  due: number;
  readonly locks: SlotList<'batchSlot', Renewable>;
}

/** Locks with the same ttl whose renewal is due, in the order of their requests. */
interface Queue {
  readonly ttl: number;
  readonly waiting: Waiting[];
  /** The number of requests without an answer. */
  unanswered: number;
}

interface Waiting {
  readonly batch: Batch;
  /** The locks without a request so far; a lock may leave the queue before its request. */
  readonly rest: Iterator<Renewable>;
  /** `true` after these locks were told that they have to wait. */
  isLate: boolean;
}

/**
 * Renews the locks of one process with one timer, and with few requests to each node for all locks that have the same
 * ttl and are due at about the same time. Locks that were renewed together stay together. The end of a lock that is not
 * renewed is planned in the same way as a renewal. Each of 50,000 locks without renewal therefore takes 350 bytes of
 * heap; with a timer for each lock it took 702 bytes.
 */
export class Watchdog {
  /** Batches by ttl: a node's time limit depends on the ttl, and one request can extend locks only to one ttl. */
  readonly #batches = new Map<number, Batch[]>();
  /** Queues by ttl: locks with a long ttl may wait for a long time, and must not delay locks with a short ttl. */
  readonly #queues = new Map<number, Queue>();
  #timer: NodeJS.Timeout | undefined;
  /** The time at which the timer fires, by the monotonic clock. */
  #wakesAt = Infinity;

  /** @param nodeTimeout - time limit of a node in milliseconds; `undefined` to compute it from each ttl */
  constructor(private readonly nodeTimeout: number | undefined) {}

  /**
   * Plans the next call of `renew` or `lapses` on the lock, in `delay` milliseconds or a little sooner. Returns the
   * lock's batch, for {@link cancel}.
   *
   * @param renews - `true` to call `renew`, `false` to call `lapses`
   */
  plan(lock: Renewable, ttl: number, delay: number, renews: boolean): Batch {
    const due = performance.now() + delay;
    const batches = this.#batches.get(ttl) ?? [];
    let batch = batches.find(
      (each) => each.renews === renews && each.due <= due && due <= each.due + ttl * SLACK,
    );
    if (!batch) {
      batch = { ttl, renews, due, locks: new SlotList('batchSlot') };
      this.#batches.set(ttl, [...batches, batch]);
      this.#wakeBy(due);
    }
    batch.locks.add(lock);
    return batch;
  }

  /** Cancels the planned call of `renew` or `lapses` on the lock. */
  cancel(lock: Renewable, batch: Batch): void {
    batch.locks.delete(lock);
    if (batch.locks.size === 0) this.#forget([batch]);
    if (this.#batches.size === 0) this.#sleep();
  }

  /**
   * Brings all planned calls forward, because the monotonic clock and all timers stood still for so many milliseconds
   * (S29).
   */
  bringForward(milliseconds: number): void {
    for (const batches of this.#batches.values()) for (const batch of batches) batch.due -= milliseconds;
    for (const { waiting } of this.#queues.values()) for (const each of waiting) this.#tellWaiting(each);
    this.#sleep();
    this.#wakeForNext();
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
    // Newer versions of Node warn of a delay below zero.
    this.#timer = setTimeout(() => this.#renewDue(), Math.max(0, due - performance.now())).unref();
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
      for (const batch of due) {
        if (batch.renews) this.#enter(batch);
        // Iterate over the batch itself and not over a copy: the listener of a lost lock may release or extend later
        // locks, which then leave the batch.
        else for (const lock of batch.locks) lock.lapses();
      }
      const queue = this.#queues.get(ttl);
      if (queue) this.#ask(queue);
    }
    this.#wakeForNext();
  }

  #wakeForNext(): void {
    for (const batches of this.#batches.values()) {
      for (const { due } of batches) this.#wakeBy(due);
    }
  }

  #enter(batch: Batch): void {
    const { ttl, locks } = batch;
    let queue = this.#queues.get(ttl);
    if (!queue) {
      queue = { ttl, waiting: [], unanswered: 0 };
      this.#queues.set(ttl, queue);
    }
    const waitsForOthers = queue.waiting.length > 0 || queue.unanswered > 0 || locks.size > MOST_AT_ONCE;
    queue.waiting.push({ batch, rest: locks[Symbol.iterator](), isLate: false });
    // Use two time limits, because the watchdog looks for late locks only once in each time limit.
    if (waitsForOthers) for (const lock of locks) lock.waits(batch, 2 * this.#limitOf(ttl));
  }

  /**
   * Extends the next locks of the queue. All requests are sent in one turn of the event loop, and so in few commands.
   */
  #ask(queue: Queue): void {
    const limit = this.#limitOf(queue.ttl);
    while (queue.unanswered === 0 && queue.waiting.length > 0) {
      const sent = now();
      while (queue.unanswered < MOST_AT_ONCE) {
        const next = queue.waiting[0]?.rest.next();
        if (!next) break;
        if (next.done) queue.waiting.shift();
        else if (next.value.renew(limit, sent)) queue.unanswered++;
      }
    }
    this.#tellLate(queue, limit);
    if (queue.unanswered === 0) this.#queues.delete(queue.ttl);
  }

  #tellLate({ waiting }: Queue, limit: number): void {
    const time = performance.now();
    for (const each of waiting) {
      if (time - each.batch.due >= limit) this.#tellWaiting(each);
    }
  }

  #tellWaiting(each: Waiting): void {
    if (each.isLate) return;
    each.isLate = true;
    for (const lock of each.batch.locks) lock.waits(each.batch, Infinity);
  }

  /** Called when enough nodes have answered to decide whether one lock with this ttl is extended. */
  answered(ttl: number): void {
    const queue = this.#queues.get(ttl);
    if (queue && --queue.unanswered === 0) this.#ask(queue);
  }

  #limitOf(ttl: number): number {
    return nodeTimeLimit(ttl, this.nodeTimeout);
  }
}
