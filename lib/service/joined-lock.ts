import type { LockLostError } from '../core/errors.js';
import type { Joined } from '../redlock/held-lock.js';
import type { LockState } from '../core/lock-events.js';
import type { LockHandle } from '../core/lock-handle.js';
import type { LockScope, RunnableLock } from './lock-scope.js';

/**
 * What a nested call gets that joins the lock it is under (S18): the same lock with the same fencing token. It does not
 * release it, as long as the call that it is nested in goes on.
 */
export class JoinedLock implements RunnableLock, Joined {
  joined: Joined | undefined;
  readonly #outer: LockScope;
  readonly #lock: RunnableLock;
  #isRun = true;
  #left: Promise<void> | undefined;

  /**
   * The lock for a call that is nested in `outer` and joins its lock (S18). `undefined` while another one has: those two
   * would run side by side, and under one lock they must not.
   */
  static in(outer: LockScope): JoinedLock | undefined {
    return outer.lock.joined ? undefined : new JoinedLock(outer);
  }

  private constructor(outer: LockScope) {
    this.#outer = outer;
    this.#lock = outer.lock;
    this.#lock.joined = this;
  }

  get isRun(): boolean {
    return this.#isRun;
  }

  /** It is kept by somebody, and released with the call that it is nested in unless that happens before. */
  keep(): void {
    this.#isRun = false;
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

  get state(): LockState {
    return this.#lock.state;
  }

  get ttl(): number {
    return this.#lock.ttl;
  }

  get loss(): LockLostError | undefined {
    const { loss, state } = this.#lock;
    // Released beneath this call; the signal has told so.
    if (state === 'released' && !this.#left) return this.#lock.signal.reason as LockLostError;
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

  lose(reason: string): void {
    this.#lock.lose(reason);
  }

  release(): Promise<void> {
    // What runs under it comes here again when it ends; a handle that was not released must not keep the lock.
    if (this.joined) {
      if (!this.joined.isRun) this.keep();
      return Promise.resolve();
    }
    if (!this.#left) {
      this.#lock.joined = undefined;
      this.#left = this.#outer.left();
    }
    return this.#left;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }
}
