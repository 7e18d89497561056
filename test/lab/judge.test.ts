import { expect, test } from '@jest/globals';
import { deviations } from '../../lab/judge.js';
import type { Outcome } from '../../lab/lab-event.js';

const outcome: Outcome = {
  tasks: 20,
  pushes: 20,
  duplicates: 0,
  lost: 0,
  doneTwice: 0,
  overlaps: 0,
  grantedTwice: 0,
  tooMany: 0,
  overtakes: 0,
  refused: 0,
  skips: 0,
  unavailable: 0,
  took: 0,
};

test('deviations() ignores each figure for which nothing is expected', () => {
  expect(deviations({}, { ...outcome, duplicates: 7, lost: 20 })).toEqual([]);
});

test.each([
  ['none', 0, []],
  ['none', 3, ['duplicates: none expected, 3 counted']],
  ['some', 3, []],
  ['some', 0, ['duplicates: some expected, 0 counted']],
  ['all', 20, []],
  ['all', 19, ['duplicates: all expected, 19 counted']],
] as const)(
  'deviations() compares the expected duplicates "%s" with %i duplicates of 20 tasks',
  (amount, duplicates, found) => {
    expect(deviations({ duplicates: amount }, { ...outcome, duplicates })).toEqual(found);
  },
);

test('deviations() reports that a run without tasks does not meet the expectation "all"', () => {
  expect(deviations({ lost: 'all' }, { ...outcome, tasks: 0 })).toHaveLength(1);
});

test.each([
  ['never', 'never', 0],
  ['never', 1_200, 1],
  ['never', undefined, 1],
  ['in time', 1_200, 0],
  ['in time', 'never', 1],
  ['in time', undefined, 1],
] as const)(
  'deviations() compares the expected recovery "%s" with the measured recovery time %s',
  (expected, recovery, count) => {
    expect(deviations({ recovery: expected }, { ...outcome, recovery })).toHaveLength(count);
  },
);
