import Table from 'cli-table3';
import { type BatchResult, MAX_ATTEMPTS, PROCESSING_TIMEOUT_MS } from './batch-run.js';

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
  row('duplicates refused: the task was already taken', ({ refused }) => refused);
  row('done', ({ done }) => done);
  row(`dead: given up after ${MAX_ATTEMPTS} failed attempts`, ({ dead }) => dead);
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

/** Explains why the run with the lock took longer; `undefined` if it did not, or no instance was killed. */
export function whySlower(unlocked: BatchResult, locked: BatchResult): string | undefined {
  const killed = locked.instances.find((instance) => instance.killed);
  if (!killed || locked.seconds <= unlocked.seconds) return undefined;
  return (
    `The run with @WithLock took longer because ${killed.name} was killed: its tasks were tried again ` +
    `${PROCESSING_TIMEOUT_MS / 1_000} s after their consumer was gone, and its lock, if it held it, ended with the ttl.`
  );
}
