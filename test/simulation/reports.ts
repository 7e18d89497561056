import type { Break } from './breaks.js';
import type { Library } from './node/load.js';
import type { FaultKind } from './plans/faults.js';
import type { Plan } from './plans/plan.js';
import { planOf } from './plans/profile.js';
import { explanationOf, readRegressions, type Regression, saveRegression } from './regressions.js';
import { fromOn, inTurn, noTotals, runPlan, saidOf, searchBreak } from './search.js';
import { breaks, shrink } from './shrink.js';
import { Simulation } from './simulation.js';
import { storyOf } from './story.js';

// The functions print what people read, and set the exit code to 1 when a promise is broken that no known defect
// explains.

function fail(): void {
  process.exitCode = 1;
}

interface SearchOptions {
  readonly seeds: Iterable<number>;
  readonly isOver: () => boolean;
  readonly hashes: boolean;
  readonly only: readonly FaultKind[] | undefined;
}

/** The number of seeds after which a search tells its totals. */
const SEEDS_OF_A_LINE = 200;

const SIGNALS = ['SIGINT', 'SIGTERM'] as const;

/** Runs seeds, and prints those that break a promise. A signal that asks the program to end also makes it tell its totals. */
export async function printSearch(
  library: Library,
  { seeds, isOver, hashes, only }: SearchOptions,
): Promise<void> {
  const totals = noTotals();
  const regressions = readRegressions();
  const known = new Map<string, number>();
  const before = process.cpuUsage();
  // A stack costs more than most errors of a simulation.
  Error.stackTraceLimit = 0;
  let failed = 0;
  const tell = (): void => {
    const { user, system } = process.cpuUsage(before);
    console.log(`${saidOf(totals, (user + system) / 1_000_000)}; ${failed} seeds broke a promise`);
  };
  const search = (seed: number): void => {
    const plan = planOf(seed, only);
    const { findings, hash } = runPlan(plan, library, totals);
    if (hashes) console.log(`${seed} ${hash}`);
    const unexplained = findings.filter((finding) => {
      const explanation = explanationOf(finding, plan, regressions);
      if (explanation) known.set(explanation.name, (known.get(explanation.name) ?? 0) + 1);
      return !explanation;
    });
    for (const { rule, text } of unexplained)
      console.log(
        `seed ${seed} broke ${rule}: ${text}\n  npm run simulate -- --seed ${seed}${only ? ` --only ${only}` : ''} --shrink`,
      );
    if (unexplained.length > 0) failed++;
  };
  const told = new AbortController();
  const end = (): void => told.abort();
  for (const signal of SIGNALS) process.once(signal, end);
  for (const seed of seeds) {
    if (told.signal.aborted || isOver()) break;
    // Each seed has a turn of its own, so that a signal is noticed between two seeds.
    await inTurn(() => search(seed));
    if (totals.seeds % SEEDS_OF_A_LINE === 0) tell();
  }
  for (const signal of SIGNALS) process.off(signal, end);
  for (const [name, count] of known) console.log(`${count} findings of the known defect ${name}`);
  tell();
  if (failed > 0) fail();
}

interface SeedOptions {
  readonly shrinks: boolean;
  readonly isOver: () => boolean;
  /** The promise of the story; the first broken one by default. */
  readonly rule: string | undefined;
  /** The name of a new regression. */
  readonly save: string | undefined;
}

/** Repeats a world, and prints its story; with `shrinks` the story of the smallest world that tells the same. */
export function printSeed(
  plan: Plan,
  library: Library,
  { shrinks, isOver, save, rule: asked }: SeedOptions,
): void {
  const { findings } = new Simulation(plan, library).run();
  const finding = findings.find(({ rule }) => asked === undefined || rule === asked);
  for (const { rule, text } of findings) console.log(`${rule}: ${text}`);
  if (findings.length > 0) fail();
  const smallest = finding && shrinks ? shrink(plan, finding.rule, library, isOver) : plan;
  for (const line of storyOf(smallest, finding?.rule, library)) console.log(line);
  if (finding && save !== undefined) saveRegression(save, finding, plan.seed, smallest);
}

/** Repeats the recorded worlds. A defect that was fixed must not be there again. */
export function printReplays(regressions: readonly Regression[], library: Library): void {
  for (const { name, status, rule, plan, about } of regressions) {
    const isThere = breaks(plan, rule, library);
    const said = isThere ? 'breaks' : 'keeps';
    console.log(`${status} ${said} ${rule}: ${name}: ${about}`);
    if (status === 'fixed' && isThere) fail();
  }
}

/**
 * The number of seeds that a test tries after the recorded one: any change of the library moves the moments of messages,
 * so that an error may show with another seed.
 */
const FURTHER_SEEDS = 40;

/** Plants errors, and prints the seed that shows each; `recorded` begins with the recorded seed, and tries only a few. */
export async function printBreaks(
  chosen: readonly Break[],
  { recorded, from, seconds }: { recorded: boolean; from: number; seconds: number },
): Promise<void> {
  Error.stackTraceLimit = 0;
  const limit = seconds === Infinity ? '' : ` or ${seconds} s`;
  for (const each of chosen) {
    if (recorded && each.seed === undefined) continue;
    const before = process.cpuUsage();
    const used = (): number => {
      const { user, system } = process.cpuUsage(before);
      return (user + system) / 1_000_000;
    };
    const isOver = (): boolean => used() > seconds;
    const tries = recorded ? Math.min(each.budget, FURTHER_SEEDS) : each.budget;
    const first = recorded && each.seed !== undefined ? [each.seed] : [];
    const seeds = [...first, ...fromOn(from, tries)];
    const shown = await searchBreak(each, seeds, isOver);
    const cpu = `${used().toFixed(1)} s of CPU`;
    if (shown) {
      const count = shown.seed - from + 1;
      console.log(
        `${each.name} (${each.safety}): seed ${shown.seed}, ${count} of ${each.budget}, ${cpu}: ${shown.finding.rule}`,
      );
    } else {
      console.log(`${each.name} (${each.safety}): NOT FOUND within ${seeds.length} seeds${limit}, ${cpu}`);
      fail();
    }
  }
}
