import type { Served } from './contender.js';

/** Jain's fairness index of how often each loop was served: 1 when all are served alike, 1/n when one gets everything. */
export function jainIndex(served: readonly Served[], loops: number): number {
  const counts = countPerLoop(served);
  const squares = counts.reduce((sum, count) => sum + count ** 2, 0);
  return served.length ** 2 / (loops * squares);
}

export function countPerLoop(served: readonly Served[]): number[] {
  const counts = new Map<string, number>();
  for (const { loop } of served) counts.set(loop, (counts.get(loop) ?? 0) + 1);
  return [...counts.values()];
}

/**
 * For each acquisition, how many others were served between its call and its grant. Unlike the time, this does not
 * depend on how busy the machine is.
 */
export function servedMeanwhile(served: readonly Served[]): number[] {
  const grants = served.map(({ granted }) => granted).toSorted((a, b) => a - b);
  return served.map(
    ({ asked, granted }) => grants.filter((other) => other > asked && other < granted).length,
  );
}

/** Milliseconds from each release to the next grant. */
export function gapsOf(served: readonly Served[]): number[] {
  return served.slice(1).map(({ granted }, index) => granted - served[index]!.released);
}
