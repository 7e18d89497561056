import { badNumber } from '../core/checks.js';
import { DEFAULT_TTL_MS } from '../core/lock-options.js';

/**
 * Computes how long a node that restarted or lost its data must not vote (S12, the "delayed restart" of the Redis
 * documentation). That is longer than the ttl of any lock that it may have forgotten, so that such a lock has ended
 * when the node votes again.
 *
 * The time that `minHold` adds after a release does not count. Nobody holds the lock then, so forgetting it causes no
 * overlap, and a `minHold` of an hour would cost an hour of refusals whenever all nodes start.
 */
export class RestartGuard {
  #longest = DEFAULT_TTL_MS;

  /** @param fixed - milliseconds, 0 for no guard; without it, the largest ttl in use */
  constructor(private readonly fixed: number | undefined) {}

  /**
   * Announces that a lock with this ttl will be acquired, here and by the same code in other processes.
   *
   * @throws RangeError when the guard is fixed, and shorter
   */
  note(ttl: number): void {
    if (this.fixed === undefined) this.#longest = Math.max(this.#longest, ttl);
    else this.checkCovers(ttl);
  }

  /**
   * Checks a ttl that a lock gets while it is held. Other processes do not learn of it, so their guard would end too
   * soon.
   *
   * @throws RangeError when a lock with this ttl would outlive the guard
   */
  checkCovers(ttl: number): void {
    if (this.duration > 0 && ttl > this.duration) {
      const rule = `at most the restart guard of ${this.duration} ms; set \`restartGuard\` to the largest ttl of all processes`;
      throw badNumber('ttl', rule, ttl);
    }
  }

  /** Milliseconds; 0 when there is no guard. */
  get duration(): number {
    return this.fixed ?? this.#longest;
  }
}
