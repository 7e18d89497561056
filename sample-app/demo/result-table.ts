import Table from 'cli-table3';
import type { BatchResult } from './batch-run.js';

/** Formats both runs side by side. */
export function resultTable(unlocked: BatchResult, locked: BatchResult): string {
  const table = new Table({
    head: ['', 'without the lock', 'with @WithLock'],
    colAligns: ['left', 'right', 'right'],
    style: { head: [], border: [] },
  });
  const row = (title: string, value: (result: BatchResult) => string | number): void => {
    table.push([title, value(unlocked), value(locked)]);
  };
  row('tasks', ({ tasks }) => tasks);
  row('pushes to the queue', ({ pushes }) => pushes);
  row('duplicate pushes', ({ duplicatePushes }) => duplicatePushes);
  row('duplicates refused by the conditional update', ({ refused }) => refused);
  row('done', ({ done }) => done);
  row('dead (failed too often)', ({ dead }) => dead);
  row('lost', ({ lost }) => lost);
  for (const [index, { name }] of unlocked.instances.entries()) {
    row(`${name}: dispatches / skips`, ({ instances }) => {
      const instance = instances[index];
      if (!instance) return '-';
      return `${instance.killed ? '(killed) ' : ''}${instance.dispatches} / ${instance.skips}`;
    });
  }
  row('time', ({ seconds }) => `${seconds.toFixed(1)} s`);
  return table.toString();
}
