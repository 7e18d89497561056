import type { Scenario } from './scenario.js';
import type { Outcome } from './stage.js';

const HEAD = [
  'scenario',
  'acquisitions',
  'per s',
  'overlaps',
  'token faults',
  'orphans',
  'worst settle',
  'lost',
];

/** Makes the cells of one scenario for the table of a long run. */
export function rowOf({ name, overlapsBecause }: Scenario, outcome: Outcome): string[] {
  const { acquisitions, rate, overlaps, tokenFaults, registerFaults, orphans, worstSettle } = outcome;
  const { lost, worstNotice } = outcome;
  return [
    name,
    String(acquisitions),
    // A rate of a few acquisitions shows nothing.
    acquisitions < 10 ? '' : rate.toFixed(0),
    `${overlaps.length}${overlapsBecause === undefined ? '' : ` (${overlapsBecause})`}`,
    String(tokenFaults.length + registerFaults.length),
    String(orphans.length),
    `${worstSettle.toFixed(0)} ms`,
    lost === 0 ? '0' : `${lost}, within ${worstNotice.toFixed(0)} ms`,
  ];
}

/** Formats the rows as a Markdown table with aligned columns. */
export function tableOf(rows: readonly (readonly string[])[]): string {
  const all = [HEAD, ...rows];
  const widths = HEAD.map((_, column) => Math.max(...all.map((row) => row[column]!.length)));
  const line = (row: readonly string[]): string =>
    `| ${row.map((cell, column) => (column === 0 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!))).join(' | ')} |`;
  const rule = `| ${widths.map((width, column) => (column === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`)).join(' | ')} |`;
  return [line(HEAD), rule, ...rows.map(line)].join('\n');
}
