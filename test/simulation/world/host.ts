import type { Random } from './random.js';

/** A timer of a host, with the methods that Node's timers have. */
export interface HostTimer {
  isLive: boolean;
  isRefed: boolean;
  ref(): this;
  unref(): this;
  hasRef(): boolean;
}

/** The parts of a process or server that code in it sees as globals: its clocks, timers and random numbers. */
export interface Host {
  readonly name: string;
  readonly random: Random;
  /** The monotonic clock. */
  monotonic(): number;
  /** The wall clock, in milliseconds since 1970. */
  wall(): number;
  setTimeout(callback: (...args: unknown[]) => void, delay: number, args: readonly unknown[]): HostTimer;
  setImmediate(callback: (...args: unknown[]) => void, args: readonly unknown[]): HostTimer;
}

/** Code repeats itself without end: a world has too many events, or one of its events does not end. */
export class EndlessError extends Error {}

/** The number of uses of a host within one event after which the event counts as endless. */
const MOST_USES = 200_000;

/**
 * The host whose code runs at present. All processes of a world share the loaded library, so that Node compiles it only
 * once. Each asks this object for its clocks.
 */
export class Stage {
  #host: Host | undefined;
  /** The number of uses of the host in the present event. */
  #uses = 0;

  /** Each clock, timer and random number is a use. A loop of microtasks has them, too. */
  get host(): Host {
    if (!this.#host) throw new Error('code of the library ran outside of a simulated process');
    if (++this.#uses > MOST_USES)
      throw new EndlessError(`more than ${MOST_USES} uses of clocks in one event`);
    return this.#host;
  }

  /** Reads something with the clocks of the host. */
  read<T>(host: Host, read: () => T): T {
    const before = this.#host;
    this.#host = host;
    try {
      return read();
    } finally {
      this.#host = before;
    }
  }

  /** Runs code as code of the host. Then runs the microtasks that the code has planned. */
  run(host: Host, code: () => void): void {
    const before = this.#host;
    this.#host = host;
    if (before === undefined) this.#uses = 0;
    try {
      code();
      if (before !== undefined) return;
      runMicrotasks();
      // The loop may have handled the error that ended it.
      if (this.#uses > MOST_USES) throw new EndlessError(`an event of ${host.name} does not end`);
    } finally {
      this.#host = before;
    }
  }
}

/** Runs the planned ticks and microtasks now. `process.nextTick` has no public equivalent that does that. */
const name = '_tickCallback';
export const runMicrotasks = (process as unknown as Record<typeof name, () => void>)[name].bind(process);
