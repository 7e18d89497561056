import { NoTimeError } from '../core/errors.js';

/** Something that must come to an end within a time limit. */
export interface Limited {
  /** The time is over; all that end together are told the same error. */
  expire(error: NoTimeError): void;
  /** Its neighbours among those of the same limit; for {@link TimeLimits} only. */
  earlier: Limited | undefined;
  later: Limited | undefined;
  /** When its time is over, by the monotonic clock; for {@link TimeLimits} only. */
  due: number;
}

/** All that have the same limit, in the order in which they began and so end. */
interface Line {
  first: Limited | undefined;
  last: Limited | undefined;
  timer: NodeJS.Timeout | undefined;
}

/** More lines than this are not kept for those who come later. */
const MOST_LINES = 32;

/**
 * Ends what has not ended by itself within its limit. One timer for all that have the same limit.
 *
 * A line that is empty has no timer, but stays: most limits come again. That is 0.8 of 20.7 kB for each lock, one at a time
 * (a loop of acquire and release under the sampling heap profiler).
 */
export class TimeLimits {
  readonly #lines = new Map<number, Line>();

  /** @param keepsAlive - whether the process lives until they end: somebody waits for that */
  constructor(private readonly keepsAlive: boolean) {}

  /** Begins to count for `limited`; {@link end} must be called with the same limit, unless it has expired. */
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
    // One that fired before the line came to rest may have its turn only now, when there is another.
    clearTimeout(line.timer);
    // When the thread was blocked, the answers may be there and unread: they come first.
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
