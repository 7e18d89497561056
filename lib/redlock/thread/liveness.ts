/** Milliseconds between two signs of life of the thread that holds the locks, and between two looks at them. */
export const BEAT_MS = 250;

/** The counter by which a thread shows that it runs. */
export class Beats {
  readonly #counter: Int32Array;

  constructor(readonly memory = new SharedArrayBuffer(4)) {
    this.#counter = new Int32Array(memory);
  }

  add(): void {
    Atomics.add(this.#counter, 0, 1);
  }

  get count(): number {
    return Atomics.load(this.#counter, 0);
  }
}

/**
 * Measures for how long another thread has not run, by the monotonic clock. After a pause of the whole process the pause
 * counts, too, until the other thread shows its next sign of life. If only a part counted, an endless loop would keep its
 * lock for longer on a busy machine, where this thread seldom runs.
 */
export class BlockedTime {
  #count: number;
  #looked = performance.now();
  #blocked = 0;

  constructor(private readonly beats: Beats) {
    this.#count = beats.count;
  }

  /** Looks at the counter; called every {@link BEAT_MS}, or more often. Returns the blocked time in milliseconds. */
  look(): number {
    const time = performance.now();
    const { count } = this.beats;
    if (count === this.#count) this.#blocked += time - this.#looked;
    else this.#blocked = 0;
    this.#count = count;
    this.#looked = time;
    return this.#blocked;
  }
}
