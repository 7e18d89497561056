import type { Served } from './contender.js';

/** Jain's fairness index of the grants of the loops: 1 when all loops are granted equally often, 1/n when one gets all. */
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
 * The number of other grants between the call and the grant of each acquisition. A busy machine changes the time
 * between the call and the grant, but not this number.
 */
export function servedMeanwhile(served: readonly Served[]): number[] {
  const grants = served.map(({ granted }) => granted).toSorted((a, b) => a - b);
  return served.map(
    ({ asked, granted }) => grants.filter((other) => other > asked && other < granted).length,
  );
}

/** For each acquisition, `true` if a hand-over took longer than `limit` milliseconds while it waited. */
export function sawSlowHandOver(served: readonly Served[], limit: number): boolean[] {
  const gaps = gapsOf(served);
  const slow = served.slice(1).filter((_, index) => gaps[index]! > limit);
  return served.map(({ asked, granted }) =>
    slow.some((other) => other.granted > asked && other.granted <= granted),
  );
}

/** Milliseconds from each release to the next grant. */
export function gapsOf(served: readonly Served[]): number[] {
  return served.slice(1).map(({ granted }, index) => granted - served[index]!.released);
}
