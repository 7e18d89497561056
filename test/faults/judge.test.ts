import { describe, expect, test } from '@jest/globals';
import { type FaultEvent, type FaultEventBody, parseLog } from './events.js';
import { judge, type RegisterReport, type Verdict } from './judge.js';

const END = 10_000;

/** Events of one client, each as its time and what it is. */
function log(
  client: string,
  ...entries: readonly (readonly [at: number, body: FaultEventBody])[]
): FaultEvent[] {
  return entries.map(([at, body]) => ({ at, client, ...body }) as FaultEvent);
}

function invoke(attempt: number, budget = 1_000, key = 'k'): FaultEventBody {
  return { event: 'invoke', attempt, key, budget };
}

function returned(attempt: number, token: number, validUntil: number): FaultEventBody {
  return { event: 'return', attempt, token, validUntil };
}

function release(attempt: number, budget = 100): FaultEventBody {
  return { event: 'release', attempt, budget };
}

function released(attempt: number): FaultEventBody {
  return { event: 'released', attempt };
}

function verdictOn(
  events: readonly FaultEvent[],
  register?: RegisterReport,
  killed?: ReadonlySet<string>,
): Verdict {
  return judge(events, register, END, killed);
}

/** Holds from 10 to 20, with token 1. */
const alice = log('alice', [0, invoke(1)], [10, returned(1, 1, 500)], [20, release(1)], [21, released(1)]);

test('finds nothing where one holds after the other', () => {
  const bob = log('bob', [5, invoke(1)], [25, returned(1, 2, 500)], [30, release(1)], [31, released(1)]);
  const verdict = verdictOn([...alice, ...bob], { accepted: 2, counter: 2, tokens: [1, 2] });
  expect(verdict).toEqual({
    acquisitions: 2,
    refusals: {},
    overlaps: [],
    tokenFaults: [],
    registerFaults: [],
    refusedWrites: 0,
    unhandled: [],
    late: [],
    worstSettle: 20,
    worstNotice: 0,
    lost: 0,
  });
});

describe('J1: no two hold at the same time', () => {
  test('flags a holder that returns before the other has released', () => {
    const bob = log('bob', [5, invoke(1)], [19, returned(1, 2, 500)], [30, release(1)]);
    expect(verdictOn([...alice, ...bob]).overlaps).toEqual([
      'J1: bob#1 (2) held beside alice#1 (1) for 1.0 ms',
    ]);
  });

  test('whatever order the logs are read in', () => {
    const bob = log('bob', [5, invoke(1)], [19, returned(1, 2, 500)], [30, release(1)]);
    expect(verdictOn([...bob, ...alice]).overlaps).toHaveLength(1);
  });

  test('a long hold counts against everybody within it, also behind a short one', () => {
    const long = log('long', [0, invoke(1)], [1, returned(1, 1, 900)]);
    const short = log('short', [2, invoke(1)], [3, returned(1, 2, 900)], [4, release(1)], [5, released(1)]);
    const later = log('later', [6, invoke(1)], [7, returned(1, 3, 900)], [8, release(1)], [9, released(1)]);
    expect(verdictOn([...long, ...short, ...later]).overlaps).toHaveLength(2);
  });

  test('a holder whose validity has ended is none, also when it has not noticed', () => {
    const stale = log(
      'stale',
      [0, invoke(1)],
      [1, returned(1, 1, 15)],
      [400, release(1)],
      [401, released(1)],
    );
    const next = log('next', [2, invoke(1)], [16, returned(1, 2, 500)], [30, release(1)], [31, released(1)]);
    expect(verdictOn([...stale, ...next]).overlaps).toEqual([]);
  });

  test('a renewal makes the validity longer', () => {
    const renewing = log(
      'renewing',
      [0, invoke(1)],
      [1, returned(1, 1, 15)],
      [10, { event: 'renew', attempt: 1, validUntil: 25 }],
    );
    const next = log('next', [2, invoke(1)], [16, returned(1, 2, 500)], [30, release(1)], [31, released(1)]);
    expect(verdictOn([...renewing, ...next]).overlaps).toHaveLength(1);
  });

  test('different keys have nothing to do with each other', () => {
    const other = log('other', [0, invoke(1, 1_000, 'other')], [11, returned(1, 1, 500)], [30, release(1)]);
    const { overlaps, tokenFaults } = verdictOn([...alice, ...other]);
    expect([overlaps, tokenFaults]).toEqual([[], []]);
  });
});

describe('J2, J3: tokens', () => {
  test('J2: flags a token that is given twice', () => {
    const bob = log('bob', [5, invoke(1)], [25, returned(1, 1, 500)]);
    expect(verdictOn([...alice, ...bob]).tokenFaults).toEqual(['J2: alice#1 and bob#1 were both given 1']);
  });

  test('J3: flags a token that is smaller than one that was returned before', () => {
    const bob = log('bob', [15, invoke(1)], [25, returned(1, 0, 500)]);
    expect(verdictOn([...alice, ...bob]).tokenFaults).toEqual(['J3: bob#1 was given 0 after alice#1 had 1']);
  });

  test('a smaller token is none of its business when the two attempts ran side by side', () => {
    const bob = log('bob', [9, invoke(1)], [25, returned(1, 0, 500)]);
    expect(verdictOn([...alice, ...bob]).tokenFaults).toEqual([]);
  });
});

describe('J4, J5: the register', () => {
  test('J4: flags a lower token that was accepted', () => {
    const register = { accepted: 3, counter: 3, tokens: [1, 3, 2] };
    expect(verdictOn(alice, register).registerFaults).toEqual(['J4: the register accepted 2 after 3']);
  });

  test('J5: flags a write that was overwritten unseen', () => {
    const register = { accepted: 3, counter: 2, tokens: [1, 2, 3] };
    expect(verdictOn(alice, register).registerFaults).toHaveLength(1);
  });

  test('counts the writes that were refused', () => {
    const write: FaultEventBody = { event: 'write', attempt: 1, token: 1, accepted: false };
    expect(verdictOn([...alice, ...log('alice', [22, write])]).refusedWrites).toBe(1);
  });
});

describe('J6: every call settles, and no rejection is unhandled', () => {
  test('flags an acquire that settles later than its budget and 200 ms', () => {
    const slow = log(
      'slow',
      [0, invoke(1, 300)],
      [501, { event: 'refuse', attempt: 1, code: 'LOCK_HELD', message: '' }],
    );
    const verdict = verdictOn(slow);
    expect(verdict.late).toEqual(['slow#1: acquire took 501 ms of 300 ms']);
    expect(verdict.refusals).toEqual({ LOCK_HELD: 1 });
  });

  test('flags what has not settled when the test ends, but for a process that was killed', () => {
    const hung = log('hung', [0, invoke(1)]);
    expect(verdictOn(hung).late).toEqual(['hung#1: acquire had not settled after 10000 ms of 1000 ms']);
    expect(verdictOn(hung, undefined, new Set(['hung'])).late).toEqual([]);
  });

  test('flags a release that settles late', () => {
    const slow = log(
      'slow',
      [0, invoke(1)],
      [1, returned(1, 1, 900)],
      [2, release(1, 100)],
      [303, released(1)],
    );
    expect(verdictOn(slow).late).toEqual(['slow#1: release took 301 ms of 100 ms']);
  });

  test('the time for which a process was stopped is not held against it', () => {
    const paused = log(
      'paused',
      [0, invoke(1, 300)],
      [900, { event: 'stall', duration: 600 }],
      [901, { event: 'refuse', attempt: 1, code: 'LOCK_HELD', message: '' }],
    );
    expect(verdictOn(paused).late).toEqual([]);
    expect(verdictOn(paused).worstSettle).toBe(301);
  });

  test('flags an unhandled rejection', () => {
    const event: FaultEventBody = { event: 'unhandled', message: 'oops' };
    expect(verdictOn(log('alice', [1, event])).unhandled).toEqual(['alice: oops']);
  });

  test('tells how long after the end of its validity a holder was told of the loss', () => {
    const told = log('told', [0, invoke(1)], [1, returned(1, 1, 100)], [130, { event: 'lost', attempt: 1 }]);
    const early = log(
      'early',
      [200, invoke(1)],
      [201, returned(1, 2, 900)],
      [210, { event: 'lost', attempt: 1 }],
    );
    expect(verdictOn([...told, ...early])).toMatchObject({ worstNotice: 30, lost: 2 });
  });
});

test('half a line at the end of a log is what a killed process leaves', () => {
  const [event] = log('a', [1, { event: 'ready' }]);
  expect(parseLog(`${JSON.stringify(event)}\n{"at":2,"cli`)).toEqual([event]);
});
