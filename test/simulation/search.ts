import type { Break } from './breaks.js';
import type { Finding } from './judge/rules.js';
import { type Library, loadLibrary } from './node/load.js';
import type { Plan } from './plans/plan.js';
import { planOf } from './plans/profile.js';
import { type Result, Simulation } from './simulation.js';

/** The number of seeds that a search without a first seed tries before new ones. */
const FIXED_SEEDS = 40;

export function* fromOn(first: number, most = Infinity): Iterable<number> {
  for (let seed = first; seed < first + most; seed++) yield seed;
}

/** The same seeds in each search, and then seeds that no search has tried: their first number is the time in seconds. */
export function* fixedAndNew(): Iterable<number> {
  yield* fromOn(1, FIXED_SEEDS);
  const first = Math.floor(Date.now() / 1_000);
  console.log(`new seeds from ${first}`);
  yield* fromOn(first);
}

/** The sums of a search. */
export interface Totals {
  seeds: number;
  events: number;
  acquisitions: number;
  /** Simulated hours. */
  hours: number;
  /** The part of them with work and faults; then the world is quiet until it ends. */
  hoursOfFaults: number;
}

export function noTotals(): Totals {
  return { seeds: 0, events: 0, acquisitions: 0, hours: 0, hoursOfFaults: 0 };
}

/** Runs a world, and adds it to the totals. */
export function runPlan(plan: Plan, library: Library, totals: Totals): Result {
  const result = new Simulation(plan, library).run();
  totals.seeds++;
  totals.events += result.events;
  totals.acquisitions += result.acquisitions;
  totals.hours += result.time / 3_600_000;
  totals.hoursOfFaults += Math.min(result.time, plan.duration) / 3_600_000;
  return result;
}

/** Says what a search has done so far. `cpu` is in seconds. */
export function saidOf({ seeds, hours, hoursOfFaults, acquisitions }: Totals, cpu: number): string {
  return (
    `${seeds} seeds, ${hours.toFixed(2)} simulated hours (${hoursOfFaults.toFixed(2)} with faults), ` +
    `${acquisitions} acquisitions; ` +
    `${cpu.toFixed(0)} s of CPU, ${((hours * 60) / cpu).toFixed(1)} hours for a minute`
  );
}

/** A seed whose world shows an error, and the promise that the error breaks. */
export interface Shown {
  readonly seed: number;
  readonly finding: Finding;
}

/** Runs seeds with a planted error, until one of its expected promises breaks. */
export async function searchBreak(
  { expected, patches }: Break,
  seeds: Iterable<number>,
  until: () => boolean,
): Promise<Shown | undefined> {
  const library = await loadLibrary(patches);
  return inTurn(() => {
    for (const seed of seeds) {
      const shown = showsBreak(seed, library, expected);
      if (shown || until()) return shown;
    }
    return undefined;
  });
}

function showsBreak(seed: number, library: Library, expected: Break['expected']): Shown | undefined {
  const { findings } = new Simulation(planOf(seed), library, { stopAt: expected }).run();
  const finding = findings.find(({ rule }) => expected.includes(rule));
  return finding && { seed, finding };
}

/** Runs worlds outside of every promise and tick of this program: they run the microtasks themselves. */
export function inTurn<T>(run: () => T): Promise<T> {
  return new Promise((resolve, reject) => {
    setImmediate(() => {
      try {
        resolve(run());
      } catch (error) {
        reject(error as Error);
      }
    });
  });
}
