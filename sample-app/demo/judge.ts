import type { BatchResult } from './batch-run.js';

/**
 * Judges the demo, which succeeds only if it shows both the problem and the solution.
 *
 * @returns the failures; an empty list for a success
 */
export function judge(unlocked: BatchResult, locked: BatchResult): string[] {
  return [
    ...(unlocked.duplicatePushes > 0 ? [] : ['the run without the lock shows no duplicates']),
    ...(locked.duplicatePushes === 0
      ? []
      : [`the run with the lock has ${locked.duplicatePushes} duplicates`]),
    // A second check for duplicates: consumers refuse a job whose task was already taken.
    ...(locked.refused === 0
      ? []
      : [`in the run with the lock ${locked.refused} jobs were refused as duplicates`]),
    ...(locked.lost === 0 ? [] : [`the run with the lock lost ${locked.lost} tasks`]),
  ];
}
