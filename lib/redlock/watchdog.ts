import { type Instant, now } from '../core/clock.js';
import { SlotList } from '../core/slot-list.js';
import { nodeTimeLimit } from './validity.js';

/**
 * How much sooner than due a lock may be renewed, as a share of its ttl, so that locks which were acquired one after
 * the other are renewed together. Applied twice at most: on joining a batch, and when that is renewed with another.
 */
const SLACK = 1 / 30;

/**
 * So many locks are asked for at a time, and the next when those have their answers: each has a node's time limit for itself,
 * and what else is asked of a node comes in between. When all were asked for at once, PostgreSQL answered 10,000 on a busy
 * machine later than the limit, and again at every further attempt, so that all of them were lost (`npm run bench -- stores`).
 */
const MOST_AT_ONCE = 250;

/** A lock as the watchdog knows it. */
export interface Renewable {
  /** For the {@link Batch} that it is in. */
  batchSlot: number;

  /**
   * Asks the nodes, which have `limit` milliseconds to answer, to extend the lock, if it is held still.
   *
   * @returns whether they are asked: then {@link Watchdog.answered} is to be called when their answers have decided it
   */
  renew(limit: number, sent: Instant): boolean;

  /** Its validity is about to end, and it is not renewed. */
  lapses(): void;

  /** Its renewal has to wait for others: tells by itself of the end of the validity if that comes `within` milliseconds (S10). */
  waits(batch: Batch, within: number): void;
}

/** Locks of one ttl that are due together, all of them to be renewed or none. */
export interface Batch {
  readonly ttl: number;
  readonly renews: boolean;
  /** When the first of them is, by the monotonic clock. */
  readonly due: number;
  readonly locks: SlotList<'batchSlot', Renewable>;
}

/** Locks of one ttl whose renewal is due, in the order in which they are asked for. */
interface Line {
  readonly ttl: number;
  readonly waiting: Waiting[];
  /** How many of those that were asked for have no answer yet. */
  unanswered: number;
}

interface Waiting {
  readonly batch: Batch;
  /** Those that have not been asked for; a lock may leave meanwhile. */
  readonly rest: Iterator<Renewable>;
  /** They have been told that they wait for long. */
  isLate: boolean;
}

/**
 * Renews the locks of one process with one timer, and with few requests to each node for all locks of a ttl that are due
 * at about the same time. Once renewed together, locks stay together. The end of a lock that is not renewed is planned like a
 * renewal: with timers of their own 50,000 such locks took 702 bytes of heap each, and take 350.
 */
export class Watchdog {
  /** By ttl: a node's time limit depends on it, and a node is asked for one ttl at a time. */
  readonly #batches = new Map<number, Batch[]>();
  /** By ttl: what has a long one may wait for long, and must not keep others waiting. */
  readonly #lines = new Map<number, Line>();
  #timer: NodeJS.Timeout | undefined;
  /** When the timer fires, by the monotonic clock. */
  #wakesAt = Infinity;

  /** @param nodeTimeout - milliseconds; `undefined` derives it from each ttl */
  constructor(private readonly nodeTimeout: number | undefined) {}

  /**
   * Plans to call the lock when `delay` milliseconds have passed, or a little sooner; returns its batch, for {@link cancel}.
   *
   * @param renews - whether it is to be renewed then, or lapses
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
      for (const batch of due) {
        if (batch.renews) this.#enter(batch);
        // Not a copy: the listener of a lock that turns out to be lost may release or extend those that follow.
        else for (const lock of batch.locks) lock.lapses();
      }
      const line = this.#lines.get(ttl);
      if (line) this.#ask(line);
    }
    for (const batches of this.#batches.values()) {
      for (const { due } of batches) this.#wakeBy(due);
    }
  }

  #enter(batch: Batch): void {
    const { ttl, locks } = batch;
    let line = this.#lines.get(ttl);
    if (!line) {
      line = { ttl, waiting: [], unanswered: 0 };
      this.#lines.set(ttl, line);
    }
    const waitsForOthers = line.waiting.length > 0 || line.unanswered > 0 || locks.size > MOST_AT_ONCE;
    line.waiting.push({ batch, rest: locks[Symbol.iterator](), isLate: false });
    // Until they are late, which is looked at once in a time limit.
    if (waitsForOthers) for (const lock of locks) lock.waits(batch, 2 * this.#limitOf(ttl));
  }

  /** Asks for the next locks of the line. They are asked for in one turn of the event loop, and so with few commands. */
  #ask(line: Line): void {
    const limit = this.#limitOf(line.ttl);
    while (line.unanswered === 0 && line.waiting.length > 0) {
      const sent = now();
      while (line.unanswered < MOST_AT_ONCE) {
        const next = line.waiting[0]?.rest.next();
        if (!next) break;
        if (next.done) line.waiting.shift();
        else if (next.value.renew(limit, sent)) line.unanswered++;
      }
    }
    this.#tellLate(line, limit);
    if (line.unanswered === 0) this.#lines.delete(line.ttl);
  }

  #tellLate({ waiting }: Line, limit: number): void {
    const time = performance.now();
    for (const each of waiting) {
      if (each.isLate || time - each.batch.due < limit) continue;
      each.isLate = true;
      for (const lock of each.batch.locks) lock.waits(each.batch, Infinity);
    }
  }

  /** The answers for a lock of this ttl that was to be renewed have decided it. */
  answered(ttl: number): void {
    const line = this.#lines.get(ttl);
    if (line && --line.unanswered === 0) this.#ask(line);
  }

  #limitOf(ttl: number): number {
    return nodeTimeLimit(ttl, this.nodeTimeout);
  }
}
