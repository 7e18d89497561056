import type { LockState } from './lock-events.js';
import type { LockMode } from './lock-mode.js';

/** An acquired lock. */
export interface LockHandle extends AsyncDisposable {
  /** The locked keys, sorted and without repetitions. */
  readonly keys: readonly string[];

  /** The random value that proves ownership in Redis. */
  readonly id: string;

  /**
   * The mode of the lock: `'exclusive'`, `'shared'` or, with the option `permits`, `'permits'`. A shared call that
   * joined an exclusive lock (`reentrant`) has that lock, and so `'exclusive'`.
   */
  readonly mode: LockMode;

  /**
   * The number of this lock's permit, from 0 on; only with `permits` and one key, otherwise `undefined`. No other
   * holder has the same number while the lock is held, and it does not change: it can serve as a small number for this
   * worker.
   */
  readonly slot: number | undefined;

  /** With `permits`: the slot of each key, in the order of {@link keys}. Otherwise `undefined`. */
  readonly slots: readonly number[] | undefined;

  /**
   * Larger than the token of every earlier lock of any of these keys. That holds while the nodes keep their data, and no
   * node's clock falls 10 s or more below a time that it has shown. A whole number below 2^53; `extend` keeps it.
   *
   * Pass it to the resource that the lock protects, and let the resource refuse a token lower than one that it has
   * seen. A holder that was paused past the end of its lock then cannot overwrite its successor.
   *
   * The order says nothing about holders of the same lock at the same time. Shared locks that overlap may have the same
   * token: a resource compares a read with the writes that it has seen, and a write with everything. With permits each
   * slot has tokens of its own: a resource remembers the highest token of each slot.
   */
  readonly fencingToken: number;

  /**
   * `'held'`; `'unconfirmed'` when the last renewal failed but validity is left, so the lock is still held and ends
   * unless a renewal succeeds in time; `'lost'`; `'released'`. The clock decides, as in {@link isHeld}.
   */
  readonly state: LockState;

  /**
   * Aborts with a `LockLostError` as its reason when the lock is lost, or when the application shuts down while it is
   * held. A release does not abort it.
   *
   * A blocked event loop delays the signal. Before a write that must not come late, call {@link assertHeld}.
   */
  readonly signal: AbortSignal;

  /** Milliseconds for which no other caller can hold the lock, by this machine's clock; 0 when it is not held. */
  remaining(): number;

  /** `true` while the lock is held. The clock decides, without a request to Redis (S10). */
  isHeld(): boolean;

  /**
   * Returns while the lock is held. The clock decides, without a request to Redis (S10).
   * @throws LockLostError when the lock is lost or released
   */
  assertHeld(): void;

  /**
   * Makes Redis keep the lock for at least `ttl` milliseconds from now, and makes later renewals use the same ttl.
   * @param ttl - defaults to the ttl of the lock
   * @throws LockLostError when the lock is lost or released
   * @throws LockUnavailableError when no quorum confirmed in time; the lock is still held for {@link remaining}
   * milliseconds
   * @throws RedlockError with the code `MAX_HOLD_REACHED` when the lock has been held for its `maxHold`
   * @throws RangeError when `ttl` is longer than the module's `restartGuard`: by default, on three nodes or more, the
   * longest ttl that this process knows of
   * @throws RangeError or TypeError when `ttl` is not a whole number of milliseconds, at least 10
   */
  extend(ttl?: number): Promise<void>;

  /**
   * Releases the lock. Resolves when a quorum has confirmed, or when the time limit for that has passed: a key that
   * could not be deleted ends with its ttl. Never rejects. A second call does nothing. The request is sent at the end
   * of this turn of the event loop: await it before you close a Redis client of your own.
   */
  release(): Promise<void>;
}
