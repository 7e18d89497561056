import { AsyncLocalStorage } from 'node:async_hooks';
import { type Instant, now } from '../core/clock.js';
import { LockLostError } from '../core/errors.js';
import type { Lease } from '../core/lease.js';
import { type LockState, type LockStateEvent, lockStates, slotsOf } from '../core/lock-events.js';
import type { LockMode } from '../core/lock-mode.js';
import { tellNeutrally } from '../core/neutral.js';
import type { RedlockSettings } from './redlock-settings.js';
import { usableTtl } from './validity.js';

/** The objects that an {@link ExpiringLock} shares with all others. */
export interface ExpiryContext {
  readonly settings: RedlockSettings;
  /** Aborts when the shutdown of the application begins. */
  readonly closing: AbortSignal;
}

const LOADED_AT = Date.now();

/**
 * Until when a lock is held, and who is told of its end. Counts down the validity by the clock, and keeps the state and
 * the signal. Sends nothing and has no timer.
 */
export abstract class ExpiringLock<Context extends ExpiryContext = ExpiryContext> {
  /**
   * The state of an acquired lock. `'unconfirmed'` lasts from a failed renewal to the next successful renewal. A lost
   * lock has the error of the loss as its state. A lost or released lock is never held again.
   */
  #state: Exclude<LockState, 'lost'> | LockLostError = 'held';
  /**
   * The end of the validity, by the monotonic clock and by the wall clock (S11). The values are whole milliseconds, and
   * the wall-clock time counts from {@link LOADED_AT}, because V8 stores small integers in the object itself. That
   * saves 32 bytes of heap for each held lock (`npm run bench -- held`).
   */
  #endsAt = 0;
  #endsAtWall = 0;
  /** The name of the declared lock. */
  protected declaredAs: string | undefined;
  /**
   * The ttl of the last call of `extend`, if there was one. The lease has the longest ttl that was requested so far.
   */
  protected ownTtl: number | undefined;
  /** The source of the signal, made on first use: most callers never read the signal. */
  protected controller: AbortController | undefined;
  /** Runs the listeners of the signal in the asynchronous context in which the application read it first. */
  private inContext: (<T>(task: () => T) => T) | undefined;

  /** `#private`, because a serializer that goes through the fields of a lock would show the clients and passwords. */
  readonly #context: Context;

  constructor(
    readonly lease: Lease,
    readonly fencingToken: number,
    context: Context,
  ) {
    this.#context = context;
  }

  protected get context(): Context {
    return this.#context;
  }

  get keys(): readonly string[] {
    return this.lease.keys;
  }

  get id(): string {
    return this.lease.id;
  }

  get mode(): LockMode {
    return this.lease.kind.mode;
  }

  get slot(): number | undefined {
    const { slots } = this.lease;
    return slots?.length === 1 ? slots[0] : undefined;
  }

  get slots(): readonly number[] | undefined {
    return this.lease.slots;
  }

  /** The number of permits that another caller asked for, if it is larger than this lock's own number. */
  get permitsSeen(): number | undefined {
    return this.lease.permitsSeen;
  }

  /** Milliseconds for which the nodes keep the lock after its acquisition and after each extension. */
  get ttl(): number {
    return this.ownTtl ?? this.lease.ttl;
  }

  get signal(): AbortSignal {
    // The signal belongs to the call that reads it, in contrast to the timer that aborts it (S30).
    this.inContext ??= AsyncLocalStorage.snapshot();
    return this.lossSignal;
  }

  /** The same signal for listeners of the library. They may be set for other calls than the one that has the lock. */
  get lossSignal(): AbortSignal {
    if (!this.controller) {
      this.controller = new AbortController();
      const { loss } = this;
      if (loss) this.controller.abort(loss);
    }
    return this.controller.signal;
  }

  get closing(): AbortSignal {
    return this.context.closing;
  }

  remaining(): number {
    return this.isAlive ? Math.max(0, this.leftAt(now())) : 0;
  }

  isHeld(): boolean {
    this.noticeLapse();
    return this.isAlive;
  }

  get state(): LockState {
    return this.loss ? 'lost' : (this.#state as LockState);
  }

  assertHeld(): void {
    if (!this.isHeld()) throw this.whyNotHeld();
  }

  /** The error of the loss; `undefined` when the lock is held or was released before a loss. */
  get loss(): LockLostError | undefined {
    this.noticeLapse();
    return this.#state instanceof LockLostError ? this.#state : undefined;
  }

  /**
   * Marks the lock as lost: the signal aborts and renewal ends. The keys expire with their ttl unless they are
   * released.
   */
  lose(reason: string): void {
    if (!this.isAlive) return;
    const error = new LockLostError(this.keys, reason, this.declaredAs);
    this.stop();
    this.become(error);
    this.abort(error);
    const { lost } = this.context.settings;
    if (lost) tellNeutrally(() => lost(error));
  }

  /** Takes the monotonic clock's end of the validity for the wall clock, too, which was set back (S11). */
  setBack(): void {
    const at = now();
    if (this.isAlive) this.endAfter(this.#endsAt - at.monotonic, at);
  }

  /** The properties that `JSON.stringify` and loggers show. */
  described(): object {
    return {
      keys: this.keys,
      mode: this.mode,
      ...slotsOf(this),
      state: this.state,
      fencingToken: this.fencingToken,
      remaining: Math.floor(this.remaining()),
      owner: this.lease.owner,
    };
  }

  /** Ends all work for the lock, which is lost or released. */
  protected abstract stop(): void;

  /** The reason of a loss at the end of the validity. */
  protected abstract whyLapsed(): string;

  /** `true` for a held or unconfirmed lock without a noticed loss. */
  protected get isAlive(): boolean {
    return this.#state === 'held' || this.#state === 'unconfirmed';
  }

  protected get isUnconfirmed(): boolean {
    return this.#state === 'unconfirmed';
  }

  /** @param error - makes the error for listeners; called only when there are listeners */
  protected become(state: Exclude<LockState, 'lost'> | LockLostError, error?: () => Error): void {
    if (state === this.#state) return;
    this.#state = state;
    if (!lockStates.hasSubscribers) return;
    const isLost = state instanceof LockLostError;
    const event: LockStateEvent = {
      keys: this.keys,
      id: this.id,
      owner: this.lease.owner,
      fencingToken: this.fencingToken,
      mode: this.mode,
      ...slotsOf(this),
      state: isLost ? 'lost' : state,
      remaining: this.remaining(),
      ...(isLost ? { error: state } : error ? { error: error() } : {}),
    };
    tellNeutrally(() => lockStates.publish(event));
  }

  protected abort(error: LockLostError): void {
    const { controller, inContext } = this;
    if (inContext) inContext(() => controller?.abort(error));
    else controller?.abort(error);
  }

  protected whyNotHeld(how = 'it was released'): LockLostError {
    return this.loss ?? new LockLostError(this.keys, how, this.declaredAs);
  }

  /**
   * Marks the lock as lost after the end of its validity. The clock decides, because a blocked event loop delays the
   * timer (S10).
   */
  protected noticeLapse(): void {
    if (this.isAlive && this.remaining() === 0) this.lose(this.whyLapsed());
  }

  /** The end of the validity. */
  protected get end(): Instant {
    return { monotonic: this.#endsAt, wall: this.#endsAtWall + LOADED_AT };
  }

  protected set end({ monotonic, wall }: Instant) {
    this.#endsAt = Math.floor(monotonic);
    this.#endsAtWall = Math.floor(wall - LOADED_AT);
  }

  /** Milliseconds of the validity that are left, by the clock that shows less (S11); negative after its end. */
  protected leftAt({ monotonic, wall }: Instant): number {
    return Math.min(this.#endsAt - monotonic, this.#endsAtWall + LOADED_AT - wall);
  }

  /**
   * Sets the end on both clocks to the same moment. Otherwise one clock would keep the time that only the other has
   * shown: after a wall clock was set back, it would show no suspend until it has caught up (S11).
   */
  protected endAfter(left: number, { monotonic, wall }: Instant): void {
    // Round down: the validity must not be too long.
    this.#endsAt = Math.floor(monotonic + left);
    this.#endsAtWall = Math.floor(wall - LOADED_AT + left);
  }

  /**
   * Makes the lock valid for a ttl that was requested at `sent` (S2, S4), unless it is already valid for longer.
   *
   * @returns the validity in milliseconds, counted from `sent`
   */
  protected validFor(ttl: number, sent: Instant): number {
    const usable = usableTtl(ttl, this.context.settings.driftFactor);
    // Read the monotonic clock first: a pause between the readings then shortens the validity.
    const at = now();
    const left = usable - Math.max(at.monotonic - sent.monotonic, at.wall - sent.wall);
    this.endAfter(Math.max(left, this.leftAt(at)), at);
    return usable;
  }
}
