/** Releases a lock. */
export type Release = () => Promise<unknown>;

/**
 * A compared library that is connected to nodes. Each method calls what the documentation of the library recommends for
 * the case.
 */
export interface Session {
  /** Makes a single attempt; rejects when the key is held. */
  acquire(key: string, ttl: number): Promise<Release>;

  /** Runs `task` under the lock, with renewal if the library has it. */
  withLock(key: string, ttl: number, task: () => Promise<void>): Promise<unknown>;

  /** Waits for the lock for a long time. */
  wait(key: string, ttl: number): Promise<Release>;

  /** Waits for the lock, for `budget` milliseconds at most. Missing if the library has no limit for a wait. */
  tryFor?(key: string, ttl: number, budget: number): Promise<Release>;

  /**
   * Acquires the lock, and renews it until it is released. Calls `lost` when the library reports that the lock is lost.
   * Missing if the library has no renewal.
   */
  hold?(key: string, ttl: number, lost?: () => void): Promise<Release>;

  close(): Promise<void>;
}

/** A library that the benchmark compares. Hand-written code counts as a library here. */
export interface Contender {
  readonly name: string;
  /** Packages whose versions are in the results. */
  readonly packages: readonly string[];
  /** True if the library can lock on several independent nodes. */
  readonly quorum: boolean;
  /**
   * Name of the compared library that this one only wraps in a thin layer. A group that takes long does not measure the
   * wrapper when it measures the wrapped library.
   */
  readonly over?: string;
  /** Milliseconds that keys stay in Redis after their locks have ended; 0 by default. */
  readonly linger?: number;
  /**
   * Commands such as `set`: this library sends them itself, but scripts of some libraries call them, too. The
   * measurement counts them as sent commands only for a library that lists them here. Commands that no script calls
   * always count (`SENT` in `measure/servers.ts`), so do not list them.
   */
  readonly sends: readonly string[];
  /** Features that the library does not have. */
  readonly lacks: readonly string[];
  open(urls: readonly string[]): Promise<Session>;
}

/** Makes a promise and the function that resolves it. */
export function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open: () => void = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** Holds a lock of a library that renews only while a function runs. The function ends at the release. */
export async function holdInside(
  run: (task: (signal: AbortSignal | undefined) => Promise<void>) => Promise<unknown>,
  lost?: () => void,
): Promise<Release> {
  const acquired = gate();
  const released = gate();
  const done = run(async (signal) => {
    if (lost) signal?.addEventListener('abort', lost);
    acquired.open();
    await released.opened;
  });
  await Promise.race([acquired.opened, done]);
  return () => {
    released.open();
    return done;
  };
}
