import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { bundle } from '../support/bundle.js';
import { type Form, play, PROGRAMS, type Scenario } from './scenario.js';
import type { Outcome } from './stage.js';
import { rowOf, tableOf } from './table.js';

// These tests use real servers, several client processes, and a judge that knows nothing of the library.
// `npm test` plays the essential scenarios, and `npm run test:all` most of the others (see `onlyLong`).
// `npm run test:faults` runs them for longer, and prints the table in test/faults/last-run.md, which
// docs/fault-tests.md sums up.

const FORM: Form = process.env['FAULTS'] === 'long' ? 'long' : 'short';
/** Only the long form requires a rate: the short form runs on busy machines, whose throughput shows nothing. */
const RATES_COUNT = FORM === 'long';

/** Lists the faults that no scenario may have. */
function faultsOf(
  outcome: Outcome,
  { overlapsBecause, enough, leastRate = 0 }: Scenario,
): Record<string, readonly string[]> {
  const { acquisitions, rate, overlaps, tokenFaults, registerFaults, orphans, unhandled, late, events } =
    outcome;
  const found = {
    overlaps: overlapsBecause === undefined ? overlaps : [],
    tokenFaults,
    registerFaults,
    orphans,
    unhandled,
    late,
    slowness:
      RATES_COUNT && rate < leastRate ? [`${rate.toFixed(1)} acquisitions/s, ${leastRate} are required`] : [],
    emptiness: [
      ...(acquisitions === 0 ? ['nobody ever held the lock'] : []),
      ...(enough?.(events, Infinity) === false ? [`not enough happened: ${String(enough)}`] : []),
    ],
  };
  return Object.fromEntries(Object.entries(found).filter(([, faults]) => faults.length > 0));
}

type Groups = readonly (readonly [name: string, scenarios: readonly Scenario[]])[];

/** Defines a test for each essential scenario. */
export function playEssential(groups: Groups): void {
  playChosen(groups, ({ essential }) => essential === true);
}

/**
 * Defines a test for each of the other scenarios. Several test files call this function, so that scenarios run side by
 * side: a scenario mostly waits.
 */
export function playFurther(groups: Groups): void {
  playChosen(groups, ({ essential }) => essential !== true);
}

function playChosen(groups: Groups, isChosen: (scenario: Scenario) => boolean): void {
  let programs: string;
  const rows: string[][] = [];

  beforeAll(async () => {
    programs = await bundle(PROGRAMS);
  });
  afterAll(() => {
    if (FORM === 'long' || process.env['FAULTS'] === 'table') process.stdout.write(`\n${tableOf(rows)}\n`);
  });

  async function run(scenario: Scenario): Promise<Record<string, readonly string[]>> {
    const outcome = await play(programs, scenario, FORM);
    rows.push(rowOf(scenario, outcome));
    scenario.check?.(outcome, FORM);
    return faultsOf(outcome, scenario);
  }

  describe.each(groups)('the judge finds no unexpected fault (%s):', (_group, all) => {
    const scenarios = all.filter((scenario) => isChosen(scenario) && (FORM === 'long' || !scenario.onlyLong));
    const [skipped, played] = [true, false].map((skip) =>
      scenarios
        .filter(({ skippedBecause }) => (skippedBecause !== undefined) === skip)
        .map((scenario) => [scenario.name, scenario] as const),
    );
    if (played!.length > 0) {
      test.each(played!)('%s', async (_name, scenario) => expect(await run(scenario)).toEqual({}));
    }
    for (const [name, { skippedBecause }] of skipped!) {
      // oxlint-disable-next-line jest/no-disabled-tests -- only where the machine lacks a tool, which the name tells
      test.skip(`${name} (skipped: ${skippedBecause})`, () => expect(skippedBecause).toBeUndefined());
    }
  });
}
