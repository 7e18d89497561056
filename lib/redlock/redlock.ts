import { randomBytes } from 'node:crypto';
import { now } from '../core/clock.js';
import { LockHeldError } from '../core/errors.js';
import type { ResolvedRetry } from '../core/lock-options.js';
import type { Store } from '../core/ports.js';
import {
  type AcquireContext,
  Attempt,
  type AttemptPlan,
  type AttemptResult,
  type LockRequest,
} from './acquire.js';
import { HeldLock, type RedlockSettings } from './held-lock.js';
import { Nodes } from './nodes.js';
import type { RestartGuard } from './restart-guard.js';
import { SlotList } from '../core/slot-list.js';
import { nodeTimeLimit } from './validity.js';
import { LocalQueue, queueNodeOf, type Waiter } from './wait/local-queue.js';
import { type MadeAttempt, waitForLock } from './wait/wait-for-lock.js';
import { Watchdog } from './watchdog.js';

/** What is to be locked, and how long to try. */
export interface AcquireOptions extends LockRequest {
  readonly retry: ResolvedRetry;
  /** What the caller is told in place of an error. */
  readonly explain?: (keys: readonly string[], error: unknown) => unknown;
}

/**
 * The Redlock algorithm over any number of independent nodes; on one node it is `SET NX PX` with an owner id. Those who
 * wait stand in line, and are told when it is their turn.
 *
 * @see https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
 */
export class Redlock {
  /** The locks that are held at present. */
  readonly held = new SlotList<'heldSlot', HeldLock>('heldSlot');
  readonly #context: AcquireContext;
  /** Those who wait, by what they wait for. */
  readonly #queues = new Map<string, LocalQueue>();
  /** The attempts of calls that do not wait yet, by what they ask for: of many calls for one lock in a turn, one asks. */
  readonly #asking = new Map<string, Attempt>();
  /** Where such a call stands in line, once others have come behind it. */
  readonly #ahead = new Map<Attempt, Waiter>();
  readonly #process = randomBytes(8).toString('hex');
  #waiters = 0;
  /** What is under way that must have ended before the nodes are closed. */
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
    this.#context = {
      settings,
      nodes: new Nodes(stores),
      watchdog: new Watchdog(settings.nodeTimeout),
      began: (lock) => this.held.add(lock),
      ended: (lock) => this.held.delete(lock),
      busy: () => {
        this.#busy++;
        return done;
      },
    };
  }

  /** How long its nodes must not vote after a restart. */
  get guard(): RestartGuard {
    return this.settings.guard;
  }

  /**
   * Tries until the lock is acquired or the first limit of `retry` is met.
   *
   * The first attempt on a lock that nobody waits for asks the nodes and nothing else; only when it is refused does the call
   * join a queue.
   *
   * @throws LockHeldError or LockUnavailableError, as the last attempt ended, or a signal's reason
   */
  acquire(keys: readonly string[], options: AcquireOptions): Promise<HeldLock> {
    const { retry, ttl, signals } = options;
    this.settings.guard.note(ttl);
    return new Promise((resolve, reject) => {
      const call: Call = { name: queueName(keys), keys, options, resolve, reject };
      for (const { aborted, reason } of signals) if (aborted) return fail(call, reason);
      const isSingle = retry.attempts === 1;
      // With a limit of attempts each of them is to count, and one without a place in line is worth less.
      const waits = !isSingle && (retry.attempts !== Infinity || this.#isContended(call));
      if (waits) return this.#wait(call, undefined);
      const plan = {
        left: retry.timeout,
        queueNode: queueNodeOf(this.stores),
        position: undefined,
        queueNodeFirst: false,
      };
      const attempt = new Attempt(
        keys,
        options,
        plan,
        this.#context,
        (result) => this.#attempted(call, attempt, plan, result),
        (reason) => {
          this.#ended(call, attempt);
          fail(call, reason);
        },
      );
      this.#asking.set(call.name, attempt);
    });
  }

  /** Sends what was asked for, waits for the releases of failed attempts, then ends what was opened for the nodes. */
  async close(): Promise<void> {
    this.#context.nodes.flush();
    if (this.#busy > 0) await new Promise<void>((resolve) => (this.#idle = resolve));
    await Promise.all(this.stores.map((store) => store.close()));
  }

  /** The first attempt of a call has come to an end. */
  #attempted(call: Call, attempt: Attempt, plan: AttemptPlan, result: AttemptResult): void {
    const { outcome } = result;
    const isFinal =
      outcome instanceof HeldLock ||
      call.options.retry.attempts === 1 ||
      (outcome instanceof LockHeldError && outcome.ranTick !== undefined);
    if (!isFinal) {
      this.#asking.delete(call.name);
      const waiter = this.#ahead.get(attempt);
      this.#ahead.delete(attempt);
      return this.#wait(call, { plan, result, since: attempt.sent, waiter });
    }
    this.#ended(call, attempt, plan, result);
    if (outcome instanceof HeldLock) call.resolve(outcome);
    else fail(call, outcome);
  }

  /** A call ends without having waited; those that have come behind it go on. */
  #ended({ name }: Call, attempt: Attempt, plan?: AttemptPlan, result?: AttemptResult): void {
    this.#asking.delete(name);
    if (this.#ahead.size === 0) return;
    const waiter = this.#ahead.get(attempt);
    const queue = this.#queues.get(name);
    this.#ahead.delete(attempt);
    if (!waiter || !queue) return;
    if (plan && result) queue.note(plan, result);
    queue.leave(waiter);
    this.#endIfEmpty(name, queue);
  }

  #isContended({ name, keys }: Call): boolean {
    if (this.#queues.has(name) || this.#asking.has(name)) return true;
    return this.stores[queueNodeOf(this.stores)]?.contended?.(keys) === true;
  }

  #wait(call: Call, made: MadeAttempt | undefined): void {
    this.#waitInLine(call, made).then(call.resolve, (error: unknown) => fail(call, error));
  }

  async #waitInLine({ name, keys, options }: Call, made: MadeAttempt | undefined): Promise<HeldLock> {
    const { retry, ttl, signals } = options;
    const queue = this.#queues.get(name) ?? this.#newQueue(name, keys);
    try {
      return await waitForLock(queue, {
        signals,
        retry,
        nodeLimit: nodeTimeLimit(ttl, this.settings.nodeTimeout),
        since: made?.since ?? now(),
        made,
        attempt: (plan) =>
          new Promise((resolve, reject) => new Attempt(keys, options, plan, this.#context, resolve, reject)),
      });
    } finally {
      this.#endIfEmpty(name, queue);
    }
  }

  #newQueue(name: string, keys: readonly string[]): LocalQueue {
    const waiter = {
      keys,
      mode: 'exclusive' as const,
      process: this.#process,
      number: ++this.#waiters,
      owner: this.settings.owner,
    };
    const queue = new LocalQueue(this.stores, waiter);
    this.#queues.set(name, queue);
    // A call that is asking already came first.
    const attempt = this.#asking.get(name);
    if (attempt) this.#ahead.set(attempt, queue.join(attempt.sent));
    return queue;
  }

  #endIfEmpty(name: string, queue: LocalQueue): void {
    if (!queue.isEmpty) return;
    this.#queues.delete(name);
    for (const leaving of queue.end()) {
      const done = this.#context.busy();
      leaving.then(done, done);
    }
  }
}

/** One call of {@link Redlock.acquire}. */
interface Call {
  /** What it asks for, as a name of its queue. */
  readonly name: string;
  readonly keys: readonly string[];
  readonly options: AcquireOptions;
  readonly resolve: (lock: HeldLock) => void;
  readonly reject: (error: unknown) => void;
}

function fail({ keys, options, reject }: Call, error: unknown): void {
  reject(options.explain?.(keys, error) ?? error);
}

function queueName(keys: readonly string[]): string {
  // No key begins like the other.
  return keys.length === 1 ? (keys[0] ?? '') : `}${JSON.stringify(keys)}`;
}
