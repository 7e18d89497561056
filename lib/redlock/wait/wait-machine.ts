import type { RetryLimit } from '../../core/errors.js';
import { growingPause } from './growing-pause.js';

/** The limits of a wait. */
export interface WaitTerms {
  /** Milliseconds, as in `retry`; `Infinity` for no limit. */
  readonly timeout: number;
  readonly attempts: number;
  readonly delay: number;
  readonly jitter: number;
  /** Milliseconds of the timeout that are reserved for the answer to the last attempt. */
  readonly lastAttempt: number;
}

/** The state of the first waiter. */
export interface WaitState {
  /**
   * The number of attempts so far. While a call waits behind other calls of this process, each full period of `delay` +
   * `jitter` / 2 counts as one attempt, at most `retry.attempts` - 1. An attempt after less than `delay` counts as a
   * fraction of an attempt. That happens while nodes refuse other callers in favour of this waiter, and when it asks on
   * behalf of a call behind it that has a shorter `delay`.
   */
  readonly attempts: number;
  /** The attempts that the present sleep counts for. */
  readonly sleepsFor: number;
  /** `true` if the nodes have refused, so that joining a queue makes sense. */
  readonly isRefused: boolean;
  /** `true` if the next attempt asks all nodes, even if one would be enough. */
  readonly asksAll: boolean;
}

/** An event for a waiter. */
export type WaitEvent =
  | {
      /** The waiter has become the first of the queue. */
      readonly kind: 'first';
      /** Milliseconds until the lock can be free, if the queue node is known to have the waiter in its queue. */
      readonly freeIn: number | undefined;
      readonly timeLeft: number;
      /** A random number from 0 to 1, here and in the other events. */
      readonly random: number;
    }
  | {
      /** A sleep has ended. */
      readonly kind: 'woken';
      /**
       * The part of the sleep that was left, from 0 to 1, when a call behind this one has shortened the sleep: that part
       * does not count as an attempt of this call.
       */
      readonly unslept: number;
      readonly timeLeft: number;
    }
  | {
      /** An attempt did not get the lock. */
      readonly kind: 'refused';
      readonly isHeld: boolean;
      /** Milliseconds until the lock can be free; `Infinity` if unknown. */
      readonly freeIn: number;
      /** The number of split votes before; `undefined` if this one was not split. */
      readonly splits: number | undefined;
      readonly atQueueNode: 'granted' | 'refused' | 'failed' | 'pending';
      /** `true` if the attempt asked only the queue node at first. */
      readonly queueNodeFirst: boolean;
      /** `true` if the waiter will get a message when the lock is free. */
      readonly isQueued: boolean;
      /**
       * `true` if the nodes refuse other callers in favour of this waiter. The nodes stop that when the waiter does not
       * ask again (S22).
       */
      readonly holdsBack: boolean;
      /** Milliseconds after which a call behind this one would ask; `Infinity` if there is none, or if messages come. */
      readonly askAgainWithin: number;
      /** `true` if another request now would add the waiter to the queue. */
      readonly canQueue: boolean;
      readonly timeLeft: number;
      readonly random: number;
    };

/** The next step of a waiter. */
export type WaitStep =
  | { readonly kind: 'ask'; readonly asksAll: boolean }
  | { readonly kind: 'sleep'; readonly ms: number }
  | {
      readonly kind: 'give up';
      readonly limit: RetryLimit;
    };

/**
 * The longest sleep of a waiter in the queue, in milliseconds. The waiter gets a message when it can try, but messages
 * can get lost, so the waiter also asks from time to time.
 */
const LONGEST_SLEEP_MS = 5_000;

/**
 * The longest sleep of a waiter in whose favour nodes refuse other callers, in milliseconds: half the time after which
 * the nodes stop that if the waiter does not ask again (S22).
 */
const LONGEST_WHILE_HOLDING_BACK_MS = 1_000;

/** Tolerance for the rounding error of a sum of fractional attempts. */
const ROUNDING = 1e-6;

/** Milliseconds until the next attempt after the first split vote. */
const SPLIT_VOTE_MS = 10;

export function firstState(attempts: number): WaitState {
  return { attempts, sleepsFor: 0, isRefused: false, asksAll: false };
}

/** Computes the next step of the first waiter. A pure function: the event contains the time and a random number. */
export function next(state: WaitState, event: WaitEvent, terms: WaitTerms): readonly [WaitState, WaitStep] {
  const budget = event.timeLeft - terms.lastAttempt;
  switch (event.kind) {
    case 'first': {
      if (event.freeIn === undefined) return ask(state, event.timeLeft, terms);
      // A call with a limit of attempts gives up after so many delays, also while its process is in the queue.
      const longest = terms.attempts === Infinity ? LONGEST_SLEEP_MS : terms.delay;
      const sleep = Math.min(event.freeIn + event.random * terms.jitter, longest, budget);
      return [
        { ...state, isRefused: true },
        { kind: 'sleep', ms: sleep },
      ];
    }
    case 'woken': {
      const attempts = state.attempts - event.unslept * state.sleepsFor;
      return ask({ ...state, attempts, sleepsFor: 0 }, event.timeLeft, terms);
    }
    case 'refused': {
      const { isHeld, queueNodeFirst, atQueueNode, canQueue } = event;
      // The queue node gave no vote: ask all nodes immediately.
      const asksAll = !isHeld && queueNodeFirst;
      const after = { ...state, isRefused: true, asksAll };
      const attempts = state.attempts + 1;
      const { timeout, attempts: most } = terms;
      if (attempts > most - ROUNDING) return [after, { kind: 'give up', limit: { attempts: most } }];
      if (budget <= 0) return [after, { kind: 'give up', limit: { timeout } }];
      // The second part of the condition is for a refused attempt that did not add the waiter to the queue, if another
      // request would add the waiter now.
      if (asksAll || (isHeld && atQueueNode !== 'granted' && canQueue))
        return ask(after, event.timeLeft, terms);
      const sleep = sleepAfter(event, terms);
      // The limit applies also to a waiter that gets no message: the queue node sends none when it granted the lock and
      // others hold the lock on other nodes.
      const longest = event.holdsBack ? LONGEST_WHILE_HOLDING_BACK_MS : Infinity;
      const ms = Math.min(sleep, longest, event.askAgainWithin);
      const sleepsFor = ms < sleep ? ms / sleep : 1;
      return [
        { ...after, attempts: state.attempts + sleepsFor, sleepsFor },
        { kind: 'sleep', ms: Math.min(ms, budget) },
      ];
    }
  }
}

function ask(state: WaitState, timeLeft: number, { lastAttempt }: WaitTerms): readonly [WaitState, WaitStep] {
  // The last attempt asks all nodes, so that its error names the holder and the nodes that answered.
  return [state, { kind: 'ask', asksAll: state.asksAll || timeLeft <= lastAttempt * 1.5 }];
}

function sleepAfter(
  { isHeld, freeIn, splits, isQueued, random }: Extract<WaitEvent, { kind: 'refused' }>,
  { attempts, delay, jitter }: WaitTerms,
): number {
  const isTold = attempts === Infinity && isQueued;
  const isSplit = splits !== undefined && isHeld;
  const longest = isTold ? LONGEST_SLEEP_MS : isSplit ? growingPause(SPLIT_VOTE_MS, splits, delay) : delay;
  return Math.min(longest, isHeld ? freeIn : Infinity) + random * jitter;
}
