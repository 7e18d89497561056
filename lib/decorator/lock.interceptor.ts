import { Injectable, Logger } from '@nestjs/common';
import { HeldIterator } from './results/held-iterator.js';
import { heldObservable } from './results/held-observable.js';
import { heldUntilEnd } from './results/held-results.js';
import type { Begun, LockScope } from '../service/lock-scope.js';
import { iterablePromise } from './results/iterable-promise.js';
import type { LockOrigin } from '../telemetry/lock-origin.js';
import { insteadOf } from '../service/skipped-call.js';
import { nobodyLeads } from '../service/leader/leadership.js';
import type { LateParts } from './late-parts.js';
import { detached } from '../core/neutral.js';
import { keysOf, type LockKey } from '../core/keys.js';
import { quoted } from '../core/printable.js';
import { hideFields } from '../core/shown-as.js';
import type { ScheduledTask } from './schedule/schedule-metadata.js';
import type { Ticks } from './schedule/ticks.js';
import type { DeclaredLock } from '../core/declared-lock.js';
import { type LockPolicy, optionsFor } from '../core/lock-policy.js';

/** Kind of result of a method, which decides when the lock is acquired; `'unknown'` until the method has run. */
export type ResultKind = 'promise' | 'observable' | 'generator' | 'unknown';

/** A call of a decorated method. */
export interface LockedCall {
  readonly origin: LockOrigin & { readonly method: string };
  readonly key: () => LockKey;
  /**
   * The declared lock, if the decorator was given one. `key` then returns the keys of that lock, and `options` are the
   * options of the decorator alone.
   */
  readonly lock: DeclaredLock | undefined;
  readonly options: LockPolicy;
  readonly kind: ResultKind;
  /** The method in the form in which @nestjs/schedule finds it. */
  readonly task: () => ScheduledTask;
  /** Runs the method itself. */
  readonly proceed: () => unknown;
}

/**
 * Surrounds every call of a method that has `@WithLock`: acquires the lock before the method runs, renews it while the
 * method runs, and releases it afterwards.
 *
 * Interceptors of Nest run only for requests and messages. The decorated method itself calls this class, so that cron
 * tasks and plain service calls are locked too, and the order of guards, pipes and interceptors does not change.
 */
@Injectable()
export class LockInterceptor {
  readonly #logger = new Logger('WithLock');
  /** The methods whose results were read in a way that does not show their end. */
  readonly #unclear = new Set<string>();
  readonly #successors = new WeakMap<object, LockInterceptor>();

  /** @internal Nest creates the object. */
  constructor(
    private readonly parts: LateParts,
    private readonly ticks: Ticks,
  ) {
    hideFields(this, 'parts', 'ticks');
  }

  /**
   * For a method that returns an Observable, the lock is acquired at the subscription; for an async generator, at the
   * first read. Any other method returns a Promise. If the Promise resolves to an Observable, an async iterable or a
   * stream, the lock is held until that result ends.
   *
   * @internal `@WithLock` calls this method.
   */
  intercept(call: LockedCall): unknown {
    if (call.kind === 'observable')
      return heldObservable((signal) => this.#begin(call, signal), call.proceed);
    if (call.kind === 'generator') return new HeldIterator(() => this.#begin(call), call.proceed, false);
    const settled = detached(() => this.#settle(call));
    return call.kind === 'unknown' ? iterablePromise(settled) : settled;
  }

  /**
   * @param method - the name of the class and of the method
   * @throws RedlockError with the code `NO_LEADER` when nobody has `@Leader` with the name: start-up checks only the
   * objects of modules
   * @internal `@OnlyLeader` calls this method.
   */
  async onlyLeader(name: string, method: string, proceed: () => unknown): Promise<unknown> {
    const { leaders } = this.parts.present ?? {};
    const campaign = leaders?.of(name);
    if (!campaign && leaders?.hasStarted)
      throw nobodyLeads(`@OnlyLeader(${quoted([name])}) of ${method}`, leaders);
    return campaign?.ifLeader(proceed);
  }

  /** @internal Called with each object that gets the interceptor from Nest. */
  injectedInto(object: object): void {
    this.parts.injected(object);
  }

  /** @internal `true` if the application has shut down. */
  get isClosed(): boolean {
    return this.parts.present?.runtime.isClosed === true;
  }

  /** @internal `true` if the application refuses the running call, because it shuts down. */
  get refusesCall(): boolean {
    return this.parts.present?.runtime.refusesCall === true;
  }

  /** @internal Names the interceptor of another open application that has the object, too. */
  addSuccessor(object: object, next: LockInterceptor): void {
    const known = this.successorOf(object);
    if (known && known !== next) known.addSuccessor(object, next);
    else if (next !== this) this.#successors.set(object, next);
  }

  /** @internal The interceptor of an open application that has the object, too. */
  successorOf(object: object): LockInterceptor | undefined {
    const next = this.#successors.get(object);
    return next?.isClosed ? next.successorOf(object) : next;
  }

  async #settle(call: LockedCall): Promise<unknown> {
    const begun = await this.#begin(call);
    if (!begun.scope) return begun.instead[0];
    const { scope } = begun;
    let result: unknown;
    try {
      result = await scope.settle(call.proceed);
    } catch (error) {
      await scope.end();
      throw error;
    }
    const again = (signal?: AbortSignal): Promise<Begun> => this.#begin(call, signal);
    return heldUntilEnd(result, scope, again, (how) => this.#tellUnclear(call, scope, how));
  }

  /** Warns once for each method. */
  #tellUnclear({ origin: { method } }: LockedCall, { lock }: LockScope, how: string): void {
    if (this.#unclear.has(method)) return;
    this.#unclear.add(method);
    this.#logger.warn(
      `${method}: its result was read with \`${how}\`, which does not show when the result ends. So the lock on ` +
        `${quoted(lock.keys)} was released ${lock.ttl} ms after the last use of the result, also if the reading ` +
        'goes on. Read the result inside the method, or return an async generator or a stream.',
    );
  }

  async #begin(
    { origin, key, lock: declared, options: own, task }: LockedCall,
    signal?: AbortSignal,
  ): Promise<Begun> {
    const { runtime } = this.parts.present ?? (await this.parts.wait());
    const { declarations } = runtime;
    const options = declared ? declarations.optionsOf(declared, own) : own;
    const { oncePerTick = false, onBusy = oncePerTick ? 'skip' : 'throw' } = options;
    const resolved = runtime.resolve(optionsFor(onBusy, options));
    const keys = keysOf(key(), `the key of @WithLock on ${origin.method}`);
    if (declared) declarations.note(declared, keys);
    else if (declarations.strict) declarations.refuse(keys);
    const tick = oncePerTick ? this.ticks.of(task()) : undefined;
    const call = { keys, options: resolved, origin, signal, tick };
    try {
      const lock = await runtime.acquire(call);
      if (tick) runtime.telemetry.tickRan({ method: origin.method, keys, tick: tick.at });
      return { scope: runtime.begin(lock, resolved) };
    } catch (error) {
      return { scope: undefined, instead: await insteadOf(error, call, onBusy, runtime, this.#logger) };
    }
  }
}
