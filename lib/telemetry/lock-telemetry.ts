import { AsyncLocalStorage } from 'node:async_hooks';
import type { LockOrigin } from './lock-origin.js';
import {
  acquisitions,
  holds,
  type LockAcquireEvent,
  type LockEvent,
  type LockHoldEvent,
  type LockSubject,
  type Surrounded,
} from './lock-telemetry.events.js';
import { type LockSkippedEvent, skippedLocks } from './lock-skipped.js';
import { ranTicks, type TickRanEvent } from './tick-ran.js';
import { type ForceReleaseEvent, forceReleases } from './force-release.js';
import type { LeaderEvent } from './leader-event.js';
import { LockHeldError, type LockLostError } from '../core/errors.js';
import type { LockHandle } from '../core/lock-handle.js';
import type { LockKind } from '../core/lock-mode.js';
import type { ResolvedLockOptions } from '../core/lock-options.js';
import type { Tick } from '../core/tick.js';
import { isWatched, type LockSlots, lockStates, type LockStateEvent, slotsOf } from '../core/lock-events.js';

/** Members of a lock that telemetry reads. */
export interface WatchableLock extends Pick<LockHandle, 'id' | 'fencingToken' | 'slot' | 'slots' | 'isHeld'> {
  /** Milliseconds for which the nodes keep the lock after each request. */
  readonly ttl: number;
  /** The largest option `permits` of other calls, if it is larger than the option of this call. */
  readonly permitsSeen: number | undefined;
  /** Error of the loss, if the lock was lost before its release. */
  readonly loss: LockLostError | undefined;
}

/** The members of a request that events contain. */
interface WatchedCall {
  readonly keys: readonly string[];
  readonly options: Pick<ResolvedLockOptions, 'ttl' | 'kind'>;
  readonly origin: LockOrigin;
  readonly tick?: Tick | undefined;
}

/** A held lock whose events have subscribers. */
interface Hold {
  readonly event: LockHoldEvent;
  readonly about: LockSubject & Pick<LockHoldEvent, 'id' | 'fencingToken' | 'slot' | 'slots'>;
  /** The moment of the acquisition, by the monotonic clock. */
  readonly since: number;
  readonly settle: (loss?: Error) => void;
  /** Runs the listener in the asynchronous context of the call that acquired the lock (S30). */
  readonly inContext: (tell: () => void) => void;
}

/**
 * Publishes the locks of one module instance on the tracing channels, and to the listener of the module. Without
 * subscribers and without a listener, it stores and publishes nothing.
 */
export class LockTelemetry {
  /** The held locks by their ids; empty without subscribers and without a listener. */
  readonly #holds = new Map<string, Hold>();
  readonly #onState = (message: unknown): void => this.#stateChanged(message as LockStateEvent);

  /** @param listener - gets each event; it never throws */
  constructor(
    private readonly instance: string | undefined,
    private readonly listener: ((event: LockEvent) => void) | undefined,
  ) {}

  /** `true` if somebody gets the events. Otherwise {@link acquire} need not be called. */
  get isWatched(): boolean {
    return this.listener !== undefined || isWatched(acquisitions) || isWatched(holds);
  }

  /** Runs `acquire`, which acquires a lock, and publishes the events of the lock until its end. */
  async acquire<Lock extends WatchableLock>(
    { keys, options: { ttl, kind }, origin, tick }: WatchedCall,
    acquire: () => Promise<Lock>,
  ): Promise<Lock> {
    const subject: LockSubject = {
      keys,
      mode: kind.mode,
      ...origin,
      ...(this.instance === undefined ? {} : { instance: this.instance }),
    };
    const permits = kind.mode === 'permits' ? { permits: kind.permits } : {};
    const event: LockAcquireEvent = { ...subject, ...permits, ttl, ...(tick && { tick: tick.at }) };
    const started = performance.now();
    const timed = async (): Promise<Lock> => {
      try {
        const lock = await (event.around ? event.around(acquire) : acquire());
        event.fencingToken = lock.fencingToken;
        Object.assign(event, slotsOf(lock));
        if (lock.permitsSeen !== undefined) event.permitsSeen = lock.permitsSeen;
        return lock;
      } catch (error) {
        if (error instanceof LockHeldError && error.permitsSeen !== undefined)
          event.permitsSeen = error.permitsSeen;
        throw error;
      } finally {
        event.waited = performance.now() - started;
      }
    };
    let lock: Lock;
    try {
      lock = await acquisitions.tracePromise(timed, event);
    } catch (error) {
      this.listener?.({ type: 'refused', ...subject, error: error as Error, waited: event.waited ?? 0 });
      this.#permitsDiffer(subject, kind, event.permitsSeen);
      throw error;
    }
    const { id, fencingToken, permitsSeen } = lock;
    const slots = slotsOf(lock);
    this.listener?.({ type: 'acquired', ...subject, id, fencingToken, ...slots, waited: event.waited ?? 0 });
    this.#permitsDiffer(subject, kind, permitsSeen);
    this.#follow(lock, subject, slots);
    return lock;
  }

  #permitsDiffer(subject: LockSubject, kind: LockKind, permitsSeen: number | undefined): void {
    if (kind.mode === 'permits' && permitsSeen !== undefined)
      this.listener?.({ type: 'permits-differ', ...subject, permits: kind.permits, permitsSeen });
  }

  /** Returns the function with which a subscriber runs tasks in its own context; `undefined` if there is none. */
  around(id: string): Surrounded['around'] {
    return this.#holds.size === 0 ? undefined : this.#holds.get(id)?.event.around;
  }

  skipped(skip: LockSkippedEvent): void {
    const event = this.instance === undefined ? skip : { ...skip, instance: this.instance };
    if (skippedLocks.hasSubscribers) skippedLocks.publish(event);
    this.listener?.({ type: 'skipped', ...event });
  }

  tickRan(told: Omit<TickRanEvent, 'instance'>): void {
    const { instance } = this;
    if (ranTicks.hasSubscribers) ranTicks.publish(instance === undefined ? told : { ...told, instance });
  }

  forceReleased(told: Omit<ForceReleaseEvent, 'instance'>): void {
    const event = this.instance === undefined ? told : { ...told, instance: this.instance };
    if (forceReleases.hasSubscribers) forceReleases.publish(event);
    this.listener?.({ type: 'force-released', ...event });
  }

  leader(event: LeaderEvent): void {
    this.listener?.({ type: 'leader', ...event });
  }

  #follow(lock: WatchableLock, subject: LockSubject, slots: LockSlots): void {
    const about = { ...subject, id: lock.id, fencingToken: lock.fencingToken, ...slots };
    const event: LockHoldEvent = { ...about, ttl: lock.ttl };
    const ended = new Promise<void>((resolve, reject) => {
      const settle = (loss?: Error): void => (loss ? reject(loss) : resolve());
      if (this.#holds.size === 0) lockStates.subscribe(this.#onState);
      const inContext = AsyncLocalStorage.snapshot();
      this.#holds.set(lock.id, { event, about, since: performance.now(), settle, inContext });
    });
    // Ignore the rejection: a loss is published on `error`.
    holds.tracePromise(() => ended, event).catch(() => undefined);
    // The lock may have ended before the subscription to its state.
    if (!lock.isHeld()) this.#end(lock.id, lock.loss);
  }

  #stateChanged({ id, state, error }: LockStateEvent): void {
    const hold = this.#holds.get(id);
    if (!hold) return;
    if (state === 'lost' || state === 'released') this.#end(id, error);
    else if (error) hold.inContext(() => this.listener?.({ type: 'unconfirmed', ...hold.about, error }));
  }

  #end(id: string, loss: Error | undefined): void {
    const hold = this.#holds.get(id);
    if (!hold) return;
    this.#holds.delete(id);
    if (this.#holds.size === 0) lockStates.unsubscribe(this.#onState);
    const heldFor = performance.now() - hold.since;
    hold.event.heldFor = heldFor;
    hold.settle(loss);
    const { about } = hold;
    hold.inContext(() =>
      this.listener?.(
        loss ? { type: 'lost', ...about, heldFor, error: loss } : { type: 'released', ...about, heldFor },
      ),
    );
  }
}
