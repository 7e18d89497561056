import { elapsedSince, type Instant } from '../../core/clock.js';
import { LockHeldError, LockUnavailableError, NoTimeError } from '../../core/errors.js';
import type { ResolvedRetry } from '../../core/lock-options.js';
import type { AttemptPlan, AttemptResult } from '../acquire.js';
import { HeldLock } from '../held-lock.js';
import { quorumOf } from '../quorum.js';
import type { LocalQueue, Waiter } from './local-queue.js';
import { firstState, next, type WaitEvent, type WaitStep, type WaitTerms } from './wait-machine.js';

/** The most that is kept of a `retry.timeout` for its last attempt to be answered in, in milliseconds. */
const LAST_ATTEMPT_MS = 50;

/** An attempt that a call made before it had to wait. */
export interface MadeAttempt {
  readonly plan: AttemptPlan;
  readonly result: AttemptResult;
  /** When it began. */
  readonly since: Instant;
  /** Where the call stands in line already, as others have come behind it. */
  readonly waiter: Waiter | undefined;
}

/** One call that waits, and how it asks the nodes. */
export interface Wait {
  /** Any of them ends the wait with its reason. */
  readonly signals: readonly AbortSignal[];
  readonly retry: ResolvedRetry;
  /** How long one node may take to answer, in milliseconds. */
  readonly nodeLimit: number;
  /** When the call was made. */
  readonly since: Instant;
  readonly made: MadeAttempt | undefined;
  readonly attempt: (plan: AttemptPlan) => Promise<AttemptResult>;
}

/**
 * Waits in line until the lock is acquired or a limit of `retry` is met.
 *
 * @throws LockHeldError or LockUnavailableError, as the last attempt ended, or a signal's reason
 */
export async function waitForLock(queue: LocalQueue, wait: Wait): Promise<HeldLock> {
  const waiter = wait.made?.waiter ?? queue.join(wait.since);
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
 * @returns how many attempts that wait counts for
 * @throws what the calls in front met when a limit of `retry` is met first
 */
async function untilFirst(queue: LocalQueue, waiter: Waiter, { retry, signals }: Wait): Promise<number> {
  const { timeout, attempts, delay, jitter } = retry;
  // Each pause between two attempts that it would make if it were alone counts for one, without asking anybody.
  const perAttempt = delay + jitter / 2;
  const patience = (attempts - 1) * perAttempt;
  await waiter.sleep.for(Math.min(timeout, patience), signals);
  const waited = elapsedSince(waiter.since);
  if (queue.first === waiter) return Math.min(attempts - 1, Math.floor(waited / perAttempt));
  throw queue.refusal().afterTrying(patience < timeout ? { attempts } : { timeout });
}

/** Does what the machine says, as the first in line, until the lock is acquired or a limit is met. */
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
  /** @throws what the attempt came to, when a limit is met */
  const refused = (plan: AttemptPlan, result: AttemptResult): WaitStep => {
    queue.note(plan, result);
    const { split, atQueueNode, cutShort } = result;
    const outcome = result.outcome as LockHeldError | LockUnavailableError;
    if (outcome instanceof LockHeldError && outcome.ranTick !== undefined) throw outcome;
    const isHeld = outcome instanceof LockHeldError;
    // An attempt that had less time than a node may take says nothing about nodes that were silent.
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
      canQueue: isHeld && atQueueNode !== 'granted' && queue.canQueue(),
      timeLeft: timeLeft(),
      random: Math.random(),
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
      await waiter.sleep.for(step.ms, signals);
      step = stepAfter({ kind: 'woken', timeLeft: timeLeft() });
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

/** Whether so many nodes answered with errors that there could be no quorum, however long one waits for the others. */
function isRuledOut({ votes }: LockUnavailableError): boolean {
  const errors = votes.filter(({ error }) => error && !(error instanceof NoTimeError)).length;
  return votes.length - errors < quorumOf(votes.length);
}
