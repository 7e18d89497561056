import { padded } from './names.js';

/** Largest number of remembered moments, each with a different revision. */
const MOST = 4_096;

/**
 * The known revisions of the cluster at past moments. They show the order in which waiters of different processes came:
 * the clocks of the processes may differ, and etcd does not report its time.
 */
export class Arrivals {
  readonly #times: number[] = [];
  readonly #revisions: number[] = [];

  /** The largest known revision. */
  get latest(): number {
    return this.#revisions.at(-1) ?? 0;
  }

  /** Records the present revision of the cluster. */
  note(revision: number): void {
    if (revision <= this.latest) return;
    this.#times.push(performance.now());
    this.#revisions.push(revision);
    if (this.#times.length <= MOST) return;
    this.#times.splice(0, MOST / 2);
    this.#revisions.splice(0, MOST / 2);
  }

  /** Discards all known revisions. */
  forget(): void {
    this.#times.length = this.#revisions.length = 0;
  }

  /**
   * Makes a text that sorts by arrival: first by the revision, then by the clock.
   *
   * @param came - time of the arrival, by the monotonic clock
   */
  orderOf(came: number): string {
    let [low, high] = [0, this.#times.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#times[middle] ?? 0) >= came) high = middle;
      else low = middle + 1;
    }
    const revision = this.#revisions[Math.min(low, this.#revisions.length - 1)] ?? 0;
    return `${padded(revision)}${padded(Date.now() - (performance.now() - came))}`;
  }
}
