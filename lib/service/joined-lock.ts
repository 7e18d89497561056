import type { LockLostError } from '../core/errors.js';
import { notDetached } from '../redlock/detach.js';
import type { Joined } from '../redlock/held-lock.js';
import type { LockState } from '../core/lock-events.js';
import type { LockHandle } from '../core/lock-handle.js';
import { showAs } from '../core/shown-as.js';
import type { LockScope, RunnableLock } from './lock-scope.js';

/**
 * The lock of a nested call that joins the lock of the call around it (S18): the same lock with the same fencing token.
 * A nested call does not release the lock while the outer call runs.
 */
export class JoinedLock implements RunnableLock, Joined {
  joined: Joined | undefined;
  boundBy: undefined;
  readonly #outer: LockScope;
  readonly #lock: RunnableLock;
  #isCall = true;
  #left: Promise<void> | undefined;

  /**
   * Makes the lock for a call that is nested in `outer` and joins its lock (S18). Returns `undefined` while another
   * nested call has joined the lock, because both nested calls would run at the same time under one lock.
   */
  static in(outer: LockScope): JoinedLock | undefined {
    return outer.lock.joined ? undefined : new JoinedLock(outer);
  }

  private constructor(outer: LockScope) {
    this.#outer = outer;
    this.#lock = outer.lock;
    this.#lock.joined = this;
  }

  get isCall(): boolean {
    return this.#isCall;
  }

  /**
   * Marks the lock as a handle that its caller should release. The end of the outer call releases the handle at the
   * latest.
   */
  keep(): void {
    this.#isCall = false;
    void this.#outer.left();
  }

  get keys(): LockHandle['keys'] {
    return this.#lock.keys;
  }

  get id(): string {
    return this.#lock.id;
  }

  get mode(): LockHandle['mode'] {
    return this.#lock.mode;
  }

  get slot(): number | undefined {
    return this.#lock.slot;
  }

  get slots(): readonly number[] | undefined {
    return this.#lock.slots;
  }

  get permitsSeen(): number | undefined {
    return this.#lock.permitsSeen;
  }

  get fencingToken(): number {
    return this.#lock.fencingToken;
  }

  get signal(): AbortSignal {
    return this.#lock.signal;
  }

  get lossSignal(): AbortSignal {
    return this.#lock.lossSignal;
  }

  get closing(): AbortSignal {
    return this.#lock.closing;
  }

  get state(): LockState {
    return this.#lock.state;
  }

  get ttl(): number {
    return this.#lock.ttl;
  }

  get loss(): LockLostError | undefined {
    const { loss, state } = this.#lock;
    // The lock was released while this call ran, so the reason of the signal is the error.
    if (state === 'released' && !this.#left) return this.#lock.lossSignal.reason as LockLostError;
    return loss;
  }

  remaining(): number {
    return this.#lock.remaining();
  }

  isHeld(): boolean {
    return this.#lock.isHeld();
  }

  assertHeld(): void {
    this.#lock.assertHeld();
  }

  extend(ttl?: number): Promise<void> {
    return this.#lock.extend(ttl);
  }

  detach(): Promise<string> {
    const why =
      'a nested call has joined it, and the outer call goes on to use it. Detach it in the outer call';
    return Promise.reject(notDetached(this.keys, why));
  }

  lose(reason: string): void {
    this.#lock.lose(reason);
  }

  release(): Promise<void> {
    // Do not release this lock while a nested call or a handle has joined it. A nested call calls `release` again at
    // its end. A handle may never be released, so make this lock a handle, too: the end of the outer call releases both.
    if (this.joined) {
      if (!this.joined.isCall) this.keep();
      return Promise.resolve();
    }
    if (!this.#left) {
      this.#lock.joined = undefined;
      this.#left = this.#outer.left();
    }
    return this.#left;
  }

  /** Describes the joined lock for loggers. */
  described(): object {
    return this.#lock.described();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }
}

/** Shown like the lock that it has joined. */
showAs(JoinedLock, 'LockHandle', (joined) => joined.described());
