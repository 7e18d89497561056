import { describe, expect, test } from '@jest/globals';
import type { LabEvent } from '../../lab/lab-event.js';
import { countGrantedTwice, countOverlaps, overlapsOf, spansOf } from '../../lab/spans.js';

function acquired(who: string, at: number, ttl?: number, asked = 0): LabEvent {
  return { kind: 'acquired', who, at, asked, ttl };
}

function event(kind: 'released' | 'renewed' | 'killed', who: string, at: number): LabEvent {
  return { kind, who, at };
}

test('a span lasts from getting the lock to giving it back, and knows when the lock ends', () => {
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

test('a renewal counts from when it came, whatever was left', () => {
  const spans = spansOf([acquired('a', 0, 300), event('renewed', 'a', 100), event('renewed', 'a', 250)]);

  expect(spans).toMatchObject([{ lockEnds: 550 }]);
});

test('what is told after the end of a span does not end it again', () => {
  const spans = spansOf([acquired('a', 0), event('killed', 'a', 5), event('released', 'a', 9)]);

  expect(spans).toMatchObject([{ to: 5, end: 'killed' }]);
});

describe('two at once', () => {
  test.each([
    ['one after the other', [acquired('a', 0), event('released', 'a', 5), acquired('b', 5)], 0],
    ['one while the other is at it', [acquired('a', 0), acquired('b', 3), event('released', 'a', 5)], 1],
    ['three', [acquired('a', 0), acquired('b', 1), acquired('c', 2)], 2],
    ['after one that was killed', [acquired('a', 0), event('killed', 'a', 2), acquired('b', 3)], 0],
  ])('%s', (_what, events, count) => {
    expect(countOverlaps(spansOf(events))).toBe(count);
  });
});

describe('a lock that is granted while it is held', () => {
  test.each([
    ['after the ttl', [acquired('a', 0, 100), acquired('b', 150, 100)], 0],
    ['before it, because somebody deleted it', [acquired('a', 0, 100), acquired('b', 50, 100)], 1],
    ['before it, given back', [acquired('a', 0, 100), event('released', 'a', 40), acquired('b', 50, 100)], 0],
  ])('%s', (_what, events, count) => {
    expect(countGrantedTwice(spansOf(events))).toBe(count);
  });
});

test('the times in which at least two were at it; what still lasts, lasts until now', () => {
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
