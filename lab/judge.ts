import type { Outcome } from './lab-event.js';

type Amount = 'none' | 'some' | 'all';

/** Expected outcome of a run. Figures without an expectation are not checked. */
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
  tooMany: 'more holders at once than allowed',
  overtakes: 'readers that acquired again before the writer',
  grantedTwice: 'locks granted while they were held',
  refused: 'refused writes',
  unavailable: 'errors because too few nodes voted',
  doneTwice: 'tasks done twice',
};

/**
 * Compares the outcome of a run with its description.
 *
 * @returns the differences; an empty list if there are none
 */
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
    found.push('the run recovered, but should not have recovered');
  if (expected.recovery === 'in time' && typeof recovery !== 'number') found.push('the run did not recover');
  return found;
}
