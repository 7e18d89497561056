import type { Outcome } from './lab-event.js';

type Amount = 'none' | 'some' | 'all';

/** The outcome that is expected of a run; figures that are not named are not checked. */
export interface Expectation {
  readonly duplicates?: Amount;
  readonly lost?: Amount;
  readonly overlaps?: Amount;
  readonly tooMany?: Amount;
  readonly overtakes?: Amount;
  readonly grantedTwice?: Amount;
  readonly refused?: Amount;
  readonly unavailable?: Amount;
  readonly doneTwice?: Amount;
  readonly recovery?: 'never' | 'in time';
}

const WORDS: Record<keyof Omit<Expectation, 'recovery'>, string> = {
  duplicates: 'duplicates',
  lost: 'lost tasks',
  overlaps: 'two holders at once',
  tooMany: 'more at once than may',
  overtakes: 'readers that came in again before the writer',
  grantedTwice: 'locks granted while they were held',
  refused: 'refused writes',
  unavailable: 'errors that say that too few nodes voted',
  doneTwice: 'tasks done twice',
};

/** @returns the differences between the run and its description; an empty list without a difference */
export function deviations(expected: Expectation, outcome: Outcome): string[] {
  const found = (Object.keys(WORDS) as (keyof typeof WORDS)[]).flatMap((what) => {
    const amount = expected[what];
    const count = outcome[what];
    const right =
      amount === undefined ||
      (amount === 'none' && count === 0) ||
      (amount === 'some' && count > 0) ||
      (amount === 'all' && count === outcome.tasks && count > 0);
    return right ? [] : [`${WORDS[what]}: ${amount} expected, ${count} counted`];
  });
  const { recovery } = outcome;
  if (expected.recovery === 'never' && recovery !== 'never')
    found.push('it recovered, which it should not have');
  if (expected.recovery === 'in time' && typeof recovery !== 'number') found.push('it did not recover');
  return found;
}
