import type { BatchResult } from './batch-run.js';

/**
 * The demo succeeds only if it shows both the problem and its end.
 *
 * @returns the failures; an empty list on success
 */
export function judge(unlocked: BatchResult, locked: BatchResult): string[] {
  return [
    ...(unlocked.duplicatePushes > 0 ? [] : ['the run without the lock shows no duplicates']),
    ...(locked.duplicatePushes === 0
      ? []
      : [`the run with the lock has ${locked.duplicatePushes} duplicates`]),
    // Independent of what the jobs say of themselves: every job found its task waiting for it.
    ...(locked.refused === 0
      ? []
      : [`in the run with the lock ${locked.refused} jobs were refused as duplicates`]),
    ...(locked.lost === 0 ? [] : [`the run with the lock lost ${locked.lost} tasks`]),
  ];
}
