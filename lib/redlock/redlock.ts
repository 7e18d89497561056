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
      for (const { aborted, reason } of signals) if (aborted) return reject(reason as Error);
      const isSingle = retry.attempts === 1;
      const name = queueName(keys);
      // With a limit of attempts each of them is to count, and one without a place in line is worth less.
      const waits = !isSingle && (retry.attempts !== Infinity || this.#isContended(name, keys));
      if (waits) return resolve(this.#wait(name, keys, options, undefined));
      const plan = {
        left: retry.timeout,
        queueNode: queueNodeOf(this.stores),
        position: undefined,
        queueNodeFirst: false,
      };
      const ended = (): Waiter | undefined => {
        this.#asking.delete(name);
        const waiter = this.#ahead.get(attempt);
        this.#ahead.delete(attempt);
        return waiter;
      };
      const done = (result: AttemptResult): void => {
        const waiter = ended();
        const { outcome } = result;
        const isFinal = isSingle || (outcome instanceof LockHeldError && outcome.ranTick !== undefined);
        if (!(outcome instanceof HeldLock) && !isFinal) {
          const made = { plan, result, since: attempt.sent, waiter };
          return resolve(this.#wait(name, keys, options, made));
        }
        if (waiter) this.#leave(name, waiter, plan, result);
        if (outcome instanceof HeldLock) resolve(outcome);
        else reject(outcome);
      };
      const aborted = (reason: unknown): void => {
        const waiter = ended();
        if (waiter) this.#leave(name, waiter);
        reject(reason as Error);
      };
      const attempt = new Attempt(keys, options, plan, this.#context, done, aborted);
      this.#asking.set(name, attempt);
    });
  }

  /** Sends what was asked for, waits for the releases of failed attempts, then ends what was opened for the nodes. */
  async close(): Promise<void> {
    this.#context.nodes.flush();
    if (this.#busy > 0) await new Promise<void>((resolve) => (this.#idle = resolve));
    await Promise.all(this.stores.map((store) => store.close()));
  }

  #isContended(name: string, keys: readonly string[]): boolean {
    if (this.#queues.has(name) || this.#asking.has(name)) return true;
    return this.stores[queueNodeOf(this.stores)]?.contended?.(keys) === true;
  }

  async #wait(
    name: string,
    keys: readonly string[],
    options: AcquireOptions,
    made: MadeAttempt | undefined,
  ): Promise<HeldLock> {
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
    const waiter = { keys, process: this.#process, number: ++this.#waiters, owner: this.settings.owner };
    const queue = new LocalQueue(this.stores, waiter);
    this.#queues.set(name, queue);
    // A call that is asking already came first.
    const attempt = this.#asking.get(name);
    if (attempt) this.#ahead.set(attempt, queue.join(attempt.sent));
    return queue;
  }

  /** A call that others have come behind ends without having waited. */
  #leave(name: string, waiter: Waiter, plan?: AttemptPlan, result?: AttemptResult): void {
    const queue = this.#queues.get(name);
    if (!queue) return;
    if (plan && result) queue.note(plan, result);
    queue.leave(waiter);
    this.#endIfEmpty(name, queue);
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

function queueName(keys: readonly string[]): string {
  // No key begins like the other.
  return keys.length === 1 ? (keys[0] ?? '') : `}${JSON.stringify(keys)}`;
}
