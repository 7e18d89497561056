import { describe, expect, test } from '@jest/globals';
import type { LabEvent } from '../../lab/lab-event.js';
import {
  countGrantedTwice,
  countOverlaps,
  countOvertakes,
  countTooMany,
  overlapsOf,
  spansOf,
  waitOf,
} from '../../lab/spans.js';

function acquired(who: string, at: number, ttl?: number, asked = 0): LabEvent {
  return { kind: 'acquired', who, at, asked, ttl };
}

function event(kind: 'released' | 'renewed' | 'killed', who: string, at: number): LabEvent {
  return { kind, who, at };
}

test('a span covers one hold from acquisition to release, and includes the end of the lock validity', () => {
  const spans = spansOf([acquired('a', 1_000, 500, 100), event('released', 'a', 1_300)]);

  expect(spans).toEqual([
    {
      who: 'a',
      from: 1_000,
      to: 1_300,
      ttl: 500,
      lockEnds: 1_400,
      locked: true,
      token: undefined,
      end: 'released',
    },
  ]);
});

test('in a span, the lock validity counts from the last renewal of the lock', () => {
  const spans = spansOf([acquired('a', 0, 300), event('renewed', 'a', 100), event('renewed', 'a', 250)]);

  expect(spans).toMatchObject([{ lockEnds: 550 }]);
});

test('a span does not change after its end', () => {
  const spans = spansOf([acquired('a', 0), event('killed', 'a', 5), event('released', 'a', 9)]);

  expect(spans).toMatchObject([{ to: 5, end: 'killed' }]);
});

describe('countOverlaps()', () => {
  test.each([
    [
      'a span that begins at the end of another span',
      [acquired('a', 0), event('released', 'a', 5), acquired('b', 5)],
      0,
    ],
    ['a span that begins during another', [acquired('a', 0), acquired('b', 3), event('released', 'a', 5)], 1],
    ['three spans at the same time', [acquired('a', 0), acquired('b', 1), acquired('c', 2)], 2],
    ['a span after a killed holder', [acquired('a', 0), event('killed', 'a', 2), acquired('b', 3)], 0],
  ])(
    'countOverlaps() counts the spans that begin during a span of another holder: %s',
    (_what, events, count) => {
      expect(countOverlaps(spansOf(events))).toBe(count);
    },
  );
});

describe('countGrantedTwice()', () => {
  test.each([
    ['a grant after the ttl', [acquired('a', 0, 100), acquired('b', 150, 100)], 0],
    [
      'a grant before the end of the ttl, without a release',
      [acquired('a', 0, 100), acquired('b', 50, 100)],
      1,
    ],
    [
      'a grant before the end of the ttl, after a release',
      [acquired('a', 0, 100), event('released', 'a', 40), acquired('b', 50, 100)],
      0,
    ],
  ])('countGrantedTwice() counts the grants of a lock that is still held: %s', (_what, events, count) => {
    expect(countGrantedTwice(spansOf(events))).toBe(count);
  });
});

test('overlapsOf() returns the time ranges in which spans overlap, and counts an open span until now', () => {
  const events = [
    acquired('a', 0),
    acquired('b', 2),
    acquired('c', 3),
    event('released', 'a', 4),
    event('released', 'b', 5),
    acquired('a', 5),
    event('killed', 'a', 6),
    acquired('b', 8),
  ];

  expect(overlapsOf(spansOf(events), 10)).toEqual([
    { from: 2, to: 5 },
    { from: 5, to: 6 },
    { from: 8, to: 10 },
  ]);
});

describe('holders beyond the allowed number', () => {
  const three = [acquired('a', 0), acquired('b', 1), acquired('c', 2), event('released', 'b', 4)];
  test.each([
    ['three holders of an exclusive lock', three, {}, 2],
    ['three holders of two permits', three, { atOnce: 2 }, 1],
    ['three holders of three permits', three, { atOnce: 3 }, 0],
    ['three holders, of which the last is a writer', three, { atOnce: 3, writer: 'c' }, 1],
    ['three holders, of which the first is a writer', three, { atOnce: 3, writer: 'a' }, 2],
    ['a writer alone', [acquired('a', 0)], { atOnce: 3, writer: 'a' }, 0],
  ])(
    'countTooMany() counts each acquisition beyond the allowed number of holders: %s',
    (_what, events, rule, count) => {
      expect(countTooMany(spansOf(events), rule)).toBe(count);
    },
  );

  test('overlapsOf() returns the time ranges with more holders than allowed', () => {
    expect(overlapsOf(spansOf(three), 10, { atOnce: 2 })).toEqual([{ from: 2, to: 4 }]);
    expect(overlapsOf(spansOf(three), 10, { atOnce: 3, writer: 'b' })).toEqual([{ from: 1, to: 4 }]);
  });
});

describe('a waiter for an exclusive lock', () => {
  const asking: LabEvent = { kind: 'asking', who: 'w', at: 10 };

  const read = (who: string, at: number, tasks = 1): LabEvent => ({ kind: 'read', who, at, tasks });

  test('countOvertakes() counts each repeated dispatch of a holder while a waiter waits', () => {
    const events = [read('a', 5), asking, read('a', 11), read('b', 12), read('a', 13), read('b', 14, 0)];

    expect(countOvertakes(events)).toBe(1);
    expect(countOvertakes([...events, acquired('w', 15), read('b', 16)])).toBe(1);
    expect(countOvertakes([read('a', 1), read('a', 2)])).toBe(0);
  });

  test('waitOf() returns the time from the request to the acquisition of the waiter', () => {
    expect(waitOf([asking, acquired('a', 11)])).toBeUndefined();
    expect(waitOf([asking, acquired('a', 11), acquired('w', 17)])).toBe(7);
  });
});
