import type { LockState } from './lock-events.js';
import type { LockMode } from './lock-mode.js';

/** An acquired lock. */
export interface LockHandle extends AsyncDisposable {
  /** The locked keys, sorted and without repetitions. */
  readonly keys: readonly string[];

  /** The random value that proves ownership in Redis. */
  readonly id: string;

  /**
   * The mode of the lock: `'exclusive'`, `'shared'` or, with the option `permits`, `'permits'`. The handle of a shared
   * call that has joined an exclusive lock (`reentrant`) has the mode `'exclusive'`.
   */
  readonly mode: LockMode;

  /**
   * The number of this lock's permit, beginning at 0; only with `permits` and one key, otherwise `undefined`. No other
   * holder has the same number while the lock is held, and the number does not change: use it, for example, as the
   * number of a worker.
   */
  readonly slot: number | undefined;

  /** The slot of each key with `permits`, in the order of {@link keys}; otherwise `undefined`. */
  readonly slots: readonly number[] | undefined;

  /**
   * Larger than the token of every earlier lock of any of these keys. That is guaranteed while the nodes keep their
   * data, and while no node's clock is set back by 10 s or more. The token is a whole number below 2^53, and `extend`
   * does not change it.
   *
   * Pass it to the resource that the lock protects, and let the resource refuse a token that is lower than a token that
   * it has seen before. A holder that was paused until after the end of its lock then cannot overwrite the data of the
   * next holder.
   *
   * Tokens do not order locks that are held at the same time. Shared locks that overlap may have the same token. So let
   * the resource compare the token of a read with the tokens of earlier writes, and the token of a write with all
   * earlier tokens. With permits each slot has its own tokens: let the resource remember the highest token of each
   * slot.
   */
  readonly fencingToken: number;

  /**
   * The state of the lock: `'held'`, `'unconfirmed'`, `'lost'` or `'released'`. `'unconfirmed'`: the last renewal
   * failed, but the lock is held until its validity ends; a later renewal can still succeed. The value comes from the
   * clock, as in {@link isHeld}.
   */
  readonly state: LockState;

  /**
   * Aborts with a `LockLostError` as its reason when the lock is lost. That includes a lock that is still held at the
   * end of a shutdown, after `shutdownTimeout`; {@link closing} tells of the beginning. A release does not abort the
   * signal.
   *
   * A blocked event loop delays the signal. Call {@link assertHeld} before a write that must not happen after the end
   * of the lock.
   */
  readonly signal: AbortSignal;

  /**
   * Aborts when the shutdown of the application begins, while the lock is still held and renewed. A method that takes
   * long should then come to an end: the shutdown waits for it, for `shutdownTimeout` at most, and aborts {@link signal}
   * only afterwards. It is the same signal as `LockService.closing`, so its listeners run in no call's async context.
   */
  readonly closing: AbortSignal;

  /**
   * Milliseconds for which no other caller can hold the lock, measured with this machine's clock; 0 when the lock is
   * not held.
   */
  remaining(): number;

  /** `true` while the lock is held. The answer comes from the clock, without a request to Redis (S10). */
  isHeld(): boolean;

  /**
   * Checks that the lock is held. The answer comes from the clock, without a request to Redis (S10).
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
   * @throws RangeError when `ttl` is longer than the module's `restartGuard`. On three or more nodes the default of
   * `restartGuard` is the longest ttl that this process knows of
   * @throws RangeError or TypeError when `ttl` is not a whole number of milliseconds, at least 10
   */
  extend(ttl?: number): Promise<void>;

  /**
   * Ends this handle without a release, so that another process can go on with the lock: `LockService.attach` there makes
   * a handle of the returned pass, with the same fencing token and ttl. Until then nobody holds the lock, nobody renews
   * it, and the nodes keep it for its full ttl from now.
   *
   * Await every write before: both holders have one fencing token, so it refuses neither of them.
   *
   * The pass is a secret: who has it can attach the lock, and can hold it until `maxHold`. This handle is `'released'`
   * afterwards, without an error and without `onLost`: a method or task that returns then ends as usual.
   *
   * @returns the pass, a text of a few hundred characters and the keys
   * @throws LockUnavailableError when no quorum confirmed in time: the lock is still held and renewed by this handle
   * @throws LockLostError when the lock is lost or released
   * @throws RedlockError with the code `LOCK_NOT_DETACHED` when the lock must stay with its call, or the store cannot
   * exchange leases. It stays when a nested call has joined it (`reentrant`), it waits for a commit (`release:
   * 'afterCommit'`), it is the lock of a leader, or a thread renews it (`renew: 'thread'`)
   * @throws RedlockError with the code `MAX_HOLD_REACHED` when the lock has been held for its `maxHold`
   * @example
   * ```ts
   * import type { LockService } from 'nestjs-redlock';
   *
   * declare const locks: LockService; // injected
   * declare const queue: { add(name: string, job: object): Promise<unknown> };
   * const lock = await locks.acquire('order:7');
   * await queue.add('charge', { order: '7', pass: await lock.detach() });
   * ```
   * @see docs/service.md
   */
  detach(): Promise<string>;

  /**
   * Releases the lock. Resolves when a quorum has confirmed, or when the time limit of the request has passed; a key
   * that could not be deleted expires with its ttl. Never rejects. A second `release` does nothing. The request is sent
   * at the end of this turn of the event loop: await the release before you close your own Redis client.
   */
  release(): Promise<void>;
}
