import { badNumber } from '../core/checks.js';
import { DEFAULT_TTL_MS } from '../core/lock-options.js';

/**
 * Computes the time for which the votes of a restarted node do not count (S12, the "delayed restart" of the Redis
 * documentation). The time is at least the ttl of any lock that the node may have forgotten, so each such lock has ended
 * when the node votes again.
 *
 * The time for which `minHold` keeps keys after a release is not included. Nobody holds the lock during that time, so a
 * node that forgets these keys causes no overlap. If that time were included, a `minHold` of one hour would make the
 * nodes refuse all locks for one hour when all of them start at the same time.
 */
export class RestartGuard {
  #longest = DEFAULT_TTL_MS;

  /** @param fixed - milliseconds, or 0 for no guard; `undefined` for the largest ttl in use */
  constructor(private readonly fixed: number | undefined) {}

  /**
   * Announces that this process will acquire a lock with this ttl. Other processes run the same code, so they announce
   * the same ttl.
   *
   * @throws RangeError when the guard is fixed, and shorter than the ttl
   */
  note(ttl: number): void {
    this.checkFixed(ttl);
    if (this.fixed === undefined) this.#longest = Math.max(this.#longest, ttl);
  }

  /** @throws RangeError when the guard is fixed, and shorter than the ttl */
  checkFixed(ttl: number): void {
    if (this.fixed !== undefined) this.checkCovers(ttl);
  }

  /**
   * Checks a ttl that a lock gets while it is held (`extend`). Other processes do not know this ttl, so their guard
   * could be too short.
   *
   * @throws RangeError when a lock with this ttl would outlive the guard
   */
  checkCovers(ttl: number): void {
    if (this.duration > 0 && ttl > this.duration) {
      const rule =
        `at most the \`restartGuard\` of ${this.duration} ms ` +
        '(set `restartGuard` to the largest ttl of all processes)';
      throw badNumber('ttl', rule, ttl);
    }
  }

  /** Length of the guard in milliseconds; 0 without a guard. */
  get duration(): number {
    return this.fixed ?? this.#longest;
  }
}
