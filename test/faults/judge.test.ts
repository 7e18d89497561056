import { describe, expect, test } from '@jest/globals';
import { type FaultEvent, type FaultEventBody, parseLog } from './events.js';
import type { Access, RegisterReport } from './access.js';
import { judge, type Verdict } from './judge.js';

const END = 10_000;

/** Makes the events of one client from pairs of a time and a body. */
function log(
  client: string,
  ...entries: readonly (readonly [at: number, body: FaultEventBody])[]
): FaultEvent[] {
  return entries.map(([at, body]) => ({ at, client, ...body }) as FaultEvent);
}

function invoke(attempt: number, budget = 1_000, key = 'k'): FaultEventBody {
  return { event: 'invoke', attempt, keys: [key], mode: 'exclusive', budget };
}

function returned(attempt: number, token: number, validUntil: number): FaultEventBody {
  return { event: 'return', attempt, token, validUntil };
}

/** Makes the events of a client that asks for a lock, holds it and releases it. */
function holder(
  who: string,
  [invoked, from, to]: readonly [invoked: number, from: number, to: number],
  token: number,
  kind: { mode: 'exclusive' | 'shared' } | { permits: number; slot?: number; keys?: readonly string[] },
): FaultEvent[] {
  const asked = 'permits' in kind ? { mode: 'permits' as const, permits: kind.permits } : kind;
  const keys = ('keys' in kind && kind.keys) || ['k'];
  const slots = 'slot' in kind ? { slots: keys.map(() => kind.slot!) } : {};
  return log(
    who,
    [invoked, { event: 'invoke', attempt: 1, keys, budget: 1_000, ...asked }],
    [from, { event: 'return', attempt: 1, token, validUntil: 5_000, ...slots }],
    [to, release(1)],
    [to + 1, released(1)],
  );
}

const exclusive = { mode: 'exclusive' } as const;
const shared = { mode: 'shared' } as const;

/** Makes the register's report on the key `k` with these accepted accesses. */
function registerOf(accesses: readonly Access[], counter = accesses.length): RegisterReport {
  return [{ key: 'k', accesses, parts: [{ name: 'exclusive', accepted: accesses.length, counter }] }];
}

function writes(...tokens: readonly number[]): Access[] {
  return tokens.map((token) => ({ mode: 'exclusive', token }));
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

test('the judge finds no fault when one holder follows the other', () => {
  const bob = log('bob', [5, invoke(1)], [25, returned(1, 2, 500)], [30, release(1)], [31, released(1)]);
  const verdict = verdictOn([...alice, ...bob], registerOf(writes(1, 2)));
  expect(verdict).toEqual({
    acquisitions: 2,
    mostTogether: { shared: 0, permits: 0 },
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

describe('J1, no two holders at the same time', () => {
  test('the judge flags a holder that acquires before the earlier holder releases', () => {
    const bob = log('bob', [5, invoke(1)], [19, returned(1, 2, 500)], [30, release(1)]);
    expect(verdictOn([...alice, ...bob]).overlaps).toEqual([
      'J1: bob#1 (exclusive, 2) held beside alice#1 (exclusive, 1) for 1.0 ms',
    ]);
  });

  test('the judge finds an overlap whatever the order of the logs', () => {
    const bob = log('bob', [5, invoke(1)], [19, returned(1, 2, 500)], [30, release(1)]);
    expect(verdictOn([...bob, ...alice]).overlaps).toHaveLength(1);
  });

  test('the judge flags two short holds that both lie within a long hold', () => {
    const long = log('long', [0, invoke(1)], [1, returned(1, 1, 900)]);
    const short = log('short', [2, invoke(1)], [3, returned(1, 2, 900)], [4, release(1)], [5, released(1)]);
    const later = log('later', [6, invoke(1)], [7, returned(1, 3, 900)], [8, release(1)], [9, released(1)]);
    expect(verdictOn([...long, ...short, ...later]).overlaps).toHaveLength(2);
  });

  test('the judge counts a hold only until the end of its validity, even if the release comes later', () => {
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

  test('the judge counts a renewed hold until the end of the extended validity', () => {
    const renewing = log(
      'renewing',
      [0, invoke(1)],
      [1, returned(1, 1, 15)],
      [10, { event: 'renew', attempt: 1, validUntil: 25 }],
    );
    const next = log('next', [2, invoke(1)], [16, returned(1, 2, 500)], [30, release(1)], [31, released(1)]);
    expect(verdictOn([...renewing, ...next]).overlaps).toHaveLength(1);
  });

  test('the judge allows holders of different keys at the same time', () => {
    const other = log('other', [0, invoke(1, 1_000, 'other')], [11, returned(1, 1, 500)], [30, release(1)]);
    const { overlaps, tokenFaults } = verdictOn([...alice, ...other]);
    expect([overlaps, tokenFaults]).toEqual([[], []]);
  });
});

describe('J1, no writer beside a reader or another writer', () => {
  test('the judge allows any number of readers at the same time', () => {
    const readers = ['a', 'b', 'c'].map((who) => holder(who, [0, 10, 20], 1, shared));
    const { overlaps, mostTogether } = verdictOn(readers.flat());
    expect(overlaps).toEqual([]);
    expect(mostTogether).toEqual({ shared: 3, permits: 0 });
  });

  test.each([
    ['a writer', exclusive],
    ['the holder of a permit', { permits: 5, slot: 3 }],
  ])('the judge flags a reader beside %s, whichever came first', (_what, kind) => {
    const reader = holder('reader', [0, 10, 20], 1, shared);
    const before = holder('other', [0, 9, 11], 2, kind);
    const after = holder('other', [0, 19, 30], 2, kind);
    expect(verdictOn([...reader, ...before]).overlaps).toEqual([
      expect.stringMatching(/^J1: reader#1 .* held beside other#1 .* for 1.0 ms$/),
    ]);
    expect(verdictOn([...reader, ...after]).overlaps).toEqual([
      expect.stringMatching(/^J1: other#1 .* held beside reader#1 .* for 1.0 ms$/),
    ]);
  });

  test('the judge flags a writer beside a reader, even if a second reader ended earlier', () => {
    const long = holder('long', [0, 1, 100], 1, shared);
    const short = holder('short', [0, 2, 3], 1, shared);
    const writer = holder('writer', [0, 50, 60], 2, exclusive);
    expect(verdictOn([...long, ...short, ...writer]).overlaps).toEqual([
      'J1: writer#1 (exclusive, 2) held beside long#1 (shared, 1) for 10.0 ms',
    ]);
  });
});

describe('J1, no more holders than permits, and one holder for each slot', () => {
  const permit = (who: string, slot: number, permits = 2, at: [number, number, number] = [0, 10, 20]) =>
    holder(who, at, 1, { permits, slot });

  test('the judge allows as many holders as permits, each in its own slot', () => {
    const { overlaps, mostTogether } = verdictOn([...permit('a', 0), ...permit('b', 1)]);
    expect(overlaps).toEqual([]);
    expect(mostTogether).toEqual({ shared: 0, permits: 2 });
  });

  test('with two permits, the judge flags a third holder and its invalid slot', () => {
    // There are two slots, so the third client has a slot that does not exist.
    const events = [...permit('a', 0), ...permit('b', 1), ...permit('c', 2)];
    expect(verdictOn(events).overlaps).toEqual([
      'J1: c#1 has the slot 2 of 2 permits',
      'J1: a#1 (slot 0, 1), b#1 (slot 1, 1), c#1 (slot 2, 1) held at the same time, of 2 permits',
    ]);
  });

  test('with two permits, the judge flags a third holder even if the holders have no slots', () => {
    const counted = ['a', 'b', 'c'].flatMap((who) => holder(who, [0, 10, 20], 1, { permits: 2 }));
    expect(verdictOn(counted).overlaps).toContain(
      'J1: a#1 (slot undefined, 1), b#1 (slot undefined, 1), c#1 (slot undefined, 1) held at the same time, of 2 permits',
    );
  });

  test('the judge flags two holders of one slot at the same time', () => {
    expect(verdictOn([...permit('a', 1), ...permit('b', 1, 2, [0, 19, 30])]).overlaps).toEqual([
      'J1: b#1 (slot 1, 1) held beside a#1 (slot 1, 1) for 1.0 ms',
    ]);
  });

  test('the judge allows holders that follow each other in one slot', () => {
    expect(verdictOn([...permit('a', 1), ...permit('b', 1, 2, [0, 20, 30])]).overlaps).toEqual([]);
  });

  test('the judge allows the larger number of permits when holders ask for different numbers', () => {
    const three = [...permit('a', 0, 2), ...permit('b', 1, 2), ...permit('c', 2, 3)];
    expect(verdictOn(three).overlaps).toEqual([]);
    expect(verdictOn([...three, ...permit('d', 3, 3)]).overlaps).toHaveLength(2);
  });

  test('the judge allows the larger number of permits only until the holder that asked for it releases', () => {
    const early = permit('early', 2, 3, [0, 1, 9]);
    const three = [...permit('a', 0), ...permit('b', 1), ...holder('c', [0, 10, 20], 1, { permits: 2 })];
    expect(verdictOn([...early, ...three]).overlaps).toContainEqual(
      expect.stringContaining('held at the same time, of 2 permits'),
    );
  });

  test('the judge checks each key of a lock with several keys', () => {
    const both = holder('a', [0, 10, 20], 1, { permits: 2, slot: 0, keys: ['k', 'other'] });
    const one = holder('b', [0, 15, 30], 1, { permits: 2, slot: 0, keys: ['other'] });
    expect(verdictOn([...both, ...one]).overlaps).toEqual([
      'J1: b#1 (slot 0, 1) held beside a#1 (slot 0, 1) for 5.0 ms',
    ]);
  });
});

describe('J2 and J3 (fencing tokens) with readers and permits', () => {
  const first: [number, number, number] = [0, 10, 20];
  const second: [number, number, number] = [15, 25, 30];
  const overtaking: [number, number, number] = [5, 25, 30];

  test.each([
    ['a writer after a reader', shared, exclusive],
    ['a reader after a writer', exclusive, shared],
    ['a permit after a reader', shared, { permits: 2, slot: 0 }],
    ['a permit after a permit of the same slot', { permits: 2, slot: 0 }, { permits: 2, slot: 0 }],
    ['a reader after a permit', { permits: 2, slot: 1 }, shared],
    ['a writer after a permit', { permits: 2, slot: 1 }, exclusive],
  ])('the judge reports the fault J3 if %s has a smaller token', (_what, before, after) => {
    const events = [...holder('a', first, 7, before), ...holder('b', second, 6, after)];
    expect(verdictOn(events).tokenFaults).toEqual(['J3: b#1 was given 6 after a#1 had 7']);
  });

  test.each([
    ['a writer and a reader', shared, exclusive],
    ['a permit and a writer', exclusive, { permits: 2, slot: 0 }],
    ['two holders of the same slot', { permits: 2, slot: 0 }, { permits: 2, slot: 0 }],
  ])('the judge reports the fault J2 if %s get the same token', (_what, before, after) => {
    const events = [...holder('a', first, 7, before), ...holder('b', overtaking, 7, after)];
    expect(verdictOn(events).tokenFaults).toEqual(['J2: a#1 and b#1 were both given 7']);
  });

  test('the judge allows readers with equal tokens, and later readers with smaller tokens', () => {
    const readers = [
      ...holder('a', first, 7, shared),
      ...holder('b', second, 7, shared),
      ...holder('c', [35, 36, 37], 6, shared),
    ];
    expect(verdictOn(readers).tokenFaults).toEqual([]);
  });

  test('the judge compares the tokens of each slot separately', () => {
    const permits = [
      ...holder('a', first, 7, { permits: 2, slot: 0 }),
      ...holder('b', second, 7, { permits: 2, slot: 1 }),
      ...holder('c', [35, 36, 37], 6, { permits: 2, slot: 2 }),
    ];
    expect(verdictOn(permits).tokenFaults).toEqual([]);
  });

  test('the judge compares the token of a writer with the tokens of all earlier holders, not only of the last holder', () => {
    const events = [
      ...holder('permit', [0, 1, 2], 9, { permits: 2, slot: 1 }),
      ...holder('reader', [0, 5, 6], 3, shared),
      ...holder('writer', [10, 11, 12], 8, exclusive),
    ];
    expect(verdictOn(events).tokenFaults).toEqual(['J3: writer#1 was given 8 after permit#1 had 9']);
  });
});

describe('J2 and J3 (fencing tokens) with exclusive locks', () => {
  test('the judge reports the fault J2 for a token that is granted twice', () => {
    const bob = log('bob', [5, invoke(1)], [25, returned(1, 1, 500)]);
    expect(verdictOn([...alice, ...bob]).tokenFaults).toEqual(['J2: alice#1 and bob#1 were both given 1']);
  });

  test('the judge reports the fault J3 for a token that is smaller than a token returned earlier', () => {
    const bob = log('bob', [15, invoke(1)], [25, returned(1, 0, 500)]);
    expect(verdictOn([...alice, ...bob]).tokenFaults).toEqual(['J3: bob#1 was given 0 after alice#1 had 1']);
  });

  test('the judge allows a smaller token when two attempts overlapped', () => {
    const bob = log('bob', [9, invoke(1)], [25, returned(1, 0, 500)]);
    expect(verdictOn([...alice, ...bob]).tokenFaults).toEqual([]);
  });
});

describe('J4 and J5, the register', () => {
  test('the judge reports the fault J4 if the register accepted a lower token', () => {
    expect(verdictOn(alice, registerOf(writes(1, 3, 2))).registerFaults).toEqual([
      'J4: the register of k accepted 2 (exclusive) after 3 (exclusive)',
    ]);
  });

  test('the judge reports the fault J5 if the register counted fewer writes than it accepted', () => {
    expect(verdictOn(alice, registerOf(writes(1, 2, 3), 2)).registerFaults).toEqual([
      'J5: the register of k (exclusive) accepted 3 writes and counts to 2: some were overwritten unseen',
    ]);
  });

  test.each<[string, Access, Access]>([
    ['a read after a write', { mode: 'exclusive', token: 3 }, { mode: 'shared', token: 2 }],
    ['a write after a read', { mode: 'shared', token: 3 }, { mode: 'exclusive', token: 2 }],
    [
      'a permit after a permit of the same slot',
      { mode: 'permits', slot: 1, token: 3 },
      { mode: 'permits', slot: 1, token: 2 },
    ],
    ['a permit after a write', { mode: 'exclusive', token: 3 }, { mode: 'permits', slot: 1, token: 2 }],
  ])('the judge reports the fault J4 if %s has a lower token', (_what, before, after) => {
    const later: Access = { mode: 'shared', token: 1 };
    expect(verdictOn(alice, registerOf([later, before, after])).registerFaults).toEqual([
      expect.stringMatching(/^J4: the register of k accepted 2 .* after 3 /),
    ]);
  });

  test('the judge allows lower tokens among reads, and among different slots', () => {
    const register = registerOf([
      { mode: 'shared', token: 3 },
      { mode: 'shared', token: 2 },
      { mode: 'permits', slot: 1, token: 9 },
      { mode: 'permits', slot: 2, token: 8 },
    ]);
    expect(verdictOn(alice, register).registerFaults).toEqual([]);
  });

  test('the judge reports the fault J5 if a holder reads two different values, unless the register refused a read', () => {
    const read = (value?: number): FaultEventBody => ({
      event: 'read',
      attempt: 1,
      key: 'k',
      token: 1,
      value,
    });
    const changed = [...alice, ...log('alice', [11, read(4)], [19, read(5)])];
    expect(verdictOn(changed).registerFaults).toEqual([
      'J5: alice#1 (1) read 4 and then 5 in the register of k',
    ]);
    // The register refused the second read.
    const refused = [...alice, ...log('alice', [11, read(4)], [19, read()])];
    expect(verdictOn(refused).registerFaults).toEqual([]);
  });

  test('the judge counts the writes that the register refused', () => {
    const write: FaultEventBody = { event: 'write', attempt: 1, token: 1, accepted: false };
    expect(verdictOn([...alice, ...log('alice', [22, write])]).refusedWrites).toBe(1);
  });
});

describe('J6, every call settles and no rejection is unhandled', () => {
  test('the judge flags an `acquire` that settles more than 200 ms after its time budget', () => {
    const slow = log(
      'slow',
      [0, invoke(1, 300)],
      [501, { event: 'refuse', attempt: 1, code: 'LOCK_HELD', message: '' }],
    );
    const verdict = verdictOn(slow);
    expect(verdict.late).toEqual(['slow#1: acquire took 501 ms of 300 ms']);
    expect(verdict.refusals).toEqual({ LOCK_HELD: 1 });
  });

  test('the judge flags a call that never settles, unless its process was killed', () => {
    const hung = log('hung', [0, invoke(1)]);
    expect(verdictOn(hung).late).toEqual(['hung#1: acquire had not settled after 10000 ms of 1000 ms']);
    expect(verdictOn(hung, undefined, new Set(['hung'])).late).toEqual([]);
  });

  test('the judge flags a `release` that settles late', () => {
    const slow = log(
      'slow',
      [0, invoke(1)],
      [1, returned(1, 1, 900)],
      [2, release(1, 100)],
      [303, released(1)],
    );
    expect(verdictOn(slow).late).toEqual(['slow#1: release took 301 ms of 100 ms']);
  });

  test('the judge does not count the time during which a process was paused', () => {
    const paused = log(
      'paused',
      [0, invoke(1, 300)],
      [900, { event: 'stall', duration: 600 }],
      [901, { event: 'refuse', attempt: 1, code: 'LOCK_HELD', message: '' }],
    );
    expect(verdictOn(paused).late).toEqual([]);
    expect(verdictOn(paused).worstSettle).toBe(301);
  });

  test('the judge flags an unhandled rejection', () => {
    const event: FaultEventBody = { event: 'unhandled', message: 'oops' };
    expect(verdictOn(log('alice', [1, event])).unhandled).toEqual(['alice: oops']);
  });

  test('the judge reports how long after the end of validity a holder learned of the loss', () => {
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

test('parseLog ignores a partial last line of a killed process', () => {
  const [event] = log('a', [1, { event: 'ready' }]);
  expect(parseLog(`${JSON.stringify(event)}\n{"at":2,"cli`)).toEqual([event]);
});
