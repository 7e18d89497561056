import { NoTimeError } from '../../core/errors.js';
import { NoAnswerError, withTimeout } from '../../core/with-timeout.js';

/** Milliseconds by which a timer may fire too early. */
const EARLY_MS = 2;

/** Work for all callers that need its result. It has the time limit of the caller who began it. */
export class SharedWork<Result> {
  readonly result: Promise<Result>;
  /** The result, when it is there. */
  value: Result | undefined;
  /** The end of the time limit, by the monotonic clock. */
  readonly until: number;

  /** @param limit - milliseconds */
  constructor(begin: (limit: number) => Promise<Result>, limit: number) {
    this.until = performance.now() + limit;
    this.result = begin(limit);
    this.result.then(
      (value) => (this.value = value),
      () => undefined,
    );
  }
}

/**
 * Waits for shared work within a caller's own time limit. The caller who began the work may have had less time: when the
 * work fails at the end of that time, it is begun again.
 *
 * @param current - returns the work under way; if there is none, begins it with this time limit
 * @param limit - milliseconds
 * @throws NoTimeError when the time limit of the caller has passed
 */
export async function resultOf<Result>(
  current: (limit: number) => SharedWork<Result>,
  limit: number,
): Promise<Result> {
  const until = performance.now() + limit;
  for (let left = limit; ; left = until - performance.now()) {
    const work = current(left);
    if (work.value !== undefined) return work.value;
    try {
      // The caller who began the work gets its error, which says more than the one below.
      const isLonger = work.until > until + EARLY_MS;
      return await (isLonger ? withTimeout(work.result, left) : work.result);
    } catch (error) {
      if (error instanceof NoAnswerError)
        throw new NoTimeError(
          `no answer within ${Math.ceil(limit)} ms to a request that other calls need, too`,
        );
      const time = performance.now();
      const isCutShort = time + EARLY_MS >= work.until && work.until + EARLY_MS < until && time < until;
      if (!isCutShort) throw error;
    }
  }
}
