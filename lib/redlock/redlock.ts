import { randomBytes } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { askStore } from '../core/ask-store.js';
import { type Instant, now } from '../core/clock.js';
import { asError } from '../core/errors.js';
import { EXCLUSIVE, type LockKind, type LockMode } from '../core/lock-mode.js';
import type { ResolvedRetry } from '../core/lock-options.js';
import { neutrally, tellNeutrally } from '../core/neutral.js';
import type { DetachedLock, Pass } from '../core/pass.js';
import type { Store } from '../core/ports.js';
import { attach, type AttachTerms } from './attach.js';
import { Attempt, type AttemptContext, type LockRequest } from './acquire.js';
import { HeldLock } from './held-lock.js';
import { Nodes } from './nodes.js';
import { Outvoted } from './outvoted.js';
import type { RedlockSettings } from './redlock-settings.js';
import { ShortLivedMap } from './short-lived-map.js';
import { momentNumber } from '../core/random-id.js';
import { SlotList } from '../core/slot-list.js';
import { checkTtl, KeyRule } from './store-limits.js';
import { withTimeout } from '../core/with-timeout.js';
import { ClockWatch } from './clock-watch.js';
import { nodeTimeLimit } from './validity.js';
import { UnstoredReleases } from './unstored-releases.js';
import { LocalQueue, queueNodeOf, type Waiter } from './wait/local-queue.js';
import type { AttemptCaller, AttemptResult } from './wait/attempt.js';
import { type MadeAttempt, type Wait, WaitingCall } from './wait/waiting-call.js';
import { Watchdog } from './watchdog.js';

/**
 * Longest time in milliseconds for which {@link Redlock.close} waits for answers to the last requests, and then for the
 * stores to close. A store that hangs, or the client that an application has passed in, may never answer.
 */
const LAST_REQUESTS_MS = 3_000;
const STORES_CLOSE_MS = 2_000;

/** Parameters of {@link Redlock.acquire}. */
export interface AcquireTerms extends LockRequest {
  readonly retry: ResolvedRetry;
  /** Replaces an error before the caller gets it. */
  readonly explain?: (keys: readonly string[], error: unknown) => unknown;
}

/**
 * The Redlock algorithm over any number of independent nodes. On one node it is `SET NX PX` with an owner id. Waiters
 * form a queue, and each gets a message when it is its turn.
 *
 * @see https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
 */
export class Redlock {
  /** The locks held at present. */
  readonly held = new SlotList<'heldSlot', HeldLock>('heldSlot');
  readonly #context: AttemptContext;
  readonly #keyRule: KeyRule;
  /** The queues of this process, by the name of the requested lock. */
  readonly #queues = new Map<string, LocalQueue>();
  /**
   * The calls that make their first attempt, by the name of the requested lock. When many calls ask for one lock in one
   * turn of the event loop, only the first asks the nodes.
   */
  readonly #asking = new ShortLivedMap<string, Call>();
  readonly #firstAttempts: FirstAttempts = {
    attempted: (call, result) => this.#attempted(call, result),
    aborted: (call, reason) => this.#aborted(call, reason),
  };
  /** The random name that distinguishes the waiters of this process from other waiters in the queue of a store. */
  readonly process = randomBytes(8).toString('hex');
  /** The number of the last waiter. */
  #lastWaiter = 0;
  readonly #closing = new AbortController();
  readonly #unstored: UnstoredReleases;
  /** The amount of work that must end before the nodes are closed. */
  #busy = 0;
  #idle: (() => void) | undefined;

  constructor(
    private readonly stores: readonly Store[],
    private readonly settings: RedlockSettings,
  ) {
    const done = (): void => {
      this.#busy--;
      if (this.#busy === 0) this.#idle?.();
    };
    this.#keyRule = new KeyRule(stores, settings.keyPrefix);
    // Every locked method may listen to this signal, and Node would take eleven listeners for a leak.
    setMaxListeners(0, this.closing);
    const nodes = new Nodes(stores);
    this.#unstored = new UnstoredReleases(nodes, settings.nodeTimeout);
    const watchdog = new Watchdog(settings.nodeTimeout);
    const clocks = new ClockWatch(stores, {
      // A copy, because the listeners of a lost lock may release other locks.
      setBack: () => [...this.held].forEach((lock) => lock.setBack()),
      overslept: (asleep, paused) => {
        for (const lock of [...this.held]) lock.overslept(paused);
        watchdog.bringForward(asleep + paused);
      },
    });
    settings.thread?.whenReady(() => {
      for (const lock of [...this.held]) lock.handOver();
    });
    this.#context = {
      settings,
      nodes,
      watchdog,
      outvoted: new Outvoted(),
      closing: this.closing,
      clocks,
      began: (lock) => {
        this.held.add(lock);
        if (this.held.size === 1) clocks.begin();
      },
      ended: (lock) => {
        this.held.delete(lock);
        if (this.held.size === 0) clocks.end();
      },
      unconfirmed: (lease) => this.#unstored.note(lease),
      busy: () => {
        this.#busy++;
        return done;
      },
    };
  }

  /** Readable name of this process. */
  get owner(): string {
    return this.settings.owner;
  }

  /**
   * Announces that locks with this ttl will be acquired.
   *
   * @throws RangeError when a store cannot keep this ttl, or when `restartGuard` is set to a shorter time
   */
  foresee(ttl: number): void {
    checkTtl(this.stores, ttl);
    this.settings.guard.note(ttl);
  }

  /**
   * Announces that locks with `renew: 'thread'` will be acquired.
   *
   * @param isCertain - `false` if they may be acquired
   * @throws TypeError when a thread cannot open the nodes, if it is certain
   */
  foreseeThread(isCertain = true): void {
    this.settings.thread?.foresee(isCertain);
  }

  /** Starts the thread that renews locks, if it is needed. Never throws. */
  beginThread(): void {
    this.settings.thread?.begin();
  }

  /** Connects the thread that renews locks, if it is needed. Never rejects. */
  async openThread(): Promise<void> {
    await this.settings.thread?.open();
  }

  /** @throws RangeError when a store can never store a lock of these keys */
  checkKeys(keys: readonly string[], mode: LockMode): void {
    this.#keyRule.check(keys, mode);
  }

  /**
   * Tries until the lock is acquired or one of the limits of `retry` is reached.
   *
   * When no caller is known to wait for the lock and `retry` has no limit of attempts, the first attempt is made
   * outside the queue. The call joins the queue when this attempt is refused. A call with only one attempt never joins
   * the queue.
   *
   * @throws LockHeldError or LockUnavailableError of the last attempt, or a signal's reason
   * @throws RangeError or TypeError, synchronously, when a store cannot store a lock with these keys, ttl or mode
   */
  acquire(keys: readonly string[], options: AcquireTerms): Promise<HeldLock> {
    this.foresee(options.ttl);
    if (options.kind && options.kind !== EXCLUSIVE) this.#checkMode(options.kind);
    const { kind = EXCLUSIVE } = options;
    this.#keyRule.check(keys, kind.mode, kind.mode === 'permits' ? kind.permits : undefined);
    return neutrally(this.#acquireNeutrally, keys, options);
  }

  /**
   * Takes over a lock that another process has detached.
   *
   * @throws RedlockError with the code LOCK_NOT_ATTACHED, LockUnavailableError, or the reason of a signal
   * @throws RangeError, as a rejection, when a store cannot store the lock
   */
  async attach(pass: Pass & DetachedLock, terms: AttachTerms): Promise<HeldLock> {
    const { keys, kind, ttl } = pass;
    checkTtl(this.stores, ttl);
    this.settings.guard.checkFixed(ttl);
    if (kind !== EXCLUSIVE) this.#checkMode(kind);
    this.#keyRule.check(keys, kind.mode, kind.mode === 'permits' ? kind.permits : undefined);
    try {
      const lock = await neutrally(attach, this.#context, pass, terms);
      this.settings.guard.note(ttl);
      return lock;
    } catch (error) {
      throw terms.explain?.(keys, error) ?? error;
    }
  }

  /** The timers, requests and queues of a call serve other calls, too (S30). */
  readonly #acquireNeutrally = (keys: readonly string[], options: AcquireTerms): Promise<HeldLock> =>
    new Promise((resolve, reject) => {
      this.#begin(new Call(keys, options, resolve, reject, this.#firstAttempts));
    });

  /** @throws TypeError when a store cannot store a lock of this mode */
  #checkMode({ mode }: LockKind): void {
    const unable = this.stores.find(({ modes }) => !modes.includes(mode));
    if (!unable) return;
    const { name, modes } = unable;
    throw new TypeError(
      `${name} cannot store a lock in the mode '${mode}', only in ${modes.map((each) => `'${each}'`).join(' and ')}; ` +
        'use another store for this lock',
    );
  }

  #begin(call: Call): void {
    const { keys, options } = call;
    const { retry, signals } = options;
    for (const signal of signals) if (signal.aborted) return call.fail(signal.reason);
    const queueNode = queueNodeOf(this.stores);
    const isSingle = retry.attempts === 1;
    // With a limit of attempts the call joins the queue first, because an attempt outside the queue is less likely to
    // succeed.
    const waits = !isSingle && (retry.attempts !== Infinity || this.#isContended(call, queueNode));
    if (waits) return this.#wait(call, now());
    const asks = { queueNodeFirst: false, isTurn: false };
    const plan = { left: retry.timeout, queueNode, position: undefined, ...asks, splits: 0 };
    call.attempt = new Attempt(keys, options, plan, this.#context, call);
    // A lock that is not exclusive can have several holders, so later calls need not wait for this call. A call that
    // does not wait asks at once, and leaves the earlier call in front of the later ones.
    if (call.kind.mode === 'exclusive' && !this.#asking.has(call.name)) this.#asking.set(call.name, call);
  }

  /** Aborts when the shutdown of the application begins. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  beginClosing(reason: Error): void {
    // The code that closes the application runs in its own context, and the listeners belong to other calls (S30).
    tellNeutrally(() => this.#closing.abort(reason));
  }

  /**
   * Repeats the releases that no quorum has confirmed and that leave data on the nodes, such as the record of a tick.
   * Takes `limit` milliseconds at most. Never rejects.
   */
  storeReleases(limit: number): Promise<void> {
    return this.#unstored.store(limit);
  }

  /**
   * Releases locks, sends the collected requests, waits for the answers and for the releases of failed attempts, then
   * closes the stores. Takes 5 s at most, whatever a store does. Never rejects.
   */
  async close(locks: readonly HeldLock[] = []): Promise<void> {
    const released = locks.map((lock) => lock.release());
    this.#context.nodes.flush();
    const idle = this.#busy > 0 ? new Promise<void>((resolve) => (this.#idle = resolve)) : undefined;
    await withTimeout(Promise.all([...released, idle]), LAST_REQUESTS_MS).catch(() => undefined);
    this.#context.nodes.isClosed = true;
    await Promise.all([
      ...this.stores.map((store) => this.#closeStore(store)),
      this.settings.thread?.close(),
    ]);
  }

  async #closeStore(store: Store): Promise<void> {
    try {
      await withTimeout(Promise.resolve(askStore((each) => each.close(), store)), STORES_CLOSE_MS);
    } catch (error) {
      this.settings.unclosed?.(store, asError(error));
    }
  }

  #attempted(call: Call, result: AttemptResult<HeldLock>): void {
    const { outcome } = result;
    const isLast = outcome instanceof HeldLock || call.options.retry.attempts === 1 || result.isFinal;
    if (!isLast) {
      this.#endAsking(call);
      const { plan, sent } = call.attempt as Attempt;
      return this.#wait(call, sent, { plan, result, waiter: call.waiter });
    }
    this.#ended(call, result);
    if (outcome instanceof HeldLock) call.resolve(outcome);
    else call.fail(outcome);
  }

  #aborted(call: Call, reason: unknown): void {
    this.#ended(call);
    call.fail(reason);
  }

  /** Ends a call that did not have to wait; the calls that queued behind it continue. */
  #ended(call: Call, result?: AttemptResult<HeldLock>): void {
    this.#endAsking(call);
    const { name, attempt, waiter } = call;
    const queue = this.#queues.get(name);
    if (!waiter || !queue) return;
    if (attempt && result) queue.note(attempt.plan, result);
    queue.leave(waiter);
    this.#endIfEmpty(name, queue);
  }

  #endAsking(call: Call): void {
    if (this.#asking.get(call.name) === call) this.#asking.delete(call.name);
  }

  #isContended({ name, keys }: Call, queueNode: number): boolean {
    if (this.#queues.has(name) || this.#asking.has(name)) return true;
    return this.stores[queueNode]?.contended?.(keys) === true;
  }

  /** @param made - the attempt that the call has already made outside of the queue */
  #wait(call: Call, since: Instant, made?: MadeAttempt<HeldLock>): void {
    const { name, keys, kind, options } = call;
    const { retry, ttl, signals } = options;
    const queue = this.#queues.get(name) ?? this.#newQueue(name, keys, kind);
    const wait: Wait<HeldLock> = {
      signals,
      retry,
      since,
      nodeLimit: nodeTimeLimit(ttl, this.settings.nodeTimeout),
      attempt: (plan, caller) => new Attempt(keys, options, plan, this.#context, caller),
      acquired: (lock) => {
        call.resolve(lock);
        this.#endIfEmpty(name, queue);
      },
      failed: (error) => {
        call.fail(error);
        this.#endIfEmpty(name, queue);
      },
    };
    new WaitingCall(queue, wait, made);
  }

  #newQueue(name: string, keys: readonly string[], kind: LockKind): LocalQueue {
    this.#lastWaiter = momentNumber(this.#lastWaiter);
    const waiter = {
      keys,
      mode: kind.mode,
      process: this.process,
      number: this.#lastWaiter,
      owner: this.settings.owner,
    };
    const queue = new LocalQueue(this.stores, waiter, kind);
    this.#queues.set(name, queue);
    // A call that still makes its first attempt came earlier, so it is first in the queue.
    const asking = this.#asking.get(name);
    if (asking?.attempt) asking.waiter = queue.join(asking.attempt.sent, asking.options.retry);
    return queue;
  }

  #endIfEmpty(name: string, queue: LocalQueue): void {
    // Waiters that end together all call this function. The first call ends the queue.
    if (!queue.isEmpty || this.#queues.get(name) !== queue) return;
    this.#queues.delete(name);
    for (const leaving of queue.end()) {
      const done = this.#context.busy();
      // A store of the application may return no Promise.
      Promise.resolve(leaving).then(done, done);
    }
  }
}

/** Receives the results of first attempts. */
interface FirstAttempts {
  readonly attempted: (call: Call, result: AttemptResult<HeldLock>) => void;
  readonly aborted: (call: Call, reason: unknown) => void;
}

/** One call of {@link Redlock.acquire}, during its first attempt. */
class Call implements AttemptCaller<HeldLock> {
  /** The name of the requested lock, which is the name of its queue. */
  readonly name: string;
  readonly kind: LockKind;
  attempt: Attempt | undefined;
  /** Entry of the call in the queue; set when other calls have queued behind it. */
  waiter: Waiter | undefined;

  constructor(
    readonly keys: readonly string[],
    readonly options: AcquireTerms,
    readonly resolve: (lock: HeldLock) => void,
    private readonly reject: (error: unknown) => void,
    private readonly firstAttempts: FirstAttempts,
  ) {
    this.kind = options.kind ?? EXCLUSIVE;
    this.name = queueName(keys, this.kind);
  }

  attempted(result: AttemptResult<HeldLock>): void {
    this.firstAttempts.attempted(this, result);
  }

  aborted(reason: unknown): void {
    this.firstAttempts.aborted(this, reason);
  }

  fail(error: unknown): void {
    const { keys, options } = this;
    this.reject(options.explain?.(keys, error) ?? error);
  }
}

function queueName(keys: readonly string[], kind: LockKind): string {
  // The names for shared locks and permits begin with `}`, which a key cannot begin with.
  if (keys.length === 1 && kind.mode === 'exclusive') return keys[0] ?? '';
  const asked = `}${kind.mode === 'permits' ? kind.permits : kind.mode}`;
  // The character after the kind distinguishes one key from a list of keys.
  return keys.length === 1 ? `${asked} ${keys[0]}` : asked + JSON.stringify(keys);
}
