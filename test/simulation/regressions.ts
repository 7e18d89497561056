import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Finding, Rule } from './judge/rules.js';
import { ROOT } from './node/load.js';
import type { Plan } from './plans/plan.js';

/** A world that once broke a promise. */
export interface Regression {
  readonly name: string;
  /** `'known'` until the defect is fixed; from then on `'fixed'`, and the world must keep the promise. */
  readonly status: 'known' | 'fixed';
  readonly rule: Rule;
  /** The defect, in one sentence. */
  readonly about: string;
  /** The seed that showed it first. */
  readonly seed: string;
  /** The plan of that seed, reduced to the faults that matter. */
  readonly plan: Plan;
}

/** Reads all regressions, which are the files of `regressions/`. */
export function readRegressions(): Regression[] {
  const folder = join(ROOT, 'test/simulation/regressions');
  return readdirSync(folder)
    .filter((file) => file.endsWith('.json'))
    .toSorted()
    .map((file) => ({
      name: file.replace('.json', ''),
      ...(JSON.parse(readFileSync(join(folder, file), 'utf8')) as Omit<Regression, 'name'>),
    }));
}

/** Adds a world to the regressions, as a known defect. */
export function saveRegression(name: string, { rule, text }: Finding, seed: string, plan: Plan): void {
  const file = join(ROOT, 'test/simulation/regressions', `${name}.json`);
  writeFileSync(
    file,
    `${JSON.stringify({ status: 'known', rule, about: text, seed, plan }, undefined, 2)}\n`,
  );
}

/** The known defect that explains a finding: it breaks the same promise, by the same kinds of faults. */
export function explanationOf(
  { rule }: Finding,
  { events }: Plan,
  regressions: readonly Regression[],
): Regression | undefined {
  const kinds = new Set(events.map(({ kind }) => kind));
  return regressions.find(
    (each) =>
      each.status === 'known' && each.rule === rule && each.plan.events.every(({ kind }) => kinds.has(kind)),
  );
}
