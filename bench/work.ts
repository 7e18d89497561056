/** What a worker can do for a group. */
export interface Work {
  /** Opens a contender; resolves to how long that took, in milliseconds. */
  open(args: { readonly name: string; readonly urls: readonly string[] }): Promise<number>;

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

  release(args: undefined): Promise<undefined>;

  /** Tries side by side what cannot succeed; `late` is by how much the slowest error missed its budget. */
  fail(args: {
    readonly attempts: number;
    readonly budget: number;
    readonly within: number;
  }): Promise<{ late: number; heap: number }>;

  /** CPU time of the process so far, in milliseconds. */
  cpu(args: undefined): Promise<number>;
}

export interface Request {
  readonly id: number;
  readonly job: keyof Work;
  readonly args: unknown;
}
