import type { LockState } from './lock-events.js';
import type { LockMode } from './lock-mode.js';

/** A lock that was acquired. */
export interface LockHandle extends AsyncDisposable {
  /** What is locked, sorted and without repetitions. */
  readonly keys: readonly string[];

  /** The random value that proves ownership in Redis. */
  readonly id: string;

  /**
   * How it is held: `'exclusive'`, `'shared'` or, with the option `permits`, `'permits'`. A shared call that joined an
   * exclusive lock (`reentrant`) is under that one, so `'exclusive'` there.
   */
  readonly mode: LockMode;

  /**
   * With `permits` and one key: which of the permits it has, from 0 on. Nobody else has it while the lock is held, and it does
   * not change: good as a small number for this worker. Otherwise `undefined`.
   */
  readonly slot: number | undefined;

  /** With `permits`: the slot of each key, in the order of {@link keys}. Otherwise `undefined`. */
  readonly slots: readonly number[] | undefined;

  /**
   * Larger than the token of every lock of any of these keys that was acquired before, as long as the nodes keep their data
   * and no node's clock falls 10 s or more below a time that it has shown. Give it to what the lock protects, and let that refuse a token lower than one it has seen: then a holder
   * that was paused past its lock's end cannot overwrite its successor. A whole number below 2^53; extending keeps it.
   *
   * Those who hold a lock together are no successors of each other. Shared locks that overlap may have the same token: a
   * resource compares a read with the writes that it has seen, and a write with everything. With permits each slot has tokens
   * of its own: a resource remembers the highest for each slot.
   */
  readonly fencingToken: number;

  /**
   * `'held'`; `'unconfirmed'` when the last renewal failed but validity is left, so the lock is still held and will be
   * lost unless a renewal succeeds in time; `'lost'`; `'released'`. Decided by the clock, like {@link isHeld}.
   */
  readonly state: LockState;

  /**
   * Aborts, with a `LockLostError` as its reason, when the lock is lost, or the application shuts down while it is held.
   * Not when it is released.
   *
   * A blocked event loop delays it; before a write that must not come late, ask {@link assertHeld}.
   */
  readonly signal: AbortSignal;

  /** Milliseconds for which nobody else can hold the lock, by this machine's clock; 0 when it is not held. */
  remaining(): number;

  /** Whether the lock is held now, decided by the clock, without asking Redis (S10). */
  isHeld(): boolean;

  /**
   * Decided by the clock, without asking Redis (S10).
   * @throws LockLostError when the lock is lost or released
   */
  assertHeld(): void;

  /**
   * Makes Redis keep the lock for at least `ttl` milliseconds from now, and renew it to that from now on.
   * @param ttl - defaults to the ttl that the lock has
   * @throws LockLostError when the lock is lost or released
   * @throws LockUnavailableError when no quorum confirmed in time; the lock is still held for {@link remaining} milliseconds
   * @throws RedlockError with the code `MAX_HOLD_REACHED` when the lock has been held for its `maxHold`
   * @throws RangeError when `ttl` is longer than the module's `restartGuard`: by default, on three nodes or more, the
   * longest ttl that this process knows of
   * @throws RangeError or TypeError when `ttl` is not a whole number of milliseconds, at least 10
   */
  extend(ttl?: number): Promise<void>;

  /**
   * Gives the lock back. Resolves when a quorum has confirmed, or the time limit for that has passed: what could
   * not be deleted ends with its ttl. Never rejects, and a second call does nothing. It is sent when this turn of the
   * event loop ends: wait for it before you end a Redis client of yours.
   */
  release(): Promise<void>;
}
