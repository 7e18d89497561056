import { NoTimeError } from '../core/errors.js';

/** Work with a time limit. */
export interface Limited {
  /** Called when the time has passed. All pieces of work that expire together get the same error. */
  expire(error: NoTimeError): void;
  /** The neighbours in the queue of work with the same limit; for {@link TimeLimits} only. */
  earlier: Limited | undefined;
  later: Limited | undefined;
  /** The end of the time limit, by the monotonic clock; for {@link TimeLimits} only. */
  due: number;
}

/** All work with the same limit, in the order in which it began; the work also expires in this order. */
interface Queue {
  first: Limited | undefined;
  last: Limited | undefined;
  timer: NodeJS.Timeout | undefined;
}

/** If there are more queues than this, a queue that becomes empty is deleted. */
const MOST_QUEUES = 32;

/**
 * Ends work that has not ended within its limit. All work with the same limit is in one queue, which has one timer.
 *
 * An empty queue has no timer, but is kept, because most limits are used again. That saves 0.8 kB of 20.7 kB for each
 * lock (one lock at a time, in a loop of acquire and release under the sampling heap profiler).
 */
export class TimeLimits {
  readonly #queues = new Map<number, Queue>();

  /** @param keepsAlive - `true` if a caller waits for the end, so that the timers must keep the process alive */
  constructor(private readonly keepsAlive: boolean) {}

  /** Starts the time limit of `limited`. Call {@link end} with the same limit later, unless the limit has expired. */
  begin(limited: Limited, limit: number): void {
    let queue = this.#queues.get(limit);
    if (!queue) {
      queue = { first: undefined, last: undefined, timer: undefined };
      this.#queues.set(limit, queue);
    }
    if (!queue.timer) this.#setTimer(queue, limit, limit);
    limited.due = performance.now() + limit;
    limited.earlier = queue.last;
    if (queue.last) queue.last.later = limited;
    else queue.first = limited;
    queue.last = limited;
  }

  end(limited: Limited, limit: number): void {
    const queue = this.#queues.get(limit);
    if (!queue) return;
    this.#remove(queue, limited);
    if (!queue.first) this.#rest(queue, limit);
  }

  #remove(queue: Queue, limited: Limited): void {
    const { earlier, later } = limited;
    if (earlier) earlier.later = later;
    else queue.first = later;
    if (later) later.earlier = earlier;
    else queue.last = earlier;
    limited.earlier = limited.later = undefined;
  }

  #rest(queue: Queue, limit: number): void {
    clearTimeout(queue.timer);
    queue.timer = undefined;
    if (this.#queues.size > MOST_QUEUES && this.#queues.get(limit) === queue) this.#queues.delete(limit);
  }

  #setTimer(queue: Queue, limit: number, delay: number): void {
    // The callback of an old timer may come here late, when the queue has become empty and then got a new timer. So clear
    // the new timer.
    clearTimeout(queue.timer);
    // When the event loop was blocked, answers may have arrived that Node has not read yet. `setImmediate` lets Node
    // read these answers first.
    queue.timer = setTimeout(setImmediate, delay, () => this.#expire(queue, limit));
    if (!this.keepsAlive) queue.timer.unref();
  }

  #expire(queue: Queue, limit: number): void {
    const time = performance.now();
    const error = new NoTimeError(`no answer within ${limit} ms`);
    while (queue.first && queue.first.due <= time) {
      const { first } = queue;
      this.#remove(queue, first);
      first.expire(error);
    }
    if (queue.first) this.#setTimer(queue, limit, queue.first.due - time);
    else this.#rest(queue, limit);
  }
}
