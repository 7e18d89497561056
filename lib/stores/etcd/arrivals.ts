import { padded } from './names.js';

/** So many moments are remembered at most, each that of another revision. */
const MOST = 4_096;

/**
 * What is known of the revision of the cluster at moments of the past. It tells the order in which waiters of different
 * processes came: their clocks may be set differently, and etcd has none to ask.
 */
export class Arrivals {
  readonly #times: number[] = [];
  readonly #revisions: number[] = [];

  /** The largest revision that is known. */
  get latest(): number {
    return this.#revisions.at(-1) ?? 0;
  }

  /** The cluster is at this revision at present. */
  note(revision: number): void {
    if (revision <= this.latest) return;
    this.#times.push(performance.now());
    this.#revisions.push(revision);
    if (this.#times.length <= MOST) return;
    this.#times.splice(0, MOST / 2);
    this.#revisions.splice(0, MOST / 2);
  }

  /** Nothing that is known counts any more. */
  forget(): void {
    this.#times.length = this.#revisions.length = 0;
  }

  /**
   * Sorts as a text by when somebody came: by revision, and among those who came at one revision by the clock.
   *
   * @param came - when, by the monotonic clock
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
