import type { RetryLimit } from '../../core/errors.js';

/** What limits a wait. */
export interface WaitTerms {
  /** As in `retry`; `Infinity` for no limit. */
  readonly timeout: number;
  readonly attempts: number;
  readonly delay: number;
  readonly jitter: number;
  /** Milliseconds that are kept of the timeout for the last attempt to be answered in. */
  readonly lastAttempt: number;
}

/** Where the first in line stands. */
export interface WaitState {
  /**
   * How many attempts were made, those included that a wait behind others counts for. One that comes sooner than `delay` asks
   * for, since others are held back, counts for a part.
   */
  readonly attempts: number;
  /** The nodes have refused, so that a queue at one of them makes sense. */
  readonly isRefused: boolean;
  /** The next attempt asks all nodes, also where one would do. */
  readonly asksAll: boolean;
}

/** What has happened. */
export type WaitEvent =
  | {
      /** It has become the first in line. */
      readonly kind: 'first';
      /** Milliseconds until the lock can be free, if it is known that the queue node holds its place already. */
      readonly freeIn: number | undefined;
      readonly timeLeft: number;
      /** Between 0 and 1, here and below. */
      readonly random: number;
    }
  | { /** A sleep is over, or was cut short. */ readonly kind: 'woken'; readonly timeLeft: number }
  | {
      /** An attempt did not get the lock. */
      readonly kind: 'refused';
      readonly isHeld: boolean;
      /** Milliseconds until the lock can be free; `Infinity` when that is not known. */
      readonly freeIn: number;
      readonly split: boolean;
      readonly atQueueNode: 'granted' | 'refused' | 'failed' | 'pending';
      /** The queue node alone was asked first. */
      readonly queueNodeFirst: boolean;
      /** A message will come when the lock is free. */
      readonly isQueued: boolean;
      /** Others are held back for it, which lapses unless it asks again (S22). */
      readonly holdsBack: boolean;
      /** Asking again at once would put it in line. */
      readonly canQueue: boolean;
      readonly timeLeft: number;
      readonly random: number;
    };

/** What to do next. */
export type WaitStep =
  | { readonly kind: 'ask'; readonly asksAll: boolean }
  | { readonly kind: 'sleep'; readonly ms: number }
  | {
      readonly kind: 'give up';
      readonly limit: RetryLimit;
    };

/**
 * The longest that a waiter sleeps which stands in line and will be told when it can try, in milliseconds. Messages can
 * get lost; asking is what counts.
 */
const LONGEST_SLEEP_MS = 5_000;

/** The longest that one sleeps for whom others are held back, in milliseconds: half of what that lasts (S22). */
const LONGEST_WHILE_HOLDING_BACK_MS = 1_000;

/** What parts of attempts may come to less than a whole one by. */
const ROUNDING = 1e-6;

/** How soon to try again when votes were split, in milliseconds. */
const SPLIT_VOTE_MS = 10;

export function firstState(attempts: number): WaitState {
  return { attempts, isRefused: false, asksAll: false };
}

/** What the first in line does next. Pure: time and chance come with the event. */
export function next(state: WaitState, event: WaitEvent, terms: WaitTerms): readonly [WaitState, WaitStep] {
  const budget = event.timeLeft - terms.lastAttempt;
  switch (event.kind) {
    case 'first': {
      if (event.freeIn === undefined) return ask(state, event.timeLeft, terms);
      const sleep = Math.min(event.freeIn + event.random * terms.jitter, LONGEST_SLEEP_MS, budget);
      return [
        { ...state, isRefused: true },
        { kind: 'sleep', ms: sleep },
      ];
    }
    case 'woken':
      return ask(state, event.timeLeft, terms);
    case 'refused': {
      const { isHeld, queueNodeFirst, atQueueNode, canQueue } = event;
      // The queue node is not fit to vote: the others decide at once.
      const asksAll = !isHeld && queueNodeFirst;
      const after = { ...state, isRefused: true, asksAll };
      const attempts = state.attempts + 1;
      const { timeout, attempts: most } = terms;
      if (attempts > most - ROUNDING) return [after, { kind: 'give up', limit: { attempts: most } }];
      if (budget <= 0) return [after, { kind: 'give up', limit: { timeout } }];
      // Or it refused without putting us in line, and now it can.
      if (asksAll || (isHeld && atQueueNode !== 'granted' && canQueue))
        return ask(after, event.timeLeft, terms);
      const sleep = sleepAfter(event, terms);
      // Whether or not a message will come: where the queue node granted, and others hold the lock elsewhere, none does.
      const ms = event.holdsBack ? Math.min(sleep, LONGEST_WHILE_HOLDING_BACK_MS) : sleep;
      return [
        { ...after, attempts: ms < sleep ? state.attempts + ms / sleep : attempts },
        { kind: 'sleep', ms: Math.min(ms, budget) },
      ];
    }
  }
}

function ask(state: WaitState, timeLeft: number, { lastAttempt }: WaitTerms): readonly [WaitState, WaitStep] {
  // The last attempt asks all nodes: it shall know who holds the lock and how many answer.
  return [state, { kind: 'ask', asksAll: state.asksAll || timeLeft <= lastAttempt * 1.5 }];
}

function sleepAfter(
  { isHeld, freeIn, split, isQueued, random }: Extract<WaitEvent, { kind: 'refused' }>,
  { attempts, delay, jitter }: WaitTerms,
): number {
  const isTold = attempts === Infinity && isQueued;
  const longest = isTold ? LONGEST_SLEEP_MS : split && isHeld ? SPLIT_VOTE_MS : delay;
  return Math.min(longest, isHeld ? freeIn : Infinity) + random * jitter;
}
