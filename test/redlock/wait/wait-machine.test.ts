import { describe, expect, test } from '@jest/globals';
import {
  firstState,
  next,
  type WaitEvent,
  type WaitState,
  type WaitStep,
  type WaitTerms,
} from '../../../lib/redlock/wait/wait-machine.js';

const TERMS: WaitTerms = { timeout: 4_000, attempts: Infinity, delay: 200, jitter: 100, lastAttempt: 50 };

type Refused = Extract<WaitEvent, { kind: 'refused' }>;

/** The refusal of a waiter in the queue. The lock of the holder can end in 30 s. */
const HELD: Refused = {
  kind: 'refused',
  isHeld: true,
  freeIn: 30_000,
  splits: undefined,
  atQueueNode: 'refused',
  queueNodeFirst: true,
  isQueued: true,
  holdsBack: false,
  askAgainWithin: Infinity,
  canQueue: false,
  timeLeft: 60_000,
  random: 0.5,
};
const NO_VOTE: Partial<Refused> = { isHeld: false, freeIn: Infinity, isQueued: false };

function step(event: WaitEvent, terms: Partial<WaitTerms> = {}, state: Partial<WaitState> = {}): WaitStep {
  return next({ ...firstState(0), ...state }, event, { ...TERMS, ...terms })[1];
}

const ask = (asksAll: boolean): WaitStep => ({ kind: 'ask', asksAll });
const sleep = (ms: number): WaitStep => ({ kind: 'sleep', ms });

describe('the first waiter of a process', () => {
  test.each<[string, WaitEvent, WaitStep]>([
    [
      'asks the nodes without delay',
      { kind: 'first', freeIn: undefined, timeLeft: 4_000, random: 0.5 },
      ask(false),
    ],
    [
      'sleeps until the lock can lapse when the queue node already has the waiter in its queue',
      { kind: 'first', freeIn: 300, timeLeft: 4_000, random: 0.5 },
      sleep(350),
    ],
    [
      'sleeps no longer than five seconds, because messages can get lost',
      { kind: 'first', freeIn: 60_000, timeLeft: 90_000, random: 0.5 },
      sleep(5_000),
    ],
    [
      'wakes early enough for a last attempt before its timeout',
      { kind: 'first', freeIn: 60_000, timeLeft: 1_000, random: 0.5 },
      sleep(950),
    ],
    ['asks the nodes when it wakes', { kind: 'woken', unslept: 0, timeLeft: 1_000 }, ask(false)],
    ['asks all nodes in its last attempt', { kind: 'woken', unslept: 0, timeLeft: 75 }, ask(true)],
  ])('the first waiter of a process %s', (_what, event, expected) => {
    expect(step(event)).toEqual(expected);
  });

  // The simulator found a call with two attempts that waited for five seconds (seed 60016, `late-call`).
  test('the first waiter of a process sleeps for one delay when it has a limit of attempts, even in the queue (S8)', () => {
    const event: WaitEvent = { kind: 'first', freeIn: 60_000, timeLeft: Infinity, random: 0.5 };
    expect(step(event, { attempts: 2, timeout: Infinity })).toEqual(sleep(200));
  });
});

describe('a refused caller', () => {
  test.each<[string, Partial<Refused>, Partial<WaitTerms>, WaitStep]>([
    ['sleeps five seconds when a message will tell that the lock is free', {}, {}, sleep(5_050)],
    ['sleeps until the lock can lapse, if that is within five seconds', { freeIn: 700 }, {}, sleep(750)],
    [
      'asks again after a second while nodes refuse other callers in its favour',
      { holdsBack: true, freeIn: 60_000 },
      {},
      sleep(1_000),
    ],
    [
      'asks again after a second while nodes refuse other callers in its favour, also outside the queue',
      { holdsBack: true, isQueued: false, atQueueNode: 'granted' },
      { delay: 20_000 },
      sleep(1_000),
    ],
    [
      'polls after its delay, if that is less than a second, while nodes refuse other callers in its favour',
      { holdsBack: true, isQueued: false, atQueueNode: 'granted' },
      {},
      sleep(250),
    ],
    [
      'asks again after a second while nodes refuse other callers in its favour, also with a limit of attempts',
      { holdsBack: true },
      { attempts: 5, delay: 20_000 },
      sleep(1_000),
    ],
    [
      'asks again after a second while nodes refuse other callers in its favour, also with a longer jitter',
      { holdsBack: true, isQueued: false },
      { delay: 200, jitter: 60_000 },
      sleep(1_000),
    ],
    ['polls when no message will tell that the lock is free', { isQueued: false }, {}, sleep(250)],
    ['polls when the number of its attempts is limited', {}, { attempts: 5 }, sleep(250)],
    [
      'polls after the delay of a call behind it, if that is shorter than its own delay',
      { isQueued: false, askAgainWithin: 50 },
      { delay: 20_000 },
      sleep(50),
    ],
    ['asks again soon when votes were split', { isQueued: false, splits: 0 }, {}, sleep(60)],
    ['doubles the pause with each further split vote', { isQueued: false, splits: 2 }, {}, sleep(90)],
    [
      'pauses no longer than usual after many split votes',
      { isQueued: false, splits: 2_000 },
      {},
      sleep(250),
    ],
    ['polls after exactly its delay when its jitter is 0', { isQueued: false }, { jitter: 0 }, sleep(200)],
    [
      'asks again at once when its next request can join the queue',
      { isQueued: false, canQueue: true },
      {},
      ask(false),
    ],
    ['wakes early enough for a last attempt before its timeout', { timeLeft: 900 }, {}, sleep(850)],
    ['polls when no quorum of nodes answered', { ...NO_VOTE, queueNodeFirst: false }, {}, sleep(250)],
    ['asks all nodes at once when the queue node gave no vote', NO_VOTE, {}, ask(true)],
    [
      'gives up when only the time for a last attempt is left',
      { timeLeft: 50 },
      {},
      { kind: 'give up', limit: { timeout: 4_000 } },
    ],
    [
      'gives up after the allowed number of attempts',
      {},
      { attempts: 1 },
      { kind: 'give up', limit: { attempts: 1 } },
    ],
  ])('a refused caller %s', (_what, event, terms, expected) => {
    expect(step({ ...HELD, ...event }, terms)).toEqual(expected);
  });

  test('a refused caller counts an attempt when it sleeps, and none when it asks again at once', () => {
    const [slept] = next(firstState(2), HELD, TERMS);
    expect(slept).toEqual({ attempts: 3, sleepsFor: 1, isRefused: true, asksAll: false });
    const [asks] = next(firstState(2), { ...HELD, isQueued: false, canQueue: true }, TERMS);
    expect(asks).toEqual({ attempts: 2, sleepsFor: 0, isRefused: true, asksAll: false });
  });

  test('a waiter asks more often, over the same total time, while nodes refuse later callers in its favour (`holdBack`)', () => {
    const terms = { ...TERMS, attempts: 3, delay: 3_000, jitter: 0 };
    let state = firstState(0);
    let slept = 0;
    let made = 0;
    for (;;) {
      const [after, last] = next(state, { ...HELD, holdsBack: true, isQueued: false }, terms);
      state = after;
      made++;
      if (last.kind !== 'sleep') break;
      expect(last.ms).toBeLessThanOrEqual(1_000);
      slept += last.ms;
    }
    // Three attempts with this delay would take the same time: two pauses of 3,000 ms.
    expect({ slept, made }).toEqual({ slept: 6_000, made: 7 });
  });

  test('a waiter with a limit of attempts waits as long as without the impatient calls behind it', () => {
    const terms = { ...TERMS, attempts: 3, delay: 4_000, jitter: 0 };
    const polls = { ...HELD, isQueued: false };
    let [state, last] = next(firstState(0), polls, terms);
    // A call joins after a quarter of the first sleep, and then makes the waiter ask every 50 ms for a second.
    let slept = 1_000;
    [state] = next(state, { kind: 'woken', unslept: 0.75, timeLeft: 60_000 }, terms);
    for (let time = 0; time < 20; time++) {
      [state, last] = next(state, { ...polls, askAgainWithin: 50 }, terms);
      slept += (last as { ms: number }).ms;
      [state] = next(state, { kind: 'woken', unslept: 0, timeLeft: 60_000 }, terms);
    }
    for (;;) {
      [state, last] = next(state, polls, terms);
      if (last.kind !== 'sleep') break;
      slept += last.ms;
    }
    expect([last.kind, slept]).toEqual(['give up', expect.closeTo(10_000)]);
  });

  test('a refused caller counts its wait behind other callers as attempts', () => {
    expect(step(HELD, { attempts: 4 }, { attempts: 3 })).toEqual({ kind: 'give up', limit: { attempts: 4 } });
    expect(step(HELD, { attempts: 4 }, { attempts: 2 })).toEqual(sleep(250));
  });
});
