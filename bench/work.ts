import type { Offer, Offered } from './measure/offer.js';

/** Acquires and releases without renewal or, `hold`, with it; or runs something under the lock. */
export type How = 'acquire' | 'hold' | 'withLock';

interface Lanes {
  readonly how: How;
  readonly inFlight: number;
  /** Of all together. */
  readonly count: number;
}

/** Tasks of a worker for a group. */
export interface Work {
  /** Opens a contender; resolves to how long that took, in milliseconds. */
  open(args: { readonly name: string; readonly urls: readonly string[] }): Promise<number>;

  /** Calls of a kind, until their code is compiled for speed; no longer than so many milliseconds. */
  warmUp(args: { readonly how: How; readonly within: number }): Promise<undefined>;

  /**
   * So many calls, one after the other, on keys that are free; what each took, in milliseconds. `release` is 0 for
   * `withLock`.
   */
  calls(args: {
    readonly how: How;
    readonly count: number;
  }): Promise<{ acquire: number[]; release: number[] }>;

  /** Acquires and releases locks, several at a time, each on its own key. Returns milliseconds, also of CPU time. */
  lanes(args: Lanes): Promise<{ took: number; cpu: number }>;

  /** The same; bytes of the objects that were made for each lock. */
  objects(args: Lanes): Promise<number>;

  /** Acquires locks, so many at a time, and keeps them without renewal until they are released. */
  take(args: { readonly keys: readonly string[]; readonly inFlight: number }): Promise<undefined>;

  /** Acquires and releases each key of `start0`, `start1`, ... once, so many at a time. */
  visit(args: { readonly start: string } & Omit<Lanes, 'how'>): Promise<undefined>;

  /** Acquires and releases, one after the other; milliseconds. */
  cycles(args: {
    readonly count: number;
    readonly within: number;
  }): Promise<{ p50: number; slowest: number }>;

  /** So many wait for one key, `each` times; `took` is infinite when they were not served within the time. */
  queue(args: {
    readonly key: string;
    readonly waiters: number;
    readonly each: number;
    readonly hold: number;
    readonly within: number;
  }): Promise<{ took: number; counts: number[]; waits: number[] }>;

  /** Acquires and keeps; resolves to the bytes of heap for each lock. What is lost while `watched` is told to the parent at once. */
  hold(args: {
    readonly keys: readonly string[];
    readonly ttl: number;
    readonly watched: boolean;
  }): Promise<{ heap: number }>;

  /** Releases the held locks, `inFlight` at a time. */
  release(args: { readonly inFlight: number }): Promise<undefined>;

  /** Makes attempts in parallel that must all fail. `late` is the time by which the slowest error missed its budget. */
  fail(args: {
    readonly attempts: number;
    readonly budget: number;
    readonly within: number;
  }): Promise<{ late: number; heap: number }>;

  /** Asks for permits of a key at random times. */
  offer(args: Offer): Promise<Offered>;

  /** CPU time of the process so far, in milliseconds. */
  cpu(args: undefined): Promise<number>;
}

export interface Request {
  readonly id: number;
  readonly job: keyof Work;
  readonly args: unknown;
}
