import { elapsedSince, now } from '../core/clock.js';
import { LockUnavailableError } from '../core/errors.js';
import { neutrally } from '../core/neutral.js';
import { onAbort } from '../core/on-abort.js';
import { SlotList } from '../core/slot-list.js';
import type { Redlock } from '../redlock/redlock.js';
import type { LockScope } from './lock-scope.js';
import type { SurroundingLocks } from './surrounding-locks.js';

const SHUTTING_DOWN = new Error('the application is shutting down');

/** Replaces the reason of the signals of a {@link Shutdown} by an error for the caller of a lock. */
export function whyClosing(keys: readonly string[], error: unknown): unknown {
  return error === SHUTTING_DOWN ? new LockUnavailableError(keys, SHUTTING_DOWN.message) : error;
}

/** The code that runs under the locks of a module, and the shutdown, which waits for it. */
export class Shutdown {
  readonly #running = new SlotList<'slot', LockScope>('slot');
  readonly #refusing = new AbortController();
  readonly #ended = new AbortController();
  /** Running code that waits for the shutdown: the shutdown does not wait for this code. */
  readonly #closers = new Set<LockScope>();
  #draining: Promise<void> | undefined;
  #drained: (() => void) | undefined;

  /** @param timeout - milliseconds for which the shutdown waits for running code (`shutdownTimeout`) */
  constructor(
    private readonly redlock: Redlock,
    private readonly around: SurroundingLocks,
    private readonly timeout: number,
  ) {
    // Every call listens to one of these signals. Add a listener that stays: a further listener then costs almost
    // nothing.
    for (const { signal } of [this.#refusing, this.#ended]) onAbort(signal, { aborted: () => undefined });
  }

  /** Aborts when new calls are refused, which ends the waits of calls that have no lock yet. */
  get refusing(): AbortSignal {
    return this.#refusing.signal;
  }

  /** Aborts when the nodes are closed, which ends the waits of calls under a lock. */
  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  /** Called when code begins to run under a lock. */
  began(scope: LockScope): void {
    this.#running.add(scope);
  }

  /** Called when this code has ended. */
  left(scope: LockScope): void {
    this.#running.delete(scope);
    this.#closers.delete(scope);
    this.#drainedIfIdle();
  }

  /** Tells running methods that the shutdown has begun. New calls are still accepted. */
  begin(): void {
    this.redlock.beginClosing(SHUTTING_DOWN);
  }

  /**
   * Refuses new calls, and waits for running methods and tasks, and until the nodes have stored the ticks that have run,
   * for `shutdownTimeout` at most. Does not wait for the code that calls it: that code waits for the shutdown.
   */
  drain(): Promise<void> {
    this.#draining ??= this.#drain();
    return this.#draining;
  }

  async #drain(): Promise<void> {
    const began = now();
    this.begin();
    this.#refusing.abort(SHUTTING_DOWN);
    for (const scope of this.#running)
      if (this.around.find((each) => each === scope)) this.#closers.add(scope);
    await new Promise<void>((resolve) => {
      // This timer keeps the process alive until the running methods end.
      const timer = setTimeout(resolve, this.timeout);
      this.#drained = () => {
        clearTimeout(timer);
        resolve();
      };
      this.#drainedIfIdle();
    });
    await this.redlock.storeReleases(this.timeout - elapsedSince(began));
  }

  #drainedIfIdle(): void {
    if (this.#running.size === this.#closers.size) this.#drained?.();
  }

  /**
   * Ends all locks and closes the nodes. Takes 5 s at most.
   *
   * The lock of a method that still runs is not released: its signal aborts, and its keys expire with their ttl. For a
   * lock from `acquire`, the module cannot know whether code still runs. The signal of such a lock aborts, and then the
   * lock is released.
   *
   * @returns the keys of the locks whose methods were still running
   */
  close(): Promise<readonly string[]> {
    return neutrally(() => this.#close());
  }

  async #close(): Promise<readonly string[]> {
    this.begin();
    this.#refusing.abort(SHUTTING_DOWN);
    this.#ended.abort(SHUTTING_DOWN);
    const late = [...this.#running];
    for (const scope of late) scope.lock.lose(this.#whyLate(scope));
    // Iterate over a copy: a lost lock leaves the list, and its listeners may release other locks.
    const handles = [...this.redlock.held];
    // Report the loss before the release: the next holder must not begin while this holder still relies on its lock.
    for (const lock of handles) lock.lose('the application shut down while it was held');
    await this.redlock.close(handles);
    return late.flatMap(({ lock }) => lock.keys);
  }

  #whyLate(scope: LockScope): string {
    if (this.#closers.has(scope)) return 'the code under it closed the application; close it after the lock';
    const what = scope.awaitsCommit ? 'the transaction around its method' : 'its method';
    return `the application shut down before ${what} had ended`;
  }
}
