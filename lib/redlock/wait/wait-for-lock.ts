import { elapsedSince, type Instant, now } from '../../core/clock.js';
import { ForeignValueError, LockHeldError, LockUnavailableError, NoTimeError } from '../../core/errors.js';
import type { ResolvedRetry } from '../../core/lock-options.js';
import type { AttemptPlan, AttemptResult } from '../acquire.js';
import { HeldLock } from '../held-lock.js';
import { quorumOf } from '../quorum.js';
import type { LocalQueue, Waiter } from './local-queue.js';
import { firstState, next, type WaitEvent, type WaitStep, type WaitTerms } from './wait-machine.js';

/** Largest part of `retry.timeout` that is reserved for the answer to the last attempt, in milliseconds. */
const LAST_ATTEMPT_MS = 50;

/** The attempt that a call made before its wait. */
export interface MadeAttempt {
  readonly plan: AttemptPlan;
  readonly result: AttemptResult;
  /** The moment at which the attempt began. */
  readonly since: Instant;
  /** The call's entry in the queue, if other calls have already queued behind it. */
  readonly waiter: Waiter | undefined;
}

/** A waiting call, and the function with which it asks the nodes. */
export interface Wait {
  /** Each of these signals ends the wait; the call then rejects with the reason of the signal. */
  readonly signals: readonly AbortSignal[];
  readonly retry: ResolvedRetry;
  /** The time limit for the answer of a node, in milliseconds. */
  readonly nodeLimit: number;
  /** The moment of the call. */
  readonly since: Instant;
  readonly made: MadeAttempt | undefined;
  readonly attempt: (plan: AttemptPlan) => Promise<AttemptResult>;
}

/**
 * Waits in the queue until the lock is acquired or a limit of `retry` is reached.
 *
 * @throws LockHeldError or LockUnavailableError of the last attempt, or a signal's reason
 */
export async function waitForLock(queue: LocalQueue, wait: Wait): Promise<HeldLock> {
  const waiter = wait.made?.waiter ?? queue.join(wait.since, wait.retry);
  try {
    if (queue.first === waiter) return await insist(queue, waiter, wait, 0);
    return await insist(queue, waiter, { ...wait, made: undefined }, await untilFirst(queue, waiter, wait));
  } finally {
    queue.leave(waiter);
  }
}

/**
 * Waits behind other calls of this process.
 *
 * @returns the number of attempts for which this wait counts
 * @throws the error of the earlier calls, when this call reaches a limit of `retry` before it is the first
 */
async function untilFirst(queue: LocalQueue, waiter: Waiter, { retry, signals }: Wait): Promise<number> {
  const { timeout, attempts, delay, jitter } = retry;
  // The usual time between two attempts of the first call in the queue. A call behind it asks no node, but each such
  // period of its wait counts as one of its attempts.
  const perAttempt = delay + jitter / 2;
  const patience = (attempts - 1) * perAttempt;
  // A slow first attempt has already used a part of the time.
  await waiter.sleep.for(Math.min(timeout, patience) - elapsedSince(waiter.since), signals);
  const waited = elapsedSince(waiter.since);
  if (queue.first === waiter) return Math.min(attempts - 1, Math.floor(waited / perAttempt));
  throw queue.refusal().afterTrying(patience < timeout ? { attempts } : { timeout });
}

/** Follows the steps of the wait machine for the first waiter, until the lock is acquired or a limit is reached. */
async function insist(
  queue: LocalQueue,
  waiter: Waiter,
  { signals, retry, nodeLimit, attempt, made }: Wait,
  attempts: number,
): Promise<HeldLock> {
  const terms: WaitTerms = {
    ...retry,
    lastAttempt: Math.min(nodeLimit, LAST_ATTEMPT_MS, retry.timeout / 10),
  };
  const timeLeft = (): number => retry.timeout - elapsedSince(waiter.since);
  let state = firstState(attempts);
  let lastHeld = queue.lastHeld();
  const stepAfter = (event: WaitEvent): WaitStep => {
    const [after, step] = next(state, event, terms);
    state = after;
    return step;
  };
  /** @throws the error of the attempt, when a limit is reached */
  const refused = (plan: AttemptPlan, result: AttemptResult): WaitStep => {
    queue.note(plan, result);
    const { split, atQueueNode, cutShort } = result;
    const outcome = result.outcome as LockHeldError | LockUnavailableError;
    if (isFinal(outcome)) throw outcome;
    const isHeld = outcome instanceof LockHeldError;
    const random = Math.random();
    // The attempt had less time than the time limit of a node, so a missing answer does not show that the node is down.
    const isUnclear = !isHeld && cutShort && !isRuledOut(outcome);
    const reported = isUnclear ? (lastHeld ?? outcome) : outcome;
    lastHeld = reported instanceof LockHeldError ? reported : undefined;
    const step = stepAfter({
      kind: 'refused',
      isHeld,
      freeIn: isHeld ? outcome.retryAfter : Infinity,
      split,
      atQueueNode,
      queueNodeFirst: plan.queueNodeFirst,
      isQueued: queue.isQueued(),
      holdsBack: queue.holdsBack,
      askAgainWithin: queue.askAgainWithin(random),
      canQueue: isHeld && atQueueNode !== 'granted' && queue.canQueue(),
      timeLeft: timeLeft(),
      random,
    });
    if (step.kind === 'give up') throw reported.afterTrying(step.limit);
    return step;
  };

  let step = made
    ? refused(made.plan, made.result)
    : stepAfter({ kind: 'first', freeIn: queue.takeOver(), timeLeft: timeLeft(), random: Math.random() });
  for (;;) {
    for (const signal of signals) signal.throwIfAborted();
    if (step.kind === 'sleep') {
      const began = now();
      await waiter.sleep.for(step.ms, signals);
      const unslept = waiter.isHurried ? Math.max(0, 1 - elapsedSince(began) / step.ms) : 0;
      waiter.isHurried = false;
      step = stepAfter({ kind: 'woken', unslept, timeLeft: timeLeft() });
      continue;
    }
    const asksAll = step.kind === 'ask' && step.asksAll;
    const plan = queue.plan(waiter, timeLeft(), state.isRefused, asksAll);
    const result = await attempt(plan);
    if (result.outcome instanceof HeldLock) {
      queue.note(plan, result);
      return result.outcome;
    }
    step = refused(plan, result);
  }
}

/**
 * `true` if another attempt would be useless: the tick has already run, or so many nodes have the value of another
 * program under the key that the other nodes are too few for a quorum.
 */
export function isFinal(outcome: LockHeldError | LockUnavailableError): boolean {
  if (outcome instanceof LockHeldError) return outcome.ranTick !== undefined;
  const { votes } = outcome;
  const usable = votes.filter(({ error }) => !(error instanceof ForeignValueError)).length;
  return votes.length > 0 && usable < quorumOf(votes.length);
}

/**
 * `true` if so many nodes answered with errors that the other nodes are too few for a quorum. More time for the other
 * nodes is then useless.
 */
function isRuledOut({ votes }: LockUnavailableError): boolean {
  const errors = votes.filter(({ error }) => error && !(error instanceof NoTimeError)).length;
  return votes.length - errors < quorumOf(votes.length);
}
