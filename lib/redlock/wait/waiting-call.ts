import { elapsedSince, type Instant, now } from '../../core/clock.js';
import { LockHeldError, type LockUnavailableError } from '../../core/errors.js';
import type { ResolvedRetry } from '../../core/lock-options.js';
import type { AcquiredLock, AttemptCaller, AttemptPlan, AttemptResult } from './attempt.js';
import type { LocalQueue, Waiter } from './local-queue.js';
import {
  firstState,
  next,
  type WaitEvent,
  type WaitState,
  type WaitStep,
  type WaitTerms,
} from './wait-machine.js';

/** Largest part of `retry.timeout` that is reserved for the answer to the last attempt, in milliseconds. */
const LAST_ATTEMPT_MS = 50;

/** The attempt that a call made before its wait. */
export interface MadeAttempt<Lock extends AcquiredLock> {
  readonly plan: AttemptPlan;
  readonly result: AttemptResult<Lock>;
  /** The call's entry in the queue, if other calls have already queued behind it. */
  readonly waiter: Waiter | undefined;
}

/** A call that waits, and the functions with which it asks the nodes and ends. */
export interface Wait<Lock extends AcquiredLock> {
  /** Each of these signals ends the wait; the call then fails with the reason of the signal. */
  readonly signals: readonly AbortSignal[];
  readonly retry: ResolvedRetry;
  /** The time limit for the answer of a node, in milliseconds. */
  readonly nodeLimit: number;
  /** The moment of the call. */
  readonly since: Instant;
  /** Makes an attempt, which tells its result to `caller`. */
  readonly attempt: (plan: AttemptPlan, caller: AttemptCaller<Lock>) => void;
  /** The end of a successful wait. */
  readonly acquired: (lock: Lock) => void;
  /**
   * The other end of the wait: with the LockHeldError or LockUnavailableError of the last attempt, or with the reason of
   * a signal.
   */
  readonly failed: (error: unknown) => void;
}

/**
 * One call that waits in the queue until the lock is acquired or a limit of `retry` is reached. First it waits behind
 * the other calls of this process. Then it is the first of the queue, and follows the steps of the wait machine: it
 * asks the nodes, and sleeps, in turn.
 */
export class WaitingCall<Lock extends AcquiredLock> implements AttemptCaller<Lock> {
  readonly #waiter: Waiter;
  readonly #terms: WaitTerms;
  #state: WaitState = firstState(0);
  /** The plan of the last attempt. */
  #plan: AttemptPlan | undefined;
  #lastHeld: LockHeldError | undefined;

  /** @param made - the attempt that the call has already made outside of the queue */
  constructor(
    private readonly queue: LocalQueue,
    private readonly wait: Wait<Lock>,
    made: MadeAttempt<Lock> | undefined,
  ) {
    const { since, retry, nodeLimit } = wait;
    this.#waiter = made?.waiter ?? queue.join(since, retry);
    this.#terms = { ...retry, lastAttempt: Math.min(nodeLimit, LAST_ATTEMPT_MS, retry.timeout / 10) };
    this.#plan = made?.plan;
    if (queue.first !== this.#waiter) this.#waitBehind();
    else if (made) {
      this.#lastHeld = queue.lastHeld();
      this.attempted(made.result);
    } else this.#begin(0);
  }

  /** Waits behind other calls of this process, which ask the nodes for it. */
  #waitBehind(): void {
    const { timeout, attempts, delay, jitter } = this.wait.retry;
    // The usual time between two attempts of the first call in the queue. A call behind it asks no node, but each such
    // period of its wait counts as one of its attempts.
    const perAttempt = delay + jitter / 2;
    const patience = (attempts - 1) * perAttempt;
    // A slow first attempt has already used a part of the time.
    const left = Math.min(timeout, patience) - elapsedSince(this.#waiter.since);
    this.#sleep(left, () => {
      // This call has reached a limit of `retry` before it is the first: it fails with the error of the earlier calls.
      if (this.queue.first !== this.#waiter)
        throw this.queue.refusal().afterTrying(patience < timeout ? { attempts } : { timeout });
      const waited = elapsedSince(this.#waiter.since);
      this.#begin(Math.min(attempts - 1, Math.floor(waited / perAttempt)));
    });
  }

  /**
   * Begins to ask, as the first call of the queue.
   *
   * @param attempts - the number of attempts for which the wait behind other calls counts
   */
  #begin(attempts: number): void {
    this.#attempting(() => {
      this.#state = firstState(attempts);
      this.#lastHeld = this.queue.lastHeld();
      const freeIn = this.queue.takeOver();
      this.#follow(this.#next({ kind: 'first', freeIn, timeLeft: this.#timeLeft, random: Math.random() }));
    });
  }

  #follow(step: WaitStep): void {
    for (const signal of this.wait.signals) signal.throwIfAborted();
    if (step.kind === 'sleep') return this.#sleepFor(step.ms);
    const asksAll = step.kind === 'ask' && step.asksAll;
    this.#plan = this.queue.plan(this.#waiter, this.#timeLeft, this.#state.isRefused, asksAll);
    this.wait.attempt(this.#plan, this);
  }

  #sleepFor(ms: number): void {
    const began = now();
    this.#sleep(ms, () => {
      const waiter = this.#waiter;
      const unslept = waiter.isHurried ? Math.max(0, 1 - elapsedSince(began) / ms) : 0;
      waiter.isHurried = false;
      this.#follow(this.#next({ kind: 'woken', unslept, timeLeft: this.#timeLeft }));
    });
  }

  attempted(result: AttemptResult<Lock>): void {
    const { outcome } = result;
    if (outcome instanceof Error) {
      this.#attempting(() => {
        this.queue.note(this.#plan as AttemptPlan, result);
        this.#follow(this.#refused(result, outcome));
      });
      return;
    }
    // The caller gets its lock even if a store of the application throws here.
    try {
      this.queue.note(this.#plan as AttemptPlan, result);
    } finally {
      this.queue.leave(this.#waiter);
      this.wait.acquired(outcome);
    }
  }

  aborted(reason: unknown): void {
    this.#fail(reason);
  }

  /** @throws the error of the attempt, when a limit is reached */
  #refused(
    { split, atQueueNode, cutShort, isFinal, isRuledOut }: AttemptResult<Lock>,
    outcome: LockHeldError | LockUnavailableError,
  ): WaitStep {
    if (isFinal) throw outcome;
    const { queue } = this;
    const isHeld = outcome instanceof LockHeldError;
    const random = Math.random();
    // The attempt had less time than the time limit of a node, so a missing answer does not show that the node is down.
    const isUnclear = !isHeld && cutShort && !isRuledOut;
    const reported = isUnclear ? (this.#lastHeld ?? outcome) : outcome;
    this.#lastHeld = reported instanceof LockHeldError ? reported : undefined;
    const step = this.#next({
      kind: 'refused',
      isHeld,
      freeIn: isHeld ? freeInAfter(outcome, split) : Infinity,
      splits: split ? (this.#plan?.splits ?? 0) : undefined,
      atQueueNode,
      queueNodeFirst: this.#plan?.queueNodeFirst === true,
      isQueued: queue.isQueued(),
      holdsBack: queue.holdsBack,
      askAgainWithin: queue.askAgainWithin(random),
      canQueue: isHeld && atQueueNode !== 'granted' && queue.canQueue(),
      timeLeft: this.#timeLeft,
      random,
    });
    if (step.kind === 'give up') throw reported.afterTrying(step.limit);
    return step;
  }

  #next(event: WaitEvent): WaitStep {
    const [after, step] = next(this.#state, event, this.#terms);
    this.#state = after;
    return step;
  }

  get #timeLeft(): number {
    return this.wait.retry.timeout - elapsedSince(this.#waiter.since);
  }

  #sleep(ms: number, woken: () => void): void {
    this.#waiter.sleep.for(ms, this.wait.signals).then(
      () => this.#attempting(woken),
      (reason: unknown) => this.#fail(reason),
    );
  }

  /** Runs a part of the wait. An error, such as one that a store of the application throws, ends the wait. */
  #attempting(part: () => void): void {
    try {
      part();
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error: unknown): void {
    this.queue.leave(this.#waiter);
    this.wait.failed(error);
  }
}

/**
 * Milliseconds until another attempt may succeed. If no quorum names one holder, that is the end of the first of them. The
 * queue node may name a lease that holds no lock, and the nodes that have not answered the holder that ends first.
 */
function freeInAfter({ retryAfter, holders }: LockHeldError, split: boolean): number {
  return split ? Math.min(retryAfter, ...holders.map(({ remaining }) => remaining)) : retryAfter;
}
