/** Gives a lock back. */
export type Release = () => Promise<unknown>;

/** A way to lock, opened on some nodes. Each method is the one that its documentation recommends for the case. */
export interface Session {
  /** One attempt on a free key; rejects when the key is held. */
  acquire(key: string, ttl: number): Promise<Release>;

  /** Runs `task` under the lock, which is renewed meanwhile where that is offered. */
  withLock(key: string, ttl: number, task: () => Promise<void>): Promise<unknown>;

  /** Waits for the lock, for a long time. */
  wait(key: string, ttl: number): Promise<Release>;

  /** Like {@link wait}, for `budget` milliseconds. Missing where there is no such limit. */
  tryFor?(key: string, ttl: number, budget: number): Promise<Release>;

  /**
   * Acquires and keeps the lock by renewal until it is released; `lost`, if given, is called when the library tells that
   * the lock is lost. Missing where there is no renewal.
   */
  hold?(key: string, ttl: number, lost?: () => void): Promise<Release>;

  close(): Promise<void>;
}

/** A library, or code written by hand, that is compared. */
export interface Contender {
  readonly name: string;
  /** The packages whose versions are reported. */
  readonly packages: readonly string[];
  /** True if it can lock on several independent nodes. */
  readonly quorum: boolean;
  /** The contender that it is a thin layer over; groups that take long leave it out where that one is measured. */
  readonly over?: string;
  /** Milliseconds that its keys outlive their locks; 0 by default. */
  readonly linger?: number;
  /** Commands that it sends outside of scripts, beside those that no script calls. */
  readonly sends: readonly string[];
  /** Features that it lacks, for speed or otherwise. */
  readonly lacks: readonly string[];
  open(urls: readonly string[]): Promise<Session>;
}

/** A promise and the way to settle it, for work that lasts until somebody says so. */
export function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open: () => void = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** For libraries that renew only around a function: holds until the release. */
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
