import type { HeldLock } from './redlock/held-lock.js';
import type { LockState } from './redlock/lock-events.js';
import type { LockHandle } from './redlock/lock-handle.js';
import type { RunnableLock } from './lock-run.js';

/**
 * What a nested call gets that joins the lock it is under (S18): the same lock with the same fencing token, but not
 * its release, which is the business of the call that acquired it.
 */
export class JoinedLock implements RunnableLock {
  readonly #lock: RunnableLock;
  #leave: (() => void) | undefined;

  /** @param leave - called when the nested call releases */
  constructor(lock: RunnableLock, leave: () => void) {
    this.#lock = lock;
    this.#leave = leave;
  }

  get keys(): LockHandle['keys'] {
    return this.#lock.keys;
  }

  get id(): string {
    return this.#lock.id;
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

  get loss(): HeldLock['loss'] {
    return this.#lock.loss;
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
    this.#leave?.();
    this.#leave = undefined;
    return Promise.resolve();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }
}
