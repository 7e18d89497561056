import Table from 'cli-table3';
import type { RunRecord } from './lab-event.js';

/** Formats all runs as a table, one line each. */
export function resultTable(records: readonly RunRecord[]): string {
  const table = new Table({
    head: ['', 'scenario', 'what happened', 'duplicates', 'lost', 'time to recover', 'as described'],
    colAligns: ['right', 'left', 'left', 'right', 'right', 'right', 'left'],
    colWidths: [4, 34, 48, 12, 6, 17, 20],
    wordWrap: true,
    style: { head: [], border: [] },
  });
  for (const { scenario, title, happened, outcome, deviations, notRun } of records) {
    table.push([
      scenario,
      title,
      notRun ?? happened ?? '',
      outcome?.duplicates ?? '-',
      outcome?.lost ?? '-',
      recoveryOf(outcome?.recovery),
      notRun ? 'not run' : deviations?.length === 0 ? 'yes' : `NO: ${deviations?.join('; ') ?? 'it failed'}`,
    ]);
  }
  return table.toString();
}

export function recoveryOf(recovery: number | 'never' | undefined): string {
  if (recovery === undefined) return '-';
  return recovery === 'never' ? 'never' : `${(recovery / 1_000).toFixed(1)} s`;
}
