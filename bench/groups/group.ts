import type { Contender } from '../contenders/contender.js';
import type { Figures } from '../measure/rounds.js';
import type { ResultTable } from '../report/tables.js';
import type { Plot } from '../report/plot.js';

/** Settings of a run. */
export interface Plan {
  readonly contenders: readonly Contender[];
  /** Factor for rounds and repetitions: 1 for the figures of the documentation, less for a trial. */
  readonly effort: number;
  /** Numbers of nodes for the measurements. */
  readonly nodes: readonly number[];
}

/** Results of a group. */
export interface Findings {
  readonly tables: readonly ResultTable[];
  readonly plots?: readonly Plot[];
}

/** Measures one aspect of all compared libraries. */
export interface Group {
  readonly name: string;
  readonly about: string;
  run(plan: Plan): Promise<Findings>;
}

/** Multiplies `count` by the effort of the plan; the result is at least `least`. */
export function times(count: number, { effort }: Plan, least = 1): number {
  return Math.max(least, Math.round(count * effort));
}

/** Returns the libraries that can lock on this number of nodes. */
export function fit(contenders: readonly Contender[], nodes: number): readonly Contender[] {
  return contenders.filter(({ quorum }) => quorum || nodes === 1);
}

/** Leaves out each library that is only a thin wrapper of another library in the list. */
export function distinct(contenders: readonly Contender[]): readonly Contender[] {
  return contenders.filter(({ over }) => !contenders.some(({ name }) => name === over));
}

/** Returns the numbers of nodes of the plan, and the number 3 if one of them is above 1. */
export function withThree({ nodes }: Plan): readonly number[] {
  const all = nodes.some((count) => count > 1) ? [...nodes, 3] : nodes;
  return [...new Set(all)].toSorted((a, b) => a - b);
}

export function nodesTitle(nodes: number): string {
  return nodes === 1 ? 'one node' : `${nodes} nodes`;
}

/** Names the base of the ratios of a table: the library of the first row. */
export function toFirst(rows: Figures): string {
  const [first = ''] = rows.keys();
  return `to ${first}`;
}

/** Prints the progress of a long group. The results do not contain it. */
export function progress(text: string): void {
  process.stderr.write(`   ... ${text}\n`);
}
