import { EndlessError, type Host, type HostTimer, type Stage } from '../world/host.js';
import { Random } from '../world/random.js';
import { EPOCH } from '../world/world.js';

type Callback = (...args: unknown[]) => void;

/** The globals of the library. Each uses the host whose code runs at present. */
export function globalsOf(stage: Stage): {
  readonly variables: Readonly<Record<string, unknown>>;
  readonly modules: Readonly<Record<string, unknown>>;
  /** The host while the library is loaded. */
  readonly loading: Host;
} {
  const clear = (timer?: HostTimer): void => {
    if (timer) timer.isLive = false;
  };
  const setTimer = (callback: Callback, delay: number, ...args: unknown[]): HostTimer =>
    stage.host.setTimeout(callback, delay, args);
  const wait = (delay: number, value: unknown, { signal }: { signal?: AbortSignal } = {}): Promise<unknown> =>
    new Promise((resolve, reject) => {
      const abort = (): void => {
        clear(timer);
        reject(Object.assign(new Error('The operation was aborted'), { name: 'AbortError' }));
      };
      const timer = setTimer(() => {
        signal?.removeEventListener('abort', abort);
        resolve(value);
      }, delay);
      if (signal?.aborted) abort();
      else signal?.addEventListener('abort', abort, { once: true });
    });
  class HostDate extends Date {
    constructor(...given: []) {
      if (given.length === 0) super(stage.host.wall());
      else super(...given);
    }

    static override now(): number {
      return Math.floor(stage.host.wall());
    }
  }
  const math = Object.fromEntries(
    Object.getOwnPropertyNames(Math).map((name) => [name, Math[name as keyof Math]]),
  );
  return {
    loading: new Nowhere(),
    variables: {
      performance: {
        now: () => stage.host.monotonic(),
        get timeOrigin() {
          return stage.host.wall() - stage.host.monotonic();
        },
      },
      Date: HostDate,
      Math: { ...math, random: () => stage.host.random.next() },
      setTimeout: setTimer,
      clearTimeout: clear,
      setInterval: (callback: Callback, delay: number, ...args: unknown[]) =>
        new Repeated(stage.host, delay, () => callback(...args)),
      clearInterval: clear,
      setImmediate: (callback: Callback, ...args: unknown[]) => stage.host.setImmediate(callback, args),
      clearImmediate: clear,
      queueMicrotask: (callback: Callback) => queueMicrotask(untilEndless(callback)),
      process: {
        nextTick: (callback: Callback, ...args: unknown[]) =>
          process.nextTick(untilEndless(callback), ...args),
        hrtime: { bigint: () => BigInt(Math.round(stage.host.monotonic() * 1e6)) },
        pid: 1,
        env: {},
        emitWarning: () => undefined,
      },
      // The garbage collector runs when it likes. No object of a simulation depends on it.
      FinalizationRegistry: class {
        register(): void {}
      },
    },
    modules: { 'node:timers/promises': { setTimeout: wait } },
  };
}

/** A timer that fires again and again. */
class Repeated implements HostTimer {
  isRefed = true;
  #timer: HostTimer;

  constructor(host: Host, delay: number, callback: () => void) {
    const next = (): HostTimer =>
      host.setTimeout(
        () => {
          this.#timer = next();
          this.#timer.isRefed = this.isRefed;
          callback();
        },
        delay,
        [],
      );
    this.#timer = next();
  }

  get isLive(): boolean {
    return this.#timer.isLive;
  }

  set isLive(isLive: boolean) {
    this.#timer.isLive = isLive;
  }

  ref(): this {
    this.isRefed = this.#timer.isRefed = true;
    return this;
  }

  unref(): this {
    this.isRefed = this.#timer.isRefed = false;
    return this;
  }

  hasRef(): boolean {
    return this.isRefed;
  }
}

/** Node ends a process when such a callback throws. The stage tells the error that ends an endless loop. */
function untilEndless(callback: Callback): Callback {
  return (...args) => {
    try {
      callback(...args);
    } catch (error) {
      if (!(error instanceof EndlessError)) throw error;
    }
  };
}

/** The host while the library is loaded: it has no timers. */
class Nowhere implements Host {
  readonly name = 'no process';
  readonly random = new Random('loading');

  monotonic(): number {
    return 0;
  }

  wall(): number {
    return EPOCH;
  }

  setTimeout(): never {
    throw new Error('the library set a timer while it was loaded');
  }

  setImmediate(): never {
    throw new Error('the library set an immediate while it was loaded');
  }
}
