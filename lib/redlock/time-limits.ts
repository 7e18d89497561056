import { NoTimeError } from '../core/errors.js';

/** Work with a time limit. */
export interface Limited {
  /** Called when the time has passed. All pieces of work that expire together get the same error. */
  expire(error: NoTimeError): void;
  /** The neighbours in the list of work with the same limit; for {@link TimeLimits} only. */
  earlier: Limited | undefined;
  later: Limited | undefined;
  /** The end of the time limit, by the monotonic clock; for {@link TimeLimits} only. */
  due: number;
}

/** All work with the same limit, in the order in which it began; the work also expires in this order. */
interface Line {
  first: Limited | undefined;
  last: Limited | undefined;
  timer: NodeJS.Timeout | undefined;
}

/** Largest number of empty lines that are kept for later work. */
const MOST_LINES = 32;

/**
 * Ends work that has not ended within its limit. One timer serves all work with the same limit.
 *
 * An empty line has no timer, but is kept, because most limits are used again. That saves 0.8 kB of 20.7 kB for each
 * lock (one lock at a time, in a loop of acquire and release under the sampling heap profiler).
 */
export class TimeLimits {
  readonly #lines = new Map<number, Line>();

  /** @param keepsAlive - `true` if a caller waits for the end, so that the timers must keep the process alive */
  constructor(private readonly keepsAlive: boolean) {}

  /** Starts the time limit of `limited`. Call {@link end} with the same limit later, unless the limit has expired. */
  begin(limited: Limited, limit: number): void {
    let line = this.#lines.get(limit);
    if (!line) {
      line = { first: undefined, last: undefined, timer: undefined };
      this.#lines.set(limit, line);
    }
    if (!line.timer) this.#setTimer(line, limit, limit);
    limited.due = performance.now() + limit;
    limited.earlier = line.last;
    if (line.last) line.last.later = limited;
    else line.first = limited;
    line.last = limited;
  }

  end(limited: Limited, limit: number): void {
    const line = this.#lines.get(limit);
    if (!line) return;
    this.#remove(line, limited);
    if (!line.first) this.#rest(line, limit);
  }

  #remove(line: Line, limited: Limited): void {
    const { earlier, later } = limited;
    if (earlier) earlier.later = later;
    else line.first = later;
    if (later) later.earlier = earlier;
    else line.last = earlier;
    limited.earlier = limited.later = undefined;
  }

  #rest(line: Line, limit: number): void {
    clearTimeout(line.timer);
    line.timer = undefined;
    if (this.#lines.size > MOST_LINES && this.#lines.get(limit) === line) this.#lines.delete(limit);
  }

  #setTimer(line: Line, limit: number, delay: number): void {
    // The callback of an old timer may come here late, when the line has become empty and then got a new timer. So clear
    // the new timer.
    clearTimeout(line.timer);
    // When the event loop was blocked, answers may have arrived that Node has not read yet. `setImmediate` lets Node
    // read these answers first.
    line.timer = setTimeout(setImmediate, delay, () => this.#expire(line, limit));
    if (!this.keepsAlive) line.timer.unref();
  }

  #expire(line: Line, limit: number): void {
    const time = performance.now();
    const error = new NoTimeError(`no answer within ${limit} ms`);
    while (line.first && line.first.due <= time) {
      const { first } = line;
      this.#remove(line, first);
      first.expire(error);
    }
    if (line.first) this.#setTimer(line, limit, line.first.due - time);
    else this.#rest(line, limit);
  }
}
