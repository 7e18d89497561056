import type { Offer, Offered } from './measure/offer.js';

/** Kind of call: acquire and release without renewal, the same with renewal (`hold`), or `withLock`. */
export type How = 'acquire' | 'hold' | 'withLock';

interface Lanes {
  readonly how: How;
  readonly inFlight: number;
  /** Number of calls of all lanes together. */
  readonly count: number;
}

/** Tasks that a group gives to a worker process. */
export interface Work {
  /** Opens a compared library. Resolves to the time that this took, in milliseconds. */
  open(args: { readonly name: string; readonly urls: readonly string[] }): Promise<number>;

  /** Makes calls of a kind until V8 has optimized their code, for `within` milliseconds at most. */
  warmUp(args: { readonly how: How; readonly within: number }): Promise<undefined>;

  /**
   * Makes `count` calls, one after the other, on free keys. Resolves to the milliseconds of each call; `release` is 0
   * for `withLock`.
   */
  calls(args: {
    readonly how: How;
    readonly count: number;
  }): Promise<{ acquire: number[]; release: number[] }>;

  /**
   * Acquires and releases locks, several at a time, each lane with its own key. Resolves to milliseconds of time and of
   * CPU time.
   */
  lanes(args: Lanes): Promise<{ took: number; cpu: number }>;

  /** Does the same as `lanes`. Resolves to the bytes of the objects that were made for each lock. */
  objects(args: Lanes): Promise<number>;

  /** Acquires locks, `inFlight` at a time, and keeps them without renewal until `release`. */
  take(args: { readonly keys: readonly string[]; readonly inFlight: number }): Promise<undefined>;

  /** Acquires and releases each of the keys `start0`, `start1`, ... once, `inFlight` at a time. */
  visit(args: { readonly start: string } & Omit<Lanes, 'how'>): Promise<undefined>;

  /** Acquires and releases locks, one after the other. Resolves to milliseconds. */
  cycles(args: {
    readonly count: number;
    readonly within: number;
  }): Promise<{ p50: number; slowest: number }>;

  /**
   * Starts calls that wait for one key: `waiters` callers, each of which acquires the lock `each` times. `took` is
   * infinite if not all callers got the lock within the time.
   */
  queue(args: {
    readonly key: string;
    readonly waiters: number;
    readonly each: number;
    readonly hold: number;
    readonly within: number;
  }): Promise<{ took: number; counts: number[]; waits: number[] }>;

  /**
   * Acquires locks and keeps them with renewal. Resolves to the bytes of heap for each lock. With `watched`, the worker
   * reports a lost lock to the parent process immediately.
   */
  hold(args: {
    readonly keys: readonly string[];
    readonly ttl: number;
    readonly watched: boolean;
  }): Promise<{ heap: number }>;

  /** Releases the held locks, `inFlight` at a time. */
  release(args: { readonly inFlight: number }): Promise<undefined>;

  /**
   * Makes parallel attempts that must all fail. `late` is the number of milliseconds from the end of `budget` to the
   * slowest error. For a library without `tryFor`, it is the number from the call to the slowest error.
   */
  fail(args: {
    readonly attempts: number;
    readonly budget: number;
    readonly within: number;
  }): Promise<{ late: number; heap: number }>;

  /** Asks for permits of one key at random times. */
  offer(args: Offer): Promise<Offered>;

  /** Resolves to the CPU time of the process until now, in milliseconds. */
  cpu(args: undefined): Promise<number>;
}

export interface Request {
  readonly id: number;
  readonly job: keyof Work;
  readonly args: unknown;
}
