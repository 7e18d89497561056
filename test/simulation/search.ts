import type { Finding } from './judge/rules.js';
import type { Library } from './node/load.js';
import { planOf } from './plans/profile.js';
import { type Result, Simulation } from './simulation.js';

/** A seed whose world broke a promise. */
export interface FailedSeed {
  readonly seed: number;
  readonly findings: readonly Finding[];
}

/** The sums of a search. */
export interface Totals {
  seeds: number;
  events: number;
  acquisitions: number;
  /** Simulated hours. */
  hours: number;
  readonly failed: FailedSeed[];
}

export function noTotals(): Totals {
  return { seeds: 0, events: 0, acquisitions: 0, hours: 0, failed: [] };
}

/** Runs the world of one seed, and adds it to the totals. */
export function runSeed(seed: number, library: Library, totals: Totals): Result {
  const result = new Simulation(planOf(seed), library).run();
  totals.seeds++;
  totals.events += result.events;
  totals.acquisitions += result.acquisitions;
  totals.hours += result.time / 3_600_000;
  if (result.findings.length > 0) totals.failed.push({ seed, findings: result.findings });
  return result;
}
